"""Reduce the bias of a model: `clip-ccs mitigate --model M --gallery G --attribute A --out DIR`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from huggingface_hub import EvalResult

import ccs
from ccs.analysis.mitigate import MitigationTable, Option, choose, objection, unbeaten
from ccs.analysis.mitigations import METHODS, NOTHING, as_change
from ccs.analysis.search import conclude
from ccs.batch.checkpoint import Destination
from ccs.batch.pages import format_effect, format_parts, in_brackets, list_skipped, printed
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.data import SOURCES
from ccs.errors import InputError
from ccs.model.model import Model


@dataclass(frozen=True, kw_only=True)
class MitigateOptions(options.GalleryOptions):
    """Compare ways to reduce a model's bias, recommend one, or none, and save the model with it.

    Each method is fitted on one half of the people and prompts, and measured on the other.
    """

    max_loss: options.MaxLoss = 2.0
    method: Annotated[
        tuple[str, ...],
        options.ANALYSIS,
        options.describe(f"Methods to compare; repeatable; one alone is saved: {', '.join(METHODS)}", "all"),
    ] = ()
    out: options.ModelFolder = None
    repo: options.ModelRepository = None
    public: options.Public = False
    max_images: Annotated[int, options.DATA, options.at_least(4)] = 400
    """Largest number of images of each dataset"""


def mitigate(settings: MitigateOptions) -> None:
    """Print the table and the recommendation, and save the model."""
    saves = settings.out or settings.repo
    destination = Destination(settings.out, settings.repo, settings.public) if saves else None
    model = ccs.load(settings.model, device=settings.device)
    methods, max_loss = settings.method or tuple(METHODS), settings.max_loss / 100
    table = ccs.mitigate(model, **settings.arguments(), methods=methods, max_loss=max_loss, tell=_tell)
    list_skipped(table.about["skipped"])
    saved = _storable(settings, table) if saves else None
    print(format_mitigation(table, saved))
    if destination:
        _save(settings, destination, model, table, saved)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def format_mitigation(table: MitigationTable, saved: Option | None = None) -> str:
    """Format the table and the recommendation.

    Args:
        table: The methods' results.
        saved: The method that the saved model gets, which may be another than the recommended one.
    """
    methods = list(table.options.values())
    unbeaten_names = unbeaten(methods)
    rows = [
        {
            "": "*" if method.name in unbeaten_names else "",
            "method": method.name,
            "MaxSkew": in_brackets(method.max_skew),
            "its change": in_brackets(method.max_skew_change, sign="+") if method.name != NOTHING else "",
            "accuracy": f"{method.accuracy.value:.1%}",
            "change": f"{100 * method.accuracy_change.value:+.1f}" if method.name != NOTHING else "",
            "group accuracy": f"{method.group_accuracy:.0%}",
            "moved": f"{method.moved:.3f}",
            "in weights": "no" if method.reason else "yes",
        }
        for method in methods
    ]
    best = table.options[table.best] if table.best else None
    return printed(
        "mitigate",
        rows=rows,
        table=table,
        about=table.about,
        chance=float(table.rows["chance"].iloc[0]),
        best=best,
        conclusion=best and conclude(best.max_skew_change, best.accuracy_change, table.about["max_loss"]),
        parts=format_parts(table.parts, "method"),
        saved=saved,
        changed=best and format_effect(best.max_skew_change),
        lost=best and format_effect(best.accuracy_change, 100, 1),
    )


def _storable(settings: MitigateOptions, table: MitigationTable) -> Option | None:
    """Return the only method, or the best, if weights can hold it; otherwise the best that they can."""
    methods = list(table.options.values())
    if len(settings.method) == 1:
        return None if methods[-1].reason else methods[-1]
    return choose([method for method in methods if not method.reason], settings.max_loss / 100)


def _save(
    settings: MitigateOptions,
    destination: Destination,
    model: Model,
    table: MitigationTable,
    saved: Option | None,
) -> None:
    """Save the model with this method, and print which one it is and why."""
    setup, methods, max_loss = table.about, list(table.options.values()), settings.max_loss / 100
    best = methods[-1] if len(settings.method) == 1 else choose(methods, max_loss)
    obstacle = "" if best is None or best is saved else f" Weights can't hold {best.name}: {best.reason}"
    if saved is None:
        raise InputError(f"Nothing was saved: no recommended method fits into weights.{obstacle}")
    against = objection(saved, max_loss)
    choice = f"It is not recommended: {against}." if against else f"It was chosen among {len(methods) - 1}."
    title = f"{model.name} with {saved.name}"
    datasets = [SOURCES[name].hub for name in (setup["gallery"], setup["preserve"]) if name in SOURCES]
    change_of_weights = as_change(saved.fitted, _measured(table, saved, choice))
    hub_ids = [name for name in datasets if name]
    destination.save(model, change_of_weights, settings.model, title, hub_ids, _eval_results(table, saved))
    print(f"{title}.{obstacle}{f' {choice}' if against else ''}")


def _measured(table: MitigationTable, saved: Option, choice: str) -> list[str]:
    """State the results of the saved method, for the model card."""
    setup, before, chance = table.about, table.options[NOTHING], float(table.rows["chance"].iloc[0])
    gallery, attribute = setup["gallery"], setup["attribute"]
    kind = "new" if setup["fresh"] else "other"
    return [
        f"{saved.name}, fitted on one half of {gallery} by {attribute}: {setup['fitted_on']:,} people and "
        f"{setup['fitted_prompts']} prompts.",
        f"MaxSkew by {attribute} on {setup['held_out']:,} {kind} people and {setup['held_out_prompts']} "
        f"other prompts: "
        f"{in_brackets(before.max_skew)} before, {in_brackets(saved.max_skew)} after, chance {chance:.3f}. "
        f"{choice}",
        f"Accuracy on {setup['preserve']}: {before.accuracy.value:.1%} before, "
        f"{saved.accuracy.value:.1%} after.",
        f"The prompt of a person's own group is the nearest for {before.group_accuracy:.0%} before, "
        f"{saved.group_accuracy:.0%} after, chance {1 / setup['groups']:.0%}.",
    ]


def _eval_results(table: MitigationTable, saved: Option) -> list[EvalResult]:
    """Return the results of the saved method in the Hub's format."""
    setup = table.about
    numbers = {
        (setup["gallery"], "maxskew", f"MaxSkew by {setup['attribute']}"): saved.max_skew.value,
        (setup["preserve"], "accuracy", "Zero-shot accuracy"): saved.accuracy.value,
    }
    return [
        EvalResult(
            task_type="zero-shot-image-classification",
            dataset_type=(SOURCES[data].hub if data in SOURCES else None) or data,
            dataset_name=SOURCES[data].title if data in SOURCES else data,
            metric_type=metric,
            metric_name=name,
            metric_value=round(value, 4),
        )
        for (data, metric, name), value in numbers.items()
    ]


main = Command(
    MitigateOptions,
    mitigate,
    (
        "clip-ccs mitigate --model organism --attribute gender --method projection --method LEACE",
        "clip-ccs mitigate --model DIR --gallery DIR --preserve DIR --out fairer",
        "clip-ccs mitigate --model DIR --gallery DIR --method ablation --repo USER/NAME",
    ),
)

if __name__ == "__main__":
    sys.exit(main())
