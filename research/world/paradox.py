"""Write findings.md: the paper's claims on a model with a known bias, answers first, then the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ccs.analysis.task import HeldOut
from ccs.batch.pages import Block, filled, format_effect, in_brackets, interval
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
from research.world.shown_skew import ablation_rows, ccs_and_lowering, listed, organisms, planted_blocks

TEMPLATES = Path(__file__).with_name("templates")


def organism_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """Write the sections that need no known heads; nothing if there are no results of organism."""
    results_by_model = organisms(models)
    if ORGANISM not in results_by_model:
        return
    organism, tests = results_by_model[ORGANISM], by_model(results_by_model)
    confirmed = {
        test.question: test.answer == "confirmed" for test in strictest(tests) if test.subject == ORGANISM
    }
    organism_tests = tests_of(organism)
    yield from filled(
        TEMPLATES,
        "organism",
        confirmed=[confirmed[HURT], confirmed[LOWERS]] if HURT in confirmed and LOWERS in confirmed else [],
        control=CONTROL,
        learned=[_learned(results_by_model, attribute) for attribute in truth.SCALES],
        questions=[
            (words, answers_of([test for test in tests if test.question == name]))
            for name, words in QUESTIONS.items()
        ],
        by_set=[
            *_set_by_set(
                organism_tests, HURT, "accuracy falls more than with random heads", "falls less or rises"
            ),
            *_set_by_set(organism_tests, LOWERS, "MaxSkew falls", "rises"),
        ],
        carried=[row for attribute in truth.SCALES for row in _carried(organism, attribute)],
        searched=[
            (search.attribute + ("" if name == ORGANISM else f", {name}"), outcome(search))
            for name, results in results_by_model.items()
            for search in _searches(results)
        ],
        ablations=ablation_rows(results_by_model),
    )
    yield from planted_blocks(results_by_model)


def _learned(results_by_model: Mapping[str, Results], attribute: str) -> tuple[object, ...]:
    """Return each model's MaxSkew by an attribute, chance, and the correlation with the planted bias."""
    skews = {name: truth.mean_skew(results, attribute) for name, results in results_by_model.items()}
    known = {name: skew for name, skew in skews.items() if skew is not None}
    means = [f"{name} {in_brackets(skew, 2)}" for name, (skew, _) in known.items()]
    chance = [in_brackets(level, 2) for _, level in known.values()]
    rankings = []
    for name, results in results_by_model.items():
        aligned = truth.alignment(truth.shares_of(results, attribute), attribute)
        if aligned is not None:
            rankings.append((name, format_effect(aligned.effect, digits=2), aligned.counted))
    return attribute, means, chance[0] if chance else "–", rankings


def _set_by_set(tests: Sequence[Tested], question: str, words: str, reverse_words: str) -> Iterator[str]:
    """List the datasets with a significant effect in the expected direction, and in the other one."""
    answered = strictest([test for test in tests if test.question == question])
    yes = [f"{test.subject} ({test.figure})" for test in answered if test.answer == "confirmed"]
    reverse = [f"{test.subject} ({test.figure})" for test in answered if test.answer == "rejected"]
    if answered:
        text = f"{words} on {listed(yes, f'none of {len(answered)}')}"
        yield text + (f", and {reverse_words} on {listed(reverse)}" if reverse else "")


def _carried(results: Results, attribute: str) -> Iterator[tuple[object, ...]]:
    """Return the heads that lower MaxSkew by an attribute, and the correlation of that with CCS."""
    all_heads = truth.carriers(results, attribute)
    if len(all_heads):
        lowers = truth.lowering(all_heads)
        lowering_heads = [
            f"{head} (CCS {'unknown' if ccs is None else ccs})"
            for head, ccs in zip(lowers["head"], lowers["ccs"], strict=True)
        ]
        first = all_heads.iloc[0]
        none = (
            f"none of {len(all_heads)} heads (with 500 resamples, p is too coarse to detect a single head); "
            f"largest reduction by {first['head']}: {first['change']:.3f} ({interval(first['effect'])})"
        )
        heads = (
            f"{len(lowering_heads)} of {len(all_heads)}: {listed(lowering_heads)}" if lowering_heads else none
        )
        yield attribute, heads, ccs_and_lowering(results, all_heads)


def _searches(results: Results) -> Sequence[Search]:
    """Read the searches stored next to a model's results."""
    weights = str(results.manifest["model"].get("weights_hash", ""))
    return beside(results.folder.parent, results.model, weights)


def outcome(search: Search) -> str:
    """Describe the search's result in a sentence or two."""
    by_ablation = {result.ablation: result for result in search.held_out}
    answer, high = by_ablation.get("searched"), by_ablation.get("high")
    if answer is None:
        return "No set of heads meets the limits of the search."
    text = f"It selects {answer.heads}: MaxSkew {_changes(answer)}."
    if high is not None:
        text += f" The {len(high.heads)} high-CCS heads: MaxSkew {_changes(high)}."
    for result in search.held_out:
        better = (
            result.max_skew.value <= answer.max_skew.value and result.accuracy.value >= answer.accuracy.value
        )
        if better and result.ablation in ("high", "low", "random"):
            name = f"{result.ablation} {result.seed}" if result.ablation == "random" else result.ablation
            return (
                f"{text} The set `{name}` has no higher MaxSkew and no lower accuracy, so the search "
                "isn't better."
            )
    return text


def _changes(result: HeldOut) -> str:
    accuracy = format_effect(result.accuracy_change, 100, 1)
    return f"{format_effect(result.max_skew_change)}, accuracy {accuracy} points"
