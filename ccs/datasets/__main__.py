"""`python -m ccs.datasets` prints the table of docs/datasets.md."""

from ccs.datasets.known_sets import as_markdown

if __name__ == "__main__":
    print(as_markdown(), end="")
