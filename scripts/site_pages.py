"""What mkdocs.yml asks for beside docs/: pages of the root, links that leave docs/, and the API reference."""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts import reference_pages  # noqa: E402

PAGES = {"README.md": "index.md"} | {n: n for n in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
"""Pages of the root, and where the site has them."""
GENERATED = {"tables.md": reference_pages.results_schema, "commands.md": reference_pages.command_reference}
"""Pages to which the site adds generated text."""
MODULES = {
    "Models": (
        "ccs.model.model", "ccs.model.head_statistics", "ccs.model.maps", "ccs.model.ablation",
        "ccs.model.extraction",
    ),
    "Texts and scores": ("ccs.texts.textspan", "ccs.texts.pools", "ccs.texts.labels", "ccs.texts.score"),
    "Bias and accuracy": (
        "ccs.metrics.skew", "ccs.metrics.accuracy", "ccs.metrics.retrieval",
        "ccs.metrics.agreement",
    ),
    "Finding heads": (
        "ccs.analysis.ablation_sets", "ccs.analysis.carriers", "ccs.analysis.evidence",
    ),
    "Making it fairer": ("ccs.analysis.mitigations",),
    "Results": ("ccs.results", "ccs.results.queries"),
}  # fmt: skip
"""The public modules: what the reference shows beside the names of `ccs` itself."""


def exported() -> list[str]:
    """The names in `ccs.__all__`, read without importing PyTorch."""
    tree = ast.parse((ROOT / "ccs" / "__init__.py").read_text("utf-8"))
    values = [one.value for one in tree.body if isinstance(one, ast.Assign) and "__all__" in ast.dump(one)]
    return list(ast.literal_eval(values[0]))


def reference() -> dict[str, str]:
    """The pages of the API reference, by their place in the site."""
    places = {module: f"reference/{module}.md" for modules in MODULES.values() for module in modules}
    names = "".join(f"::: ccs.{name}\n" for name in exported() if f"ccs.{name}" not in places)
    lists = "".join(
        f"**{title}**: " + ", ".join(f"[{module}]({module}.md)" for module in modules) + "\n\n"
        for title, modules in MODULES.items()
    )
    intro = "# API reference\n\nThe names that `import ccs` gives, then the modules behind them.\n\n"
    return {"reference/index.md": f"{intro}{lists}{names}"} | {
        place: f"# {module}\n\n::: {module}\n    options: {{show_root_heading: false}}\n"
        for module, place in places.items()
    }


def on_config(config: Any) -> Any:
    """Put the reference's pages into the navigation."""
    modules = [{title: [f"reference/{name}.md" for name in names]} for title, names in MODULES.items()]
    config.nav = _extended(config.nav, "API reference", modules)
    return config


def _extended(entries: list[Any], title: str, pages: list[Any]) -> list[Any]:
    """Return the navigation with these pages below the entry of that title."""
    extended = []
    for entry in entries:
        name, value = next(iter(entry.items()))
        if name == title:
            value = [value, *pages]
        elif isinstance(value, list):
            value = _extended(value, title, pages)
        extended.append({name: value})
    return extended


def on_files(files: Files, *, config: Any) -> Files:
    """Add the root's pages and the reference."""
    made = {place: _page(name) for name, place in PAGES.items()} | reference()
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    return files


def _page(name: str) -> str:
    """A page of the root without the front matter that a Space needs."""
    return re.sub(r"\A---\n.*?\n---\n", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)


def on_page_markdown(text: str, *, page: Any, config: Any, files: Files) -> str:
    """Links between repository and site: a file that has no page is a link to the repository, where it has an
    address, and its words alone where it has none.
    """
    place = page.file.src_uri
    source = next((name for name, own in PAGES.items() if own == place), f"docs/{place}")

    def moved(found: re.Match[str]) -> str:
        picture, words, link, anchor = found.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        own = PAGES.get(path, path.removeprefix("docs/"))
        if path in PAGES or path.startswith("docs/"):
            own = posixpath.relpath(own, posixpath.dirname(place) or ".")
            return f"{picture}[{words}]({own}{anchor or ''})"
        if not (ROOT / path).exists():
            return found[0]  # broken: the build says so
        return f"[{words}]({config.repo_url}/blob/main/{path}{anchor or ''})" if config.repo_url else words

    if place.startswith("reference/"):
        return text
    if place in GENERATED:
        text += f"\n{GENERATED[place]()}"
    return re.sub(
        r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)", moved, text
    )
