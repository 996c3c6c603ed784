"""Hooks of mkdocs.yml: pages of the repository's root, generated references, and links out of docs/."""

from __future__ import annotations

import posixpath
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts import reference_pages  # noqa: E402

PAGES = {"README.md": "index.md"} | {n: n for n in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}
"""Pages of the root, and their places in the site."""
GENERATED = {"tables.md": reference_pages.results_schema, "commands.md": reference_pages.command_reference}
"""Pages to which the site adds generated text."""
MODULES = {
    "Models": (
        "ccs.model.model", "ccs.model.head_statistics", "ccs.model.maps", "ccs.model.ablation",
        "ccs.model.external",
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
"""The public modules that the API reference lists after the names of `ccs`."""


def public_names() -> list[str]:
    """Return `ccs.__all__`, functions before classes."""
    import ccs

    return sorted(ccs.__all__, key=str.swapcase)


def reference() -> dict[str, str]:
    """Return the pages of the API reference by their place in the site."""
    places = {module: f"reference/{module}.md" for modules in MODULES.values() for module in modules}
    names = "".join(f"::: ccs.{name}\n" for name in public_names() if f"ccs.{name}" not in places)
    lists = "".join(
        f"**{title}**: " + ", ".join(f"[{module}]({module}.md)" for module in modules) + "\n\n"
        for title, modules in MODULES.items()
    )
    intro = "# API reference\n\nFunctions and classes of `ccs`, and its public modules:\n\n"
    return {"reference/index.md": f"{intro}{lists}{names}"} | {
        place: f"# {module}\n\n::: {module}\n    options: {{show_root_heading: false}}\n"
        for module, place in places.items()
    }


def on_config(config: Any) -> Any:
    """Add the pages of the API reference to the navigation, and the version to the footer."""
    config.copyright = f"clip-ccs {version('clip-ccs')}"
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
    """Add the root's pages and the API reference.

    Args:
        files: The site's files, which are extended.
        config: The configuration of MkDocs.
    """
    generated = {place: _page(name) for name, place in PAGES.items()} | reference()
    for place, text in generated.items():
        files.append(File.generated(config, place, content=text))
    return files


def _page(name: str) -> str:
    """Return a page of the root without the front matter for Spaces, and without badges from another host."""
    text = re.sub(r"\A---\n.*?\n---\n", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"^\[!\[.*\n", "", text, flags=re.MULTILINE)


def on_page_markdown(text: str, *, page: Any, config: Any, files: Files) -> str:
    """Adapt links to the site, and add generated text.

    A link to a file without a page leads to the repository, or becomes plain text if the repository has no
    address.

    Args:
        text: Markdown of the page.
        page: The page.
        config: Configuration of the site.
        files: Unused; mkdocs passes it.
    """
    place = page.file.src_uri
    source = next((name for name, page_place in PAGES.items() if page_place == place), f"docs/{place}")

    def adapt_link(link_match: re.Match[str]) -> str:
        picture, words, link, anchor = link_match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        target = PAGES.get(path, path.removeprefix("docs/"))
        if path in PAGES or path.startswith("docs/"):
            target = posixpath.relpath(target, posixpath.dirname(place) or ".")
            return f"{picture}[{words}]({target}{anchor or ''})"
        if not (ROOT / path).exists():
            return link_match[0]  # broken: the build reports it
        return f"[{words}]({config.repo_url}/blob/main/{path}{anchor or ''})" if config.repo_url else words

    if place.startswith("reference/"):
        return text
    if place in GENERATED:
        text += f"\n{GENERATED[place]()}"
    return re.sub(
        r"(!?)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)", adapt_link, text
    )
