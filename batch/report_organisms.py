"""What the paradox looks like on a model whose truth is known: the answers, and the evidence for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from batch import planted_truth as truth
from batch.document import Block, Heading, Items, Text
from batch.report_planted import CONTROL, ORGANISM, organisms, planted_blocks
from batch.report_questions import HURT, LOWERS, QUESTIONS, Tested, Verdict, by_model, verdict
from batch.report_search import found_for, search_blocks
from batch.report_search import said as search_said
from batch.report_truth import said, with_selectivity
from batch.wording import change, in_brackets, interval, listed, p_text
from ccs.results import Results

VERDICTS: Mapping[Verdict, str] = {
    "whole": "The paradox shows in full: without its consistent heads the organism is worse at what it does "
    "and its rankings of people are fairer.",
    "accuracy alone": "Half of the paradox shows: without its consistent heads the organism is worse at what "
    "it does, but that its rankings of people are fairer is not shown. The heads that CCS singles out are "
    "not the ones to switch off against this bias.",
    "skew alone": "Half of the paradox shows: without its consistent heads the organism's rankings of people "
    "are fairer, and that it is worse at what it does than without as many random heads is not shown.",
    "neither": "The paradox does not show: neither a loss of accuracy beyond that of random heads nor fairer "
    "rankings of people follow from switching off the consistent heads.",
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
    lines = [*_learned(found), *_questions(tests), *_carried(found), *_selective(found), *_searched(found)]
    yield Items(tuple(lines))
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


def _carried(found: Mapping[str, Results]) -> Iterator[str]:
    for attribute in truth.SCALES:
        every = truth.carriers(found[ORGANISM], attribute)
        if not every:
            continue
        lowers = truth.lowering(every)
        names = listed([f"{one.head} (CCS {'unknown' if one.ccs is None else one.ccs})" for one in lowers])
        together = said(truth.ccs_and_lowering(found[ORGANISM], every))
        yield (
            f"**Which heads carry it ({attribute})?** Alone, {len(lowers)} of {len(every)} heads lower the "
            f"mean MaxSkew at a false discovery rate of 5%: {names}. More so the higher their CCS: "
            f"{together}."
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
                f"**What does a search for such heads reach ({search.attribute}{whose})?** "
                f"{search_said(search)} On the half it did not see."
            )
