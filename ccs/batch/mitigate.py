"""Reduce the bias of a model: `clip-ccs mitigate --model M --gallery G --attribute A --out DIR`."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from huggingface_hub import EvalResult

import ccs
from ccs.analysis.mitigate import MitigationTable, Option, choose, objection
from ccs.analysis.mitigations import METHODS, NOTHING, as_change
from ccs.analysis.task import conclude
from ccs.batch.checkpoint import SaveOptions
from ccs.batch.pages import in_brackets, printed, show
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.data import SOURCES
from ccs.errors import InputError
from ccs.model.model import Model


@dataclass(frozen=True, kw_only=True)
class MitigateOptions(options.GalleryOptions, SaveOptions):
    """Compare ways to reduce a model's bias, recommend one, or none, and save the model with it.

    Each method is fitted on one half of the people and prompts, and measured on the other. The saved model
    has the best method that its weights can hold.

    Examples:
        clip-ccs mitigate --model organism --attribute gender --method projection --method LEACE
        clip-ccs mitigate --model DIR --gallery DIR --preserve DIR --out fairer
        clip-ccs mitigate --model DIR --gallery DIR --method ablation --repo USER/NAME
    """

    max_loss: options.MaxLoss = 2.0
    method: Annotated[
        tuple[str, ...],
        options.ANALYSIS,
        options.describe(f"Methods to compare; repeatable; one alone is saved: {', '.join(METHODS)}", "all"),
    ] = ()
    max_images: Annotated[int, options.DATA, options.at_least(4)] = 400
    """Largest number of images of each dataset"""


def mitigate(settings: MitigateOptions) -> None:
    """Print the table and the recommendation, and save the model."""
    model = ccs.load(settings.model, device=settings.device)
    question = options.arguments(settings, "model", "method", "max_loss", "out", "repo", "public")
    table = ccs.mitigate(
        model,
        **question,
        methods=settings.method or tuple(METHODS),
        max_loss=settings.max_loss / 100,
        tell=partial(print, file=sys.stderr, flush=True),
    )
    rows = [
        {
            "method": method.name,
            "MaxSkew": in_brackets(method.max_skew),
            "its change": in_brackets(method.max_skew_change, sign="+") if method.name != NOTHING else "",
            "accuracy": f"{method.accuracy.value:.1%}",
            "change": f"{100 * method.accuracy_change.value:+.1f}" if method.name != NOTHING else "",
            "group accuracy": f"{method.group_accuracy:.0%}",
            "moved": f"{method.moved:.3f}",
            "in weights": "no" if method.reason else "yes",
        }
        for method in table.options.values()
    ]
    best = table.options[table.best] if table.best else None
    text = printed(
        "mitigate",
        table,
        rows=rows,
        best=best,
        conclusion=best and conclude(best.max_skew_change, best.accuracy_change, table.about["max_loss"]),
    )
    show(text, table)
    if settings.out or settings.repo:
        _save(settings, model, table)


def _save(settings: MitigateOptions, model: Model, table: MitigationTable) -> None:
    """Save the model with the only method, or with the best that weights can hold, and print which it is."""
    methods, max_loss = list(table.options.values()), settings.max_loss / 100
    saved: Option | None = methods[-1]
    if len(settings.method) != 1:
        saved = choose([method for method in methods if not method.reason], max_loss)
    if saved is None:
        raise InputError("Nothing was saved: no recommended method fits into weights.")
    if saved.reason:
        raise InputError(f"Nothing was saved: Weights can't hold {saved.name}: {saved.reason}")
    against = objection(saved, max_loss)
    choice = f"It is not recommended: {against}." if against else f"It was chosen among {len(methods) - 1}."
    title = f"{model.name} with {saved.name}"
    names = (table.about["gallery"], table.about["preserve"])
    hub_ids = [hub for name in names if name in SOURCES and (hub := SOURCES[name].hub)]
    changed = as_change(saved.fitted, _measured(table, saved, choice))
    settings.save(model, changed, title, hub_ids, _eval_results(table, saved))
    print(f"{title}. {choice}")


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
    skew, accuracy = f"MaxSkew by {table.about['attribute']}", "Zero-shot accuracy"
    cases = (
        (table.about["gallery"], "maxskew", skew, saved.max_skew.value),
        (table.about["preserve"], "accuracy", accuracy, saved.accuracy.value),
    )
    results = []
    for data, metric, name, value in cases:
        record = SOURCES.get(data)
        hub, title = (record.hub or data, record.title) if record else (data, data)
        task = "zero-shot-image-classification"
        results.append(EvalResult(task, hub, title, metric, round(value, 4), metric_name=name))
    return results


main = Command(MitigateOptions, mitigate)
