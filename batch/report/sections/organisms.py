"""The paradox on a model whose truth is known: the answers, and the evidence for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from batch.report import planted_truth as truth
from batch.report.page import Block, listing
from batch.report.sections.correlations import with_selectivity
from batch.report.sections.planted import ccs_and_lowering, organisms, planted_blocks
from batch.report.sections.questions import (
    CONTROL,
    HURT,
    LOWERS,
    ORGANISM,
    QUESTIONS,
    Tested,
    by_model,
    tests_of,
)
from batch.report.sections.search import found_for, outcome, search_blocks
from batch.report.wording import change, in_brackets, interval, listed, p_text
from ccs.results import Results


def organism_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """The section, if the organism was measured; nothing otherwise."""
    found = organisms(models)
    if ORGANISM not in found:
        return
    tests = by_model(found)
    yield "## What the paradox looks like on a model where the truth is known"
    yield (
        "The organism is a small CLIP trained on a drawn world in which occupations go with gender "
        "presentation and skin tone as a table says; its control had the same training without that skew. "
        "So it is known which rankings are biased, by how much, and what every image holds. The study's "
        "models cannot say this. Scores are of one small model, and of judges that the model's own "
        "section names."
    )
    shown = verdict(tests, ORGANISM)
    if shown is not None:
        yield f"**{shown}**"
    lines = [*_learned(found), *_questions(tests), *_set_by_set(found[ORGANISM]), *_carried(found[ORGANISM])]
    yield listing([*lines, *_selective(found), *_searched(found)])
    yield from planted_blocks(found)
    for results in found.values():
        yield from search_blocks(results)


def verdict(tests: Sequence[Tested], model: str) -> str | None:
    """Do a model's consistent heads carry its accuracy, and its skew? None where that was not tested."""
    said = {one.question: one.answer == "yes" for one in tests if one.where == model}
    if HURT not in said or LOWERS not in said:
        return None
    halves = [
        (said[HURT], f"that the {model} is worse without its consistent heads than without random ones"),
        (said[LOWERS], "that its rankings of people are fairer without them"),
    ]
    extent = ("neither half", "half", "the whole")[sum(shown for shown, _ in halves)]
    parts = [f"it is {'' if shown else 'not '}shown {words}" for shown, words in halves]
    return f"Averaged over its sets, {extent} of the paradox shows: {', and '.join(parts)}."


def _learned(found: Mapping[str, Results]) -> Iterator[str]:
    for attribute in truth.SCALES:
        skews = {name: truth.mean_skew(results, attribute) for name, results in found.items()}
        known = {name: skew for name, skew in skews.items() if skew is not None}
        if not known:
            continue
        parts = [f"{name} {in_brackets(skew, 2)}" for name, (skew, _) in known.items()]
        chance = in_brackets(next(iter(known.values()))[1], 2)
        text = f"**Was the skew learned ({attribute})?** Mean MaxSkew: {', '.join(parts)}; chance {chance}."
        for name, results in found.items():
            aligned = truth.alignment(truth.shares_of(results, attribute), attribute)
            if aligned is None:
                continue
            effect = aligned.effect
            whose = ", which never saw the planted skew" * (name == CONTROL)
            text += (
                f" Rankings of the {name}{whose}: rho with the planted lean {effect.value:+.2f} "
                f"({interval(effect, digits=2)}, p {p_text(effect.p_value)}); {aligned.right} of "
                f"{aligned.strong} strongly planted occupations lean the planted way."
            )
        yield text


def _questions(tests: Sequence[Tested]) -> Iterator[str]:
    for question in (HURT, LOWERS):
        parts = [
            f"{one.where}: {one.answer}, {change(one.effect, one.scale, one.digits, one.adjusted, one.unit)}"
            for one in tests
            if one.question == question
        ]
        if parts:
            yield f"**{QUESTIONS[question]}** {'; '.join(parts)}."


def _set_by_set(results: Results) -> Iterator[str]:
    """The sets on which the answer is yes or the reverse, by the tests of the model's own section."""
    tests = tests_of(results)
    parts = []
    for question, words in (
        (HURT, ("accuracy falls more than with random heads", "falls less or rises")),
        (LOWERS, ("MaxSkew falls", "rises")),
    ):
        mine = [one for one in tests if one.question == question]
        yes, reverse = (
            [f"{one.where} ({one.figure})" for one in mine if one.answer == answer]
            for answer in ("yes", "no, the reverse")
        )
        if mine:
            text = f"{words[0]} on {listed(yes, f'none of {len(mine)}')}"
            parts.append(text + (f", and {words[1]} on {listed(reverse)}" if reverse else ""))
    if parts:
        yield f"**Set by set** (Holm over the {len(tests)} tests of its own section): {'; '.join(parts)}."


def _carried(results: Results) -> Iterator[str]:
    for attribute in truth.SCALES:
        every = truth.carriers(results, attribute)
        if not every:
            continue
        lowers = truth.lowering(every)
        named = listed([f"{one.head} (CCS {'unknown' if one.ccs is None else one.ccs})" for one in lowers])
        heads = f"{len(lowers)} of {len(every)}: {named}" if lowers else f"none of {len(every)} heads"
        yield (
            f"**Which heads carry it ({attribute})?** MaxSkew falls, at a false discovery rate of 5%, for "
            f"{heads} switched off alone. Does it fall more for heads of higher CCS? "
            f"{ccs_and_lowering(results, every)}."
        )


def _selective(found: Mapping[str, Results]) -> Iterator[str]:
    parts = []
    for name, results in found.items():
        answers = [f"{one} for {one.name.partition(' for ')[2]}" for one in with_selectivity(results)]
        if answers:
            parts.append(f"{name}: {', '.join(answers)}")
    if parts:
        yield (
            "**Does CCS measure what it says, that a head is about one thing?** By its correlation with the "
            f"head's selectivity: {'; '.join(parts)}."
        )


def _searched(found: Mapping[str, Results]) -> Iterator[str]:
    for name, results in found.items():
        for search in found_for(results)[0]:
            whose = "" if name == ORGANISM else f", {name}"
            yield (
                "**What does a search for such heads reach, on the half that it did not see "
                f"({search.attribute}{whose})?** {outcome(search)}"
            )
