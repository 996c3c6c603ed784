"""Audit the bias of models: `clip-ccs audit --model M --gallery G --out DIR`."""

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import ccs
from ccs.analysis.audit import Audit
from ccs.batch.compute.stages import Processes, in_processes
from ccs.batch.leaderboard import compare_models, publish_audits
from ccs.batch.pages import TEMPLATES, environment
from ccs.cli import options
from ccs.cli.command_line import Command, package_version
from ccs.errors import InputError
from ccs.files import write_text
from ccs.results.hub_repository import Repository

UNRELATED = ("model", "out", "publish", "public", "device")
"""Options that don't change the numbers of a model."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Audit the bias of models: rankings of people, harm categories, accuracy, and intersections.

    The command writes a page (audit.html), all numbers (audit.json), and a section for a model card
    (audit.md) per model, and a table of the models (models.csv). It skips models that --out already has with
    the same options. Under `accelerate launch -m ccs.batch.audit`, the processes share the models.

    Examples:
        clip-ccs audit --out audit
        clip-ccs audit --model ViT-B-32/openai --gallery fairface-1.25 --attribute "gender,race"
        clip-ccs audit --model ViT-B-32/openai --model ViT-B-16/openai --gallery DIR --publish USER/NAME
    """

    model: Annotated[tuple[str, ...], options.MODEL] = ("organism",)
    """Models; repeatable: bundled names, NAME/TAG, folders, or hf-hub:USER/NAME"""
    gallery: options.Gallery = "world/faces"
    dataset: Annotated[
        str | None, options.DATA, options.unset("world/occupations for synthetic people, else none")
    ] = None
    """Images with classes, for accuracy: name, folder, zip, Parquet file, or USER/NAME on the Hub"""
    split: options.Split = ""
    prompts: Annotated[tuple[str, ...], options.DATA] = ("gallery", "traits")
    """Prompt sets; repeatable: gallery (its occupations), paper, traits, or so-b-it"""
    attribute: Annotated[tuple[str, ...], options.DATA, options.unset("all, and the first two crossed")] = ()
    """Columns of groups; repeatable; "gender,race" crosses two"""
    ablate: options.Ablation = ""
    top: options.Top = None
    max_images: options.MaxImages = None
    smallest: Annotated[int, options.ANALYSIS, options.at_least(1)] = 10
    """Smallest number of people in a crossed group"""
    skip_unreadable: options.SkipUnreadable = False
    out: Annotated[Path, options.OUTPUT, options.parse_with(options.to_folder)] = Path("audit")
    """Folder for the audit"""
    publish: Annotated[str | None, options.OUTPUT, options.unset("none")] = None
    """Leaderboard dataset on the Hub, USER/NAME"""
    public: options.Public = False
    device: options.Device = "auto"


def audit_models(settings: AuditOptions) -> int:
    """Audit the models in the processes that the launcher started, and return the exit status."""
    return in_processes(settings.device, partial(_run, settings))


def _run(settings: AuditOptions, processes: Processes) -> int:
    """Audit this process's share of the models. The first process compares and publishes them."""
    folders = {name: settings.out / re.sub(r"[^\w.-]+", "--", name).strip("-") for name in settings.model}
    if len(set(folders.values())) < len(settings.model):
        raise InputError("Two models would be written to the same folder; audit them with different --out.")
    if settings.publish:
        processes.once(Repository(settings.publish).require_login)
    conditions = {name: _conditions(settings, name) for name in folders}
    missing = processes.once(
        lambda: [name for name in folders if _read(folders[name]).get("settings") != conditions[name]]
    )
    failures: dict[str, str] = {}
    for name in missing[processes.rank :: processes.size]:
        try:
            write_audit(settings, name, folders[name], processes.device)
        except InputError as error:
            failures[name] = str(error)
    failed = {name: reason for part in processes.gather(failures) for name, reason in part.items()}
    if len(failed) == len(folders):
        raise InputError(next(iter(failed.values())))
    if processes.first:
        for name, reason in failed.items():
            print(f"error: {name} is left out: {reason}", file=sys.stderr)
        for name in folders.keys() - missing:
            print(f"{name} is already in {folders[name]}.", file=sys.stderr)
    audited = [folder for name, folder in folders.items() if name not in failed]
    processes.once(partial(_conclude, settings, audited))
    return 2 * bool(failed)


def _conclude(settings: AuditOptions, folders: list[Path]) -> None:
    """Write and publish the table of all models."""
    audits = {folder.name: _read(folder) for folder in folders}
    if len(audits) > 1:
        write_text(settings.out / "models.csv", compare_models(audits.values()).to_csv())
    print(f"Written to {settings.out}.")
    if settings.publish:
        publish_audits(settings.out, audits, settings.publish, public=settings.public)


def _conditions(settings: AuditOptions, name: str) -> dict[str, str]:
    """Return everything that changes a model's numbers, as text."""
    relevant = options.arguments(settings, *UNRELATED)
    return {"model": name, "version": package_version()} | {key: str(relevant[key]) for key in relevant}


def _read(folder: Path) -> dict[str, Any]:
    """Return a model's numbers; an empty dict if there are none."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder / "audit.json").read_text("utf-8")))
    return {}


def write_audit(settings: AuditOptions, name: str, folder: Path, device: str) -> None:
    """Audit a model, print its main numbers, and write its files, the numbers last.

    Args:
        settings: Options of the audit.
        name: Name of the model.
        folder: Folder for the files, made if it doesn't exist.
        device: Device of this process.

    Raises:
        InputError: If the model or the data can't be used.
    """
    arguments = options.arguments(settings, *UNRELATED, "attribute")
    result = ccs.audit(name, **arguments, attributes=settings.attribute, device=device)
    for file in ("audit.html", "audit.md"):
        write_text(folder / file, render(file, result))
    values = {"settings": _conditions(settings, name), **json.loads(result.to_json())}
    write_text(folder / "audit.json", json.dumps(values, indent=1, ensure_ascii=False))
    print(render("audit.txt", result), flush=True)


def render(template: str, result: Audit) -> str:
    """Render an audit.

    Args:
        template: Name of the template: audit.html, audit.md, or audit.txt.
        result: The audit.
    """
    rows: Any = result.rows.astype(object).where(result.rows.notna(), None).to_dict("records")

    def section(*names: str) -> list[dict[str, Any]]:
        return [row for name in names for row in rows if row["section"] == name]

    drawn = template.endswith(".html") and find_spec("matplotlib")
    values = vars(result) | {
        "rankings": section("ranking", "preference"),
        "harms": section("harm"),
        "accuracies": section("accuracy", "worst class", "worst group"),
        "tops": result.top.to_dict("records"),
        "parts": result.parts.to_dict("records"),
        "drawing": result._repr_html_() if drawn else "",
    }
    return environment(TEMPLATES).get_template(template).render(values)


main = Command(AuditOptions, audit_models, interrupted="Interrupted; the same command does what is missing.")

if __name__ == "__main__":
    sys.exit(main())
