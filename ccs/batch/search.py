"""Find the smallest ablation that lowers MaxSkew: `clip-ccs search --model M --gallery G`."""

from dataclasses import dataclass
from typing import Annotated

import ccs
from ccs import results
from ccs.analysis.search import Limits
from ccs.batch.pages import in_brackets, p_text, printed, show
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.errors import InputError
from ccs.metrics.stats import minimum_detectable
from ccs.results import searches
from ccs.results.searches import Search


@dataclass(frozen=True, kw_only=True)
class SearchOptions(options.GalleryOptions):
    """Find the smallest ablation that lowers MaxSkew at a bounded loss of accuracy.

    It is chosen on one half of the prompts and images, and measured on the other.

    Examples:
        clip-ccs search --model organism --attribute gender
        clip-ccs search --model DIR --gallery DIR --preserve DIR --max-heads 4
    """

    max_loss: options.MaxLoss = 2.0
    max_heads: Annotated[int, options.ANALYSIS, options.at_least(1)] = 8
    """Largest number of heads"""
    results: options.ResultsFolder = None
    save: Annotated[bool, options.OUTPUT] = False
    """Save the ablation in --results, so that the app shows it"""


def find_ablation(settings: SearchOptions) -> None:
    """Print the ablation and its effects, and save it."""
    tables = settings.results or results.default_folder()
    limits = Limits(max_loss=settings.max_loss / 100, max_heads=settings.max_heads)
    if settings.save and not options.to_folder(str(tables)).is_dir():
        raise InputError(f"--results {tables} does not exist; compute it, or leave out --save.")
    model = ccs.load(settings.model, device=settings.device)
    question = options.arguments(settings, "model", "max_loss", "max_heads", "results", "save")
    table = ccs.search(model, **question, limits=limits, tell=print)
    unseen = table.outcome.held_out
    answer = next((held_out for held_out in unseen if held_out.ablation == "searched"), unseen[0])
    rows = [
        {
            "set": held_out.ablation,
            "heads": str(len(held_out.heads)),
            "MaxSkew": in_brackets(held_out.max_skew),
            "its change": in_brackets(held_out.max_skew_change, sign="+"),
            "p": p_text(held_out.max_skew_change.p_value),
            "accuracy": in_brackets(held_out.accuracy),
            "change of accuracy": in_brackets(held_out.accuracy_change, sign="+"),
        }
        for held_out in unseen
    ]
    detectable = minimum_detectable(answer.max_skew_change)
    show(printed("search", table, rows=rows, answer=answer, detectable=detectable), table)
    if settings.save:
        setup = table.about
        shared = {name: setup[name] for name in ("gallery", "attribute", "preserve", "templates", "k")}
        shared |= {"model": model.name, "weights_hash": model.weights_hash, "prompts": setup["occupations"]}
        saved = Search(**shared, seed=settings.seed, limits=limits, **vars(table.outcome))
        print(f"Saved to {searches.keep(tables, saved)}.")


main = Command(SearchOptions, find_ablation)
