"""What the paradox looks like on a model whose truth is known: the answers, and the evidence for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from batch.report import planted_truth as truth
from batch.report.page import Block, Heading, Items, Text
from batch.report.sections.planted import CONTROL, ORGANISM, organisms, planted_blocks
from batch.report.sections.questions import (
    HURT,
    LOWERS,
    QUESTIONS,
    Tested,
    Verdict,
    by_model,
    tests_of,
    verdict,
)
from batch.report.sections.search import found_for, search_blocks
from batch.report.sections.search import said as search_said
from batch.report.sections.truth import said, with_selectivity
from batch.report.wording import change, in_brackets, interval, listed, p_text, signed
from ccs.results import Results

VERDICTS: Mapping[Verdict, str] = {
    "whole": "Averaged over its sets, the paradox shows in full: without its consistent heads the organism "
    "is worse at what it does than without as many random ones, and its rankings of people are fairer.",
    "accuracy alone": "Averaged over its sets, half of the paradox shows: without its consistent heads the "
    "organism is worse at what it does than without as many random ones; that its rankings of people are "
    "fairer is not shown.",
    "skew alone": "Averaged over its sets, half of the paradox shows: without its consistent heads the "
    "organism's rankings of people are fairer; that it is worse at what it does than without as many "
    "random ones is not shown.",
    "neither": "Averaged over its sets, neither half of the paradox is shown: not that the organism is worse "
    "at what it does without its consistent heads than without as many random ones, nor that its rankings of "
    "people are fairer.",
}


def organism_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """The section, where the organism was measured; nothing otherwise."""
    found = organisms(models)
    if ORGANISM not in found:
        return
    tests = by_model(found)
    yield Heading(2, "What the paradox looks like on a model where the truth is known")
    yield Text(
        "The organism is a small CLIP trained on a drawn world in which occupations go with gender "
        "presentation and skin tone as a table says; its control had the same training without that skew. "
        "So it is known which rankings are biased, by how much, and what every picture holds. The study's "
        "models cannot say this. Scores are of one small model, and of judges that the model's own "
        "section names."
    )
    outcome = verdict(tests, ORGANISM)
    if outcome is not None:
        yield Text(f"**{VERDICTS[outcome]}**")
    lines = [*_learned(found), *_questions(tests), *_set_by_set(found), *_carried(found), *_selective(found)]
    yield Items((*lines, *_searched(found)))
    yield from planted_blocks(models)
    for name, results in found.items():
        yield from search_blocks(name, results)


def _learned(found: Mapping[str, Results]) -> Iterator[str]:
    for attribute in truth.SCALES:
        parts = []
        for name, results in found.items():
            skew = truth.mean_skew(results, attribute)
            if skew is None:
                continue
            parts.append(f"{name} {in_brackets(skew[0], 2)}")
            chance = in_brackets(skew[1], 2)
        if not parts:
            continue
        text = f"**Was the skew learned ({attribute})?** Mean MaxSkew: {', '.join(parts)}; chance {chance}."
        aligned = truth.alignment(truth.shares_of(found[ORGANISM], attribute), attribute)
        if aligned is not None:
            effect = aligned.effect
            text += (
                f" The organism's rankings lean as planted with rho {effect.value:+.2f} "
                f"({interval(effect, 1, 2)}, p {p_text(effect.p_value)}); {aligned.right} of "
                f"{aligned.strong} strongly planted occupations lean the planted way."
            )
        other = CONTROL in found and truth.alignment(truth.shares_of(found[CONTROL], attribute), attribute)
        if other:
            text += (
                " The control's, which never saw the planted skew: "
                f"rho {other.effect.value:+.2f} ({interval(other.effect, 1, 2)})."
            )
        yield text


def _questions(tests: Sequence[Tested]) -> Iterator[str]:
    for question in (HURT, LOWERS):
        parts = []
        for one in tests:
            if one.question == question:
                unit = " points" if one.scale > 1 else ""
                figures = change(one.effect, one.scale, one.digits, one.adjusted).replace(
                    " (", f"{unit} (", 1
                )
                parts.append(f"{one.where}: {one.answer}, {figures}")
        if parts:
            yield f"**{QUESTIONS[question]}** {'; '.join(parts)}."


def _set_by_set(found: Mapping[str, Results]) -> Iterator[str]:
    """Where the answer is the same or the reverse on single sets, by the tests of the model's own section."""
    parts = []
    tests = tests_of(found[ORGANISM])
    for question, lower, higher in (
        (HURT, "accuracy falls more than with random heads", "falls less or rises"),
        (LOWERS, "MaxSkew falls", "rises"),
    ):
        mine = [one for one in tests if one.question == question]
        words = []
        for answer, verb in (("yes", lower), ("no, the reverse", higher)):
            sets = [
                f"{one.where} ({signed(one.effect.value, one.digits, one.scale)})"
                for one in mine
                if one.answer == answer
            ]
            if sets or answer == "yes":
                words.append(f"{verb} on {listed(sets, f'none of {len(mine)}')}")
        if mine:
            parts.append(", and ".join(words))
    if parts:
        yield f"**Set by set** (Holm over the {len(tests)} tests of its own section): {'; '.join(parts)}."


def _carried(found: Mapping[str, Results]) -> Iterator[str]:
    for attribute in truth.SCALES:
        every = truth.carriers(found[ORGANISM], attribute)
        if not every:
            continue
        lowers = truth.lowering(every)
        named = listed([f"{one.head} (CCS {'unknown' if one.ccs is None else one.ccs})" for one in lowers])
        found_heads = f"{len(lowers)} of {len(every)}: {named}" if lowers else f"none of {len(every)} heads"
        yield (
            f"**Which heads carry it ({attribute})?** Switched off alone, MaxSkew falls at a false "
            f"discovery rate of 5% for {found_heads}. Does it fall more for heads of higher CCS? "
            f"{said(truth.ccs_and_lowering(found[ORGANISM], every))}."
        )


def _selective(found: Mapping[str, Results]) -> Iterator[str]:
    parts = []
    for name, results in found.items():
        answers = [
            f"{said(one)} for {one.name.removeprefix('CCS with selectivity for ')}"
            for one in with_selectivity(results)
        ]
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
            whose = "" if name == ORGANISM else f", {CONTROL}"
            yield (
                "**What does a search for such heads reach, on the half that it did not see "
                f"({search.attribute}{whose})?** {search_said(search)}"
            )
