"""Audit the bias of models: `clip-ccs audit --model M --gallery G --out DIR`."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import jinja2
import pandas as pd

import ccs
from ccs.analysis.audit import Audit
from ccs.batch.pages import TEMPLATES
from ccs.cli.command_line import Command
from ccs.cli.options import (
    ANALYSIS,
    DATA,
    IMAGES_FROM,
    MODEL,
    OUTPUT,
    Ablation,
    Device,
    Gallery,
    MaxImages,
    Seed,
    SkipUnreadable,
    Top,
    describe,
    read,
    to_folder,
)
from ccs.errors import InputError, MissingExtra
from ccs.files import write_text

COMPARED = ("MaxSkew", "AUC", "largest gap", "accuracy")
"""The metrics of the table over models."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Audit the bias of models: rankings of people, harm categories, accuracy, and intersections.

    Writes a page (audit.html), all numbers (audit.json), and a section for a model card (audit.md) per model,
    and a table over the models (models.csv). A model that --out already has, with the same settings, is not
    measured again.
    """

    model: Annotated[
        tuple[str, ...],
        MODEL,
        describe("Models: bundled names, open_clip's NAME/TAG, folders, or hf-hub:USER/NAME"),
    ] = ("organism",)
    gallery: Gallery = "world/faces"
    dataset: Annotated[
        str | None,
        DATA,
        describe(
            f"Images with classes, for accuracy: {IMAGES_FROM}", "world/occupations for synthetic people"
        ),
    ] = None
    prompts: Annotated[
        tuple[str, ...],
        DATA,
        describe("Prompt sets: gallery (the gallery's occupations), paper, traits, or so-b-it"),
    ] = ("gallery", "traits")
    attribute: Annotated[
        tuple[str, ...],
        DATA,
        describe('Columns of groups; "gender,race" crosses two', "all, and the first two crossed"),
    ] = ()
    ablate: Ablation = ""
    top: Top = None
    max_images: MaxImages = None
    smallest: Annotated[int, ANALYSIS, describe("Fewest people in a crossed group")] = 10
    skip_unreadable: SkipUnreadable = False
    out: Annotated[Path, OUTPUT, read(to_folder), describe("Folder for the audit")] = Path("audit")
    device: Device = "auto"
    seed: Seed = 0


def measure(settings: AuditOptions) -> None:
    """Audit each model, write its files, and print the main numbers."""
    folders = [settings.out / re.sub(r"[^\w.-]+", "--", name).strip("-") for name in settings.model]
    if len(set(folders)) < len(folders):
        raise InputError("Two models would be written to the same folder; audit them with different --out.")
    tables = []
    for name, folder in zip(settings.model, folders, strict=True):
        digest = _digest(settings, name)
        values = _finished(folder / "audit.json", digest)
        if values is None:
            result = _audit(settings, name)
            values = {"settings": digest, **json.loads(result.to_json())}
            write(result, folder, values)
            print(summary(result))
        else:
            print(f"{name} is already in {folder}.", file=sys.stderr)
        tables.append(pd.DataFrame(values["rows"]).assign(model=values["about"]["model"]))
    if len(tables) > 1:
        write_text(settings.out / "models.csv", compare(pd.concat(tables)).to_csv())
    print(f"Written to {settings.out}.")


def _audit(settings: AuditOptions, name: str) -> Audit:
    return ccs.audit(
        name,
        settings.gallery,
        dataset=settings.dataset,
        prompts=settings.prompts,
        attributes=settings.attribute,
        ablate=settings.ablate,
        top=settings.top,
        max_images=settings.max_images,
        smallest=settings.smallest,
        skip_unreadable=settings.skip_unreadable,
        seed=settings.seed,
        device=settings.device,
    )


def _digest(settings: AuditOptions, name: str) -> str:
    """Return a hash of everything that changes a model's numbers."""
    relevant = {
        key: str(value) for key, value in vars(settings).items() if key not in ("model", "out", "device")
    }
    return hashlib.sha256(
        json.dumps({**relevant, "name": name, "version": ccs_version()}).encode()
    ).hexdigest()[:16]


def ccs_version() -> str:
    """Return the installed version, or "clone"."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("clip-ccs")
    except PackageNotFoundError:
        return "clone"


def _finished(path: Path, digest: str) -> dict[str, Any] | None:
    """Return the numbers of an earlier run with the same settings, or None."""
    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) and values.get("settings") == digest else None


def write(result: Audit, folder: Path, values: dict[str, Any]) -> None:
    """Write the page, the section for a model card, and last the numbers.

    Args:
        result: of `ccs.audit`.
        folder: made if it doesn't exist.
        values: what audit.json holds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("audit.html", "audit.md"):
        write_text(folder / name, render(name, result))
    write_text(folder / "audit.json", json.dumps(values, indent=1, ensure_ascii=False))


def render(name: str, result: Audit) -> str:
    """Return the page or the section as text; `name` is that of its template."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    rows = result.rows.astype(object).where(result.rows.notna(), None).to_dict("records")
    return environment.get_template(name).render(
        about=result.about,
        rankings=[row for row in rows if row["section"] == "ranking"],
        harms=[row for row in rows if row["section"] == "harm"],
        accuracies=[row for row in rows if row["section"] in ("accuracy", "worst class", "worst group")],
        tops=result.top.to_dict("records"),
        left_out={name: groups for name, groups in result.left_out.items() if groups},
        alike={name: groups for name, groups in result.alike.items() if groups},
        prompts=result.prompts,
        drawing=_drawing(result) if name.endswith(".html") else "",
    )


def _drawing(result: Audit) -> str:
    """Return the plot as SVG, or nothing without matplotlib."""
    buffer = StringIO()
    try:
        result.plot().figure.savefig(buffer, format="svg", metadata={"Date": None})
    except MissingExtra:
        return ""
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def format_number(value: float | None, digits: int = 2) -> str:
    """Return a number as text, or a dash if there is none."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


def summary(result: Audit) -> str:
    """Return the main numbers as text for a terminal."""
    title = f"{result.about['model']} on {result.about['gallery']} ({result.about['images']} images)"
    rankings, harms = result.section("ranking"), result.section("harm")
    return "\n".join(
        [
            title,
            *map(_ranking_line, rankings[rankings["metric"] == "MaxSkew"].to_dict("records")),
            *map(_gap_line, harms[harms["metric"] == "largest gap"].to_dict("records")),
            *map(_accuracy_line, result.section("accuracy").to_dict("records")),
        ]
    )


def _ranking_line(row: Mapping[Any, Any]) -> str:
    change = "" if row["before"] == row["after"] else f"{row['before']:.2f} -> "
    return (
        f"  MaxSkew by {row['attribute']}, {row['items']:.0f} prompts ({row['prompts']}): "
        f"{change}{row['after']:.2f} [{row['low']:.2f}, {row['high']:.2f}], chance {row['chance']:.2f}"
    )


def _gap_line(row: Mapping[Any, Any]) -> str:
    return (
        f"  {row['prompts']} by {row['attribute']}: largest gap {row['after']:.1%} ({row['group']}), "
        f"chance {row['chance']:.1%}, p {row['p_value']:.3f}"
    )


def _accuracy_line(row: Mapping[Any, Any]) -> str:
    return f"  accuracy on {row['prompts']}: {row['after']:.1%} [{row['low']:.1%}, {row['high']:.1%}]"


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a table over models: one line per model, one column per main number."""
    main = rows[rows["metric"].isin(COMPARED) & (rows["section"] != "worst class")]
    labels = [
        " · ".join(
            str(part) for part in (row.metric, row.prompts, row.attribute) if isinstance(part, str) and part
        )
        for row in main.itertuples()
    ]
    return main.assign(number=labels).pivot_table(index="model", columns="number", values="after", sort=False)


EXAMPLES: Sequence[str] = (
    "clip-ccs audit --out audit",
    'clip-ccs audit --model ViT-B-32/openai --gallery fairface-1.25 --attribute "gender,race" --out audit',
    "clip-ccs audit --model ViT-B-32/openai --model ViT-B-16/openai --gallery DIR --prompts so-b-it",
)
main = Command(AuditOptions, measure, EXAMPLES)

if __name__ == "__main__":
    sys.exit(main())
