"""`python -m ccs.results` prints docs/tables.md."""

from ccs.results.schema import as_markdown

if __name__ == "__main__":
    print(as_markdown(), end="")
