"""The paradox on a model whose truth is known: the answers, and the evidence for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batch.report import planted_truth as truth
from batch.report.page import Block, fill
from batch.report.sections.correlations import Correlated, with_selectivity
from batch.report.sections.planted import ccs_and_lowering, organisms, plan_rows, planted_blocks
from batch.report.sections.questions import (
    CONTROL,
    HURT,
    LOWERS,
    MORE,
    ORGANISM,
    QUESTIONS,
    Tested,
    answers_of,
    by_model,
    strictest,
    tests_of,
)
from batch.report.sections.search import found_for, outcome, search_blocks
from batch.report.wording import change, in_brackets, listed, signed
from ccs.measures import stats
from ccs.results import Results
from ccs.texts.score import level

CONSISTENT = "Do heads with a higher CCS vary more with what their label names?"


def organism_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """The section, if the organism was measured; nothing otherwise."""
    found = organisms(models)
    if ORGANISM not in found:
        return
    organism, tests = found[ORGANISM], by_model(found)
    said = {one.question: one.answer == "yes" for one in strictest(tests) if one.where == ORGANISM}
    own = tests_of(organism)
    yield from fill(
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
        selective=_selective(found),
        searched=[
            (search.attribute + ("" if name == ORGANISM else f", {name}"), outcome(search))
            for name, results in found.items()
            for search in found_for(results)[0]
        ],
        plans=plan_rows(found),
    )
    yield from planted_blocks(found)
    for results in found.values():
        yield from search_blocks(results)


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
    yes = [f"{one.where} ({one.figure})" for one in mine if one.answer == "yes"]
    reverse = [f"{one.where} ({one.figure})" for one in mine if one.answer == "no, the reverse"]
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
        heads = f"{len(named)} of {len(every)}: {listed(named)}" if named else f"none of {len(every)} heads"
        yield attribute, heads, ccs_and_lowering(results, every)


def _selective(found: Mapping[str, Results]) -> list[str]:
    """For each model: does CCS correlate with selectivity, and still given layer and variance?"""
    parts = []
    for name, results in found.items():
        both = with_selectivity(results)
        answers = [together(*pair) for pair in zip(both[::2], both[1::2], strict=True)]
        if answers:
            parts.append(f"{name}: {', '.join(answers)}")
    return parts


def together(plain: Correlated, alone: Correlated) -> str:
    """A correlation and its partial one as one answer, which is what both say, else "not shown"."""
    what = plain.name.partition(" for ")[2]
    figures = f"{plain.figures}; given layer and variance {alone.figures}; {plain.n} heads"
    return f"{_both(plain, alone)} for {what} ({figures})"


def _both(plain: Correlated, alone: Correlated) -> str:
    said = {one.answer for one in (plain, alone)}
    return said.pop() if len(said) == 1 else "not shown"


def answers(models: Mapping[str, Results]) -> str:
    """The answers that the README gives, a list in Markdown; "" without the organism."""
    found = organisms(models)
    if ORGANISM not in found:
        return ""
    tests = strictest(by_model(found))
    asked: dict[str, list[str]] = {}
    for name, results in found.items():
        if both := with_selectivity(results)[:2]:
            figure = signed(both[0].effect.value, 2)
            asked.setdefault(CONSISTENT, []).append(f"{name}: {_both(*both)} (rho {figure})")
        for one in tests:
            if one.where == name and one.question in (HURT, MORE):
                power = f"; 80% power from {one.detectable}{one.unit}" if one.answer == "not shown" else ""
                said = f"{name}: {one.answer} ({one.figure}{one.unit}{power})"
                asked.setdefault(QUESTIONS[one.question], []).append(said)
    return "\n".join(f"- **{question}** {'; '.join(parts)}." for question, parts in asked.items())


_SHOWN = ("accuracy", *(f"{what} {attribute}" for what in ("MaxSkew", "gap") for attribute in truth.SCALES))


def training_blocks(trained: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The spread between trainings, in which the models that ship are marked; nothing without trainings."""
    again = [one for one in trained if one["seed"]]
    if not again:
        return []
    own = {model: [one for one in trained if one["name"] == model] for model in (ORGANISM, CONTROL)}
    figures: list[dict[str, str]] = []
    for plan, words in (("none", "nothing off"), ("high", "change with the high heads off")):
        for name in _SHOWN:
            row = {"figure": name, "heads": words}
            for model in own:
                row |= _spread(own[model], model, plan, name)
            figures.append(row)
    return fill(
        "trainings",
        figures=figures,
        answer=over_trainings(trained),
        n=len({one["seed"] for one in again}),
        shared=f"{again[0]['shared']:,}",
        own=f"{again[0]['own']:,}",
        high=[_often_high(one) for one in own.values()],
    )


def over_trainings(trained: Sequence[Mapping[str, Any]]) -> str:
    """The effect of switching the high heads off in the organism's trainings; "" with fewer than two."""
    own = [one for one in trained if one["name"] == ORGANISM and one["seed"]]
    if len(own) < 2:
        return ""
    parts: dict[str, list[str]] = {"Rises": [], "Falls": [], "Not shown to change": []}
    for name in _SHOWN:
        scale, digits = (100, 1) if name == "accuracy" else (1, 3)
        found = stats.over_seeds([scale * (one["high"][name] - one["none"][name]) for one in own])
        said = "Rises" if found.low > 0 else "Falls" if found.high < 0 else "Not shown to change"
        around = f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"
        parts[said].append(f"{name} ({found.value:+.{digits}f}, {around})")
    told = " ".join(f"{said}: {', '.join(names)}." for said, names in parts.items() if names)
    return f"**What changes with the high heads off in {len(own)} shorter trainings of the organism?** {told}"


def _spread(own: Sequence[Mapping[str, Any]], model: str, plan: str, figure: str) -> dict[str, str]:
    """The mean over a model's trainings with its interval between them, and where the shipped one stands."""
    scale, digits = (100, 1) if figure == "accuracy" else (1, 3)
    values = {
        one["seed"]: scale * (one[plan][figure] - (one["none"][figure] if plan != "none" else 0))
        for one in own
    }
    shipped, seeds = values.pop(0, None), sorted(values.values())
    cells = {model: in_brackets(stats.over_seeds(seeds), digits) if seeds else "–", f"{model}, shipped": "–"}
    if shipped is not None:
        below = sum(value < shipped for value in seeds)
        cells[f"{model}, shipped"] = f"{shipped:.{digits}f} ({below} of {len(seeds)} below)"
    return cells


def _often_high(own: Sequence[Mapping[str, Any]]) -> str:
    """In how many of a model's trainings each head has a high CCS; in bold those high in the shipped one."""
    high = {one["seed"]: [h for h, ccs in one["ccs"].items() if level(ccs, 5) == "high"] for one in own}
    shipped = high.pop(0, [])
    often = Counter(head for heads in high.values() for head in heads)
    said = [
        f"{f'**{head}**' if head in shipped else head} {often[head]} of {len(high)}"
        for head in sorted({*often, *shipped}, key=lambda head: (-often[head], head))
    ]
    return f"{own[0]['name'] if own else ''}: {', '.join(said) or 'none ever is'}"
