"""The paradox on a model whose truth is known: the answers, and the evidence for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from batch.report import planted_truth as truth
from batch.report.page import Block, fill
from batch.report.sections.correlations import with_selectivity
from batch.report.sections.planted import ccs_and_lowering, organisms, plan_rows, planted_blocks
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
    organism = found[ORGANISM]
    findings = [*_learned(found), *_questions(tests), *_set_by_set(organism), *_carried(organism)]
    findings += [*_selective(found), *_searched(found)]
    verdict = _verdict([one for one in tests if one.where == ORGANISM])
    yield from fill("organism", verdict=verdict, findings=findings, plans=plan_rows(found))
    yield from planted_blocks(found)
    for results in found.values():
        yield from search_blocks(results)


def _verdict(tests: Sequence[Tested]) -> str:
    """Do the organism's consistent heads carry its accuracy, and its skew? Empty where not tested."""
    said = {one.question: one.answer == "yes" for one in tests}
    if HURT not in said or LOWERS not in said:
        return ""
    extent = ("neither half", "half", "the whole")[said[HURT] + said[LOWERS]]
    hurt, lowers = ("shown" if said[question] else "not shown" for question in (HURT, LOWERS))
    return (
        f"**Averaged over its sets, {extent} of the paradox shows: it is {hurt} that the organism is worse "
        f"without its consistent heads than without random ones, and it is {lowers} that its rankings of "
        "people are fairer without them.**"
    )


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
                f"({interval(effect, digits=2)}, p {p_text(effect.p_value)}); {aligned.counted} strongly "
                "planted occupations lean the planted way."
            )
        yield text


def _questions(tests: Sequence[Tested]) -> Iterator[str]:
    for question in (HURT, LOWERS):
        mine = [one for one in tests if one.question == question]
        parts = [
            f"{one.where}: {one.answer}, "
            f"{change(one.effect, digits=one.digits, adjusted=one.adjusted, unit=one.unit)}"
            for one in mine
        ]
        if parts:
            yield f"**{QUESTIONS[question]}** {'; '.join(parts)}."


def _set_by_set(results: Results) -> Iterator[str]:
    """The sets on which the answer is yes or the reverse, by the tests of the model's own section."""
    tests = tests_of(results)
    parts = []
    for question, words, reverse_words in (
        (HURT, "accuracy falls more than with random heads", "falls less or rises"),
        (LOWERS, "MaxSkew falls", "rises"),
    ):
        mine = [one for one in tests if one.question == question]
        yes = [f"{one.where} ({one.figure})" for one in mine if one.answer == "yes"]
        reverse = [f"{one.where} ({one.figure})" for one in mine if one.answer == "no, the reverse"]
        if mine:
            text = f"{words} on {listed(yes, f'none of {len(mine)}')}"
            parts.append(text + (f", and {reverse_words} on {listed(reverse)}" if reverse else ""))
    if parts:
        yield f"**Set by set** (Holm over the {len(tests)} tests of its own section): {'; '.join(parts)}."


def _carried(results: Results) -> Iterator[str]:
    for attribute in truth.SCALES:
        every = truth.carriers(results, attribute)
        if not len(every):
            continue
        lowers = truth.lowering(every)
        named = [
            f"{head} (CCS {'unknown' if ccs is None else ccs})"
            for head, ccs in zip(lowers["head"], lowers["ccs"], strict=True)
        ]
        heads = f"{len(named)} of {len(every)}: {listed(named)}" if named else f"none of {len(every)} heads"
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
