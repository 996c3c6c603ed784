"""The paradox on a model whose truth is known: the answers, and the evidence for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ccs.analysis.search import HeldOut
from ccs.batch.pages import Block, change, filled, in_brackets, interval
from ccs.results import Results
from ccs.results.searches import Search, beside
from research.paper.questions import (
    HURT,
    LOWERS,
    QUESTIONS,
    Tested,
    answers_of,
    by_model,
    strictest,
    tests_of,
)
from research.world import CONTROL, ORGANISM
from research.world import planted_truth as truth
from research.world.shown_skew import ccs_and_lowering, listed, organisms, plan_rows, planted_blocks

TEMPLATES = Path(__file__).with_name("templates")


def organism_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """The page but for what needs the heads' truth, if the organism was measured; nothing otherwise."""
    found = organisms(models)
    if ORGANISM not in found:
        return
    organism, tests = found[ORGANISM], by_model(found)
    said = {one.question: one.answer == "confirmed" for one in strictest(tests) if one.where == ORGANISM}
    own = tests_of(organism)
    yield from filled(
        TEMPLATES,
        "organism",
        said=[said[HURT], said[LOWERS]] if HURT in said and LOWERS in said else [],
        control=CONTROL,
        learned=[_learned(found, attribute) for attribute in truth.SCALES],
        questions=[
            (words, answers_of([one for one in tests if one.question == name]))
            for name, words in QUESTIONS.items()
        ],
        by_set=[
            *_set_by_set(own, HURT, "accuracy falls more than with random heads", "falls less or rises"),
            *_set_by_set(own, LOWERS, "MaxSkew falls", "rises"),
        ],
        carried=[one for attribute in truth.SCALES for one in _carried(organism, attribute)],
        searched=[
            (search.attribute + ("" if name == ORGANISM else f", {name}"), outcome(search))
            for name, results in found.items()
            for search in _searches(results)
        ],
        plans=plan_rows(found),
    )
    yield from planted_blocks(found)


def _learned(found: Mapping[str, Results], attribute: str) -> tuple[object, ...]:
    """The attribute, each model's mean MaxSkew, the chance level, and how rankings go with the planted."""
    skews = {name: truth.mean_skew(results, attribute) for name, results in found.items()}
    known = {name: skew for name, skew in skews.items() if skew is not None}
    means = [f"{name} {in_brackets(skew, 2)}" for name, (skew, _) in known.items()]
    chance = [in_brackets(level, 2) for _, level in known.values()]
    rankings = []
    for name, results in found.items():
        aligned = truth.alignment(truth.shares_of(results, attribute), attribute)
        if aligned is not None:
            rankings.append((name, change(aligned.effect, digits=2), aligned.counted))
    return attribute, means, chance[0] if chance else "–", rankings


def _set_by_set(tests: Sequence[Tested], question: str, words: str, reverse_words: str) -> Iterator[str]:
    """The sets on which the answer is yes or the reverse, by the tests of the model's own section."""
    mine = strictest([one for one in tests if one.question == question])
    yes = [f"{one.where} ({one.figure})" for one in mine if one.answer == "confirmed"]
    reverse = [f"{one.where} ({one.figure})" for one in mine if one.answer == "rejected"]
    if mine:
        text = f"{words} on {listed(yes, f'none of {len(mine)}')}"
        yield text + (f", and {reverse_words} on {listed(reverse)}" if reverse else "")


def _carried(results: Results, attribute: str) -> Iterator[tuple[object, ...]]:
    """The attribute, which heads lower MaxSkew of it, and whether those of higher CCS do so more."""
    every = truth.carriers(results, attribute)
    if len(every):
        lowers = truth.lowering(every)
        named = [
            f"{head} (CCS {'unknown' if ccs is None else ccs})"
            for head, ccs in zip(lowers["head"], lowers["ccs"], strict=True)
        ]
        first = every.iloc[0]
        none = (
            f"none of {len(every)} heads, of which 500 resamples could not have shown one alone; "
            f"{first['head']} changes it most: {first['change']:.3f} ({interval(first['effect'])})"
        )
        heads = f"{len(named)} of {len(every)}: {listed(named)}" if named else none
        yield attribute, heads, ccs_and_lowering(results, every)


def _searches(results: Results) -> Sequence[Search]:
    """The searches kept beside a model's results."""
    weights = str(results.manifest["model"].get("weights_hash", ""))
    return beside(results.folder.parent, results.model, weights)


def outcome(search: Search) -> str:
    """The search's outcome in a sentence or two."""
    by_plan = {one.ablation: one for one in search.held_out}
    answer, high = by_plan.get("searched"), by_plan.get("high")
    if answer is None:
        return "No head helps within these limits."
    text = f"It found {answer.heads}: MaxSkew {_changes(answer)}."
    if high is not None:
        text += f" The {len(high.heads)} high heads: MaxSkew {_changes(high)}."
    for one in search.held_out:
        better = one.max_skew.value <= answer.max_skew.value and one.accuracy.value >= answer.accuracy.value
        if better and one.ablation in ("high", "low", "random"):
            name = f"{one.ablation} {one.seed}" if one.ablation == "random" else one.ablation
            return f"{text} At no lower accuracy {name} does as well, so the search gained nothing."
    return text


def _changes(one: HeldOut) -> str:
    return f"{change(one.max_skew_change)}, accuracy {change(one.accuracy_change, 100, 1)} points"
