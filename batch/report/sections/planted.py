"""The planted skew beside what a model shows of it: shares, plans, single heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from batch.report import planted_truth as truth
from batch.report.figures import plane
from batch.report.page import Block, Chart, slug, table
from batch.report.sections.correlations import Correlated, with_ccs
from batch.report.sections.questions import CONTROL, ORGANISM
from batch.report.wording import in_brackets, interval, listed, p_text, signed
from ccs.measures.stats import Estimate
from ccs.results import Results
from ccs.world import planted
from ccs.world.vocabulary import OCCUPATIONS

PLANS = ("none", "high", "low", "random")


def organisms(models: Mapping[str, Results]) -> dict[str, Results]:
    """The organism and its control, if their plain faces were ranked."""
    return {
        name: models[name]
        for name in (ORGANISM, CONTROL)
        if name in models and any(truth.mean_skew(models[name], attribute) for attribute in truth.SCALES)
    }


def planted_blocks(found: Mapping[str, Results]) -> Iterator[Block]:
    """Plans, shares and single heads of the organism, beside its control where that was measured."""
    yield from _plans(found)
    for attribute in truth.SCALES:
        yield from _shares(found, attribute)
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
                rho, right = "–", "–"
                aligned = truth.alignment(truth.shares_of(results, attribute, plan), attribute)
                if aligned is not None:
                    rho = f"{aligned.effect.value:+.2f} ({interval(aligned.effect, digits=2)})"
                    right = f"{aligned.right} of {aligned.strong}"
                rows.append(
                    {
                        "attribute": attribute,
                        "model": name,
                        "heads off": plan,
                        "mean MaxSkew": in_brackets(skew[0]),
                        "chance": in_brackets(skew[1]),
                        "rho with the planted lean": rho,
                        "strong directions right": right,
                    }
                )
    yield "### Is the planted skew learned, and does pruning take it away?"
    yield (
        "Plain faces without any cue of an occupation are ranked for each of the 20 occupations. The lean of "
        "a top K is its mean place between men and women, or between light and dark skin; Spearman's "
        "correlation over occupations sets it beside the planted lean. The control saw the same images "
        "with every group as often in every occupation."
    )
    yield table(pd.DataFrame(rows))


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
        wanted, size = planted.shares(occupation, attribute), planted.lean(occupation, attribute)
        row = {"occupation": occupation, "planted lean": f"{size:+d}" if size else "0"}
        for group in groups:
            found_shares = [shares.get(occupation, {}).get(group) for shares in by_model.values()]
            texts = " / ".join(_share(share, chance[group]) for share in found_shares)
            row[group] = f"{100 * wanted[group]:.0f} → {texts}"
        rows.append(row)
    one = chance[groups[0]]
    yield f"### Planted share and share of the top K: {attribute}"
    yield (
        f"Percent, as planted → {' / '.join(by_model)}. A random ranking has {100 * one.value:.0f} of each "
        f"group, in 95% of cases between {100 * one.low:.0f} and {100 * one.high:.0f}; **bold** lies "
        "outside of that."
    )
    yield table(pd.DataFrame(rows))
    points = [
        {"name": name, "x": truth.lean(planted.shares(name, attribute), attribute), "series": model}
        | {"y": truth.lean(shares[name], attribute)}
        for model, shares in by_model.items()
        for name in order
        if name in shares
    ]
    yield Chart(
        f"planted-{slug(attribute)}",
        plane(pd.DataFrame(points), "planted lean", f"lean of the top K (1: all {truth.TOWARDS[attribute]})"),
        f"Each occupation's planted lean and that of its top K, {attribute}.",
    )


def _share(value: float | None, chance: Estimate) -> str:
    if value is None:
        return "–"
    text = f"{100 * value:.0f}"
    return text if chance.low <= value <= chance.high else f"**{text}**"


def ccs_and_lowering(results: Results, every: list[truth.Carrier]) -> Correlated:
    """Do heads of high CCS lower MaxSkew more?"""
    lowered = {one.head: -one.change.value for one in every}
    return with_ccs("CCS with the lowering of MaxSkew", results, lowered)


def _heads(found: Mapping[str, Results], attribute: str) -> Iterator[Block]:
    results = found[ORGANISM]
    every = truth.carriers(results, attribute)
    if not every:
        return
    lowers = truth.lowering(every)
    shown = [one for one in every if one in lowers or one.planted_q < 0.05][:10]
    shown += [one for one in every if one not in shown][: max(0, 5 - len(shown))]
    rows = [
        {
            "head": str(one.head),
            "concept": one.label or "–",
            "CCS": "–" if one.ccs is None else str(one.ccs),
            "change of mean MaxSkew": f"{signed(one.change.value, 3)} ({interval(one.change)})",
            "q": p_text(one.q_value),
            "where strongly planted": signed(one.strong, 3),
            "where none is": signed(one.without, 3),
            "rho with the planted": signed(one.with_planted.value, 2),
            "q of rho": p_text(one.planted_q),
        }
        for one in sorted(shown, key=lambda carrier: carrier.change.value)
    ]
    names = listed([f"{one.head} ({one.label or 'no concept'})" for one in lowers])
    text = (
        f"Each head alone off, {truth.FACES}. Heads that lower the mean MaxSkew by more than chance: "
        f"{len(lowers)} of {len(every)}{f', {names}' if lowers else ''}. A head that carries the planted "
        "skew lowers MaxSkew where skew was planted: rho is the correlation of the lowering with the planted "
        "MaxSkew over occupations. q: false discovery rate over all heads."
    )
    shares = truth.shares_of(results, attribute)
    strong = [name for name in shares if abs(planted.lean(name, attribute)) == 2]
    full = [name for name in strong if max(shares[name].values()) > 0.999]
    if full:
        text += (
            f" In {len(full)} of {len(strong)} strongly planted occupations one group has the whole top K: "
            "MaxSkew is at its ceiling there, and what a single head does to it does not show."
        )
    if CONTROL in found:
        other = truth.carriers(found[CONTROL], attribute)
        text += f" In the control, where none was planted: {len(truth.lowering(other))} of {len(other)}."
    yield f"### Which heads carry the planted skew: {attribute}"
    yield text
    yield table(pd.DataFrame(rows))
    yield f"Do heads of high CCS lower it more? Answer: {ccs_and_lowering(results, every)}."
