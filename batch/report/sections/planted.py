"""The planted skew beside what a model shows of it: shares, plans, single heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from batch.report import planted_truth as truth
from batch.report.figures import plane
from batch.report.page import Block, Chart, Grid, Heading, Text
from batch.report.sections.truth import said
from batch.report.wording import in_brackets, interval, listed, p_text, signed
from ccs.measures.stats import Estimate
from ccs.results import Results
from ccs.world import planted
from ccs.world.vocabulary import OCCUPATIONS

PLANS = ("none", "high", "low", "random")
ORGANISM, CONTROL = "organism", "organism-control"


def organisms(models: Mapping[str, Results]) -> dict[str, Results]:
    """The organism and its control, those of them whose plain faces were ranked."""
    return {
        name: models[name]
        for name in (ORGANISM, CONTROL)
        if name in models and any(truth.mean_skew(models[name], attribute) for attribute in truth.SCALES)
    }


def planted_blocks(models: Mapping[str, Results]) -> Iterator[Block]:
    """All of it, for the organism and its control where they were measured."""
    found = organisms(models)
    if not found:
        return
    yield from _plans(found)
    for attribute in truth.SCALES:
        yield from _shares(found, attribute)
    if ORGANISM in found:
        for attribute in truth.SCALES:
            yield from _heads(found, attribute)


def _plans(found: Mapping[str, Results]) -> Iterator[Block]:
    rows = []
    for attribute in truth.SCALES:
        for name, results in found.items():
            for plan in PLANS if name == ORGANISM else PLANS[:1]:
                skew = truth.mean_skew(results, attribute, plan)
                if skew is None:
                    continue
                aligned = truth.alignment(truth.shares_of(results, attribute, plan), attribute)
                cells = ["–", "–"]
                if aligned is not None:
                    cells = [
                        f"{aligned.effect.value:+.2f} ({interval(aligned.effect, 1, 2)})",
                        f"{aligned.right} of {aligned.strong}",
                    ]
                rows.append([attribute, name, plan, *map(in_brackets, skew), *cells])
    yield Heading(3, "Is the planted skew learned, and does pruning take it away?")
    yield Text(
        "Plain faces without any cue of an occupation are ranked for each of the 20 occupations. The lean of "
        "a top K is its mean place between men and women, or between light and dark skin; Spearman's "
        "correlation over occupations sets it beside the planted lean. The control saw the same pictures "
        "with every group as often in every occupation."
    )
    columns = ["attribute", "model", "heads off", "mean MaxSkew", "chance", "rho with the planted lean"]
    columns.append("strong directions right")
    yield Grid(columns, rows, "", frozenset({"model", "heads off"}))


def _shares(found: Mapping[str, Results], attribute: str) -> Iterator[Block]:
    by_model = {name: truth.shares_of(results, attribute) for name, results in found.items()}
    by_model = {name: shares for name, shares in by_model.items() if shares}
    if not by_model:
        return
    chance = truth.chance_of(found[next(iter(by_model))], attribute)
    groups = list(truth.SCALES[attribute])[: 1 if attribute == "gender" else None]
    order = sorted(OCCUPATIONS, key=lambda name: -planted.lean(name, attribute))
    rows = []
    for occupation in order:
        wanted = planted.shares(occupation, attribute)
        row = [occupation, f"{planted.lean(occupation, attribute):+d}".replace("+0", "0")]
        for group in groups:
            shares = (
                _share(shares.get(occupation, {}).get(group), chance[group]) for shares in by_model.values()
            )
            row.append(f"{100 * wanted[group]:.0f} → {' / '.join(shares)}")
        rows.append(row)
    columns = ["occupation", "planted lean", *groups]
    one = chance[groups[0]]
    yield Heading(3, f"Planted share and share of the top K: {attribute}")
    yield Text(
        f"Percent, as planted → {' / '.join(by_model)}. A random ranking has {100 * one.value:.0f} of each "
        f"group, in 95% of cases between {100 * one.low:.0f} and {100 * one.high:.0f}; **bold** lies "
        "outside of that."
    )
    yield Grid(columns, rows)
    points = [
        (
            occupation,
            truth.lean(planted.shares(occupation, attribute), attribute),
            truth.lean(shares[occupation], attribute),
            name,
        )
        for name, shares in by_model.items()
        for occupation in order
        if occupation in shares
    ]
    yield Chart(
        f"planted-{attribute.replace(' ', '-')}",
        plane(points, "planted lean", f"lean of the top K (1: all {truth.TOWARDS[attribute]})"),
        f"Each occupation's planted lean and that of its top K, {attribute}.",
    )


def _share(value: float | None, chance: Estimate) -> str:
    if value is None:
        return "–"
    text = f"{100 * value:.0f}"
    return text if chance.low <= value <= chance.high else f"**{text}**"


def _heads(found: Mapping[str, Results], attribute: str) -> Iterator[Block]:
    results = found[ORGANISM]
    every = truth.carriers(results, attribute)
    if not every:
        return
    lowers = truth.lowering(every)
    shown = [one for one in every if one in lowers or one.planted_q < 0.05][:10]
    shown += [one for one in every if one not in shown][: max(0, 5 - len(shown))]
    rows = []
    for one in sorted(shown, key=lambda carrier: carrier.change.value):
        both = one.with_planted
        rows.append(
            [
                str(one.head),
                one.label or "–",
                "–" if one.ccs is None else str(one.ccs),
                f"{signed(one.change.value, 3)} ({interval(one.change)})",
                p_text(one.q_value),
                signed(one.strong, 3),
                signed(one.without, 3),
                f"{both.value:+.2f}" if np.isfinite(both.value) else "–",
                p_text(one.planted_q),
            ]
        )
    yield Heading(3, f"Which heads carry the planted skew: {attribute}")
    text = (
        f"Each head alone off, {truth.FACES}. {_named(lowers, len(every))} A head that carries the planted "
        "skew lowers MaxSkew where skew was planted: rho is that of the lowering with the planted MaxSkew "
        "over occupations. q: false discovery rate over all heads."
    )
    text += _ceiling(truth.shares_of(results, attribute), attribute)
    if CONTROL in found:
        other = truth.carriers(found[CONTROL], attribute)
        text += (
            f" In the control, where none was planted, {len(truth.lowering(other))} of {len(other)} lower it."
        )
    yield Text(text)
    columns = ["head", "concept", "CCS", "change of mean MaxSkew", "q", "where strongly planted"]
    columns += ["where none is", "rho with the planted", "q of rho"]
    yield Grid(columns, rows, "", frozenset({"concept"}))
    yield Text(f"Do heads of high CCS lower it more? Answer: {said(truth.ccs_and_lowering(results, every))}.")


def _ceiling(shares: truth.Shares, attribute: str) -> str:
    strong = [name for name in shares if abs(planted.lean(name, attribute)) == 2]
    full = [name for name in strong if max(shares[name].values()) > 0.999]
    if not full:
        return ""
    return (
        f" In {len(full)} of {len(strong)} strongly planted occupations one group has the whole top K: "
        "MaxSkew is at its ceiling there, and what a single head does to it does not show."
    )


def _named(lowers: list[truth.Carrier], of: int) -> str:
    if not lowers:
        return f"None of {of} heads lowers the mean MaxSkew by more than chance explains."
    names = listed([f"{one.head} ({one.label or 'no concept'})" for one in lowers])
    return f"{len(lowers)} of {of} heads lower{'s' * (len(lowers) == 1)} the mean MaxSkew: {names}."
