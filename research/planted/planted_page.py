"""planted.md: the family, what it shows with heads off, and what follows for the study's questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from batch.report.document import Block, filled
from batch.report.wording import interval, signed
from ccs import results
from ccs.plans import PlanName
from ccs.results import queries
from research.planted import planted_cases as study
from research.planted.bench import ATTRIBUTES, RANDOM, Row
from research.planted.family import BASE, EACH, PICTURES, Planted, family
from research.world.planted_truth import FACES

WHATS = {
    "both": "gender and skin tone",
    "apart": "gender, skin tone: heads of their own",
    "nothing": "nothing: a control",
    "one each": "a concept in each head",
    "its own": "each head's own concept alone",
}


def blocks(held: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """The page, of the rows that `research.planted` measured."""
    models = _planted(held)
    rows = [row for one in models.values() for row in one["rows"]]
    heads = [row for one in models.values() for row in one["heads"]]
    found = study.cases(rows, heads)
    base = {row["plan"]: row for row in held[BASE]["rows"]}["none"]
    return filled(
        Path(__file__).with_name("templates"),
        "planted",
        pictures=f"{PICTURES:,}",
        concept_pictures=f"{max(one.pictures for one in family()):,}",
        random=RANDOM,
        members=[_member(one, models) for one in family() if one.name in models],
        skews=[_skew(name, one["rows"], a, base) for name, one in models.items() for a in _shown(one)],
        accuracies=_accuracies(models, base),
        left=_left(models, base),
        when=study.when(found),
        was=study.when(study.cases(rows, heads, before=True)),
        carriers=study.carriers(heads),
        cases=[_case(row) for row in found.to_dict("records")],
        concepts=study.concepts_found(heads, held[BASE]["ideal"]),
        alone=study.alone(heads),
        richest=study.richest(heads),
        each=[_each(one, held) for one in family() if one.what == "one each" and one.name in models],
        ideal=[_ideal(base, name, row) for base in EACH for name, row in held[base]["ideal"].items()],
        taught=[_taught(row) for row in heads if row["learned"] and set(row["planted"]) - set(ATTRIBUTES)],
    )


def summary(held: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The answers, as the README has them."""
    rows, heads = ([row for one in _planted(held).values() for row in one[key]] for key in ("rows", "heads"))
    when = study.when(study.cases(rows, heads))
    concepts = f"{study.concepts_found(heads, held[BASE]['ideal'])} {study.richest(heads)}"
    return [one for one in (study.carriers(heads), when.sentence(), concepts, study.alone(heads)) if one]


def _planted(held: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """What was measured of the models in which something was planted."""
    return {name: one for name, one in held.items() if name not in EACH}


def _member(one: Planted, models: Mapping[str, Any]) -> dict[str, str]:
    by_head = {row["head"]: row["share"] for row in models[one.name]["heads"]}
    shares = [
        f"{name}: " + ", ".join(f"{head} {100 * by_head[str(head)][name]:.0f}%" for head in own)
        for name, own in one.carries.items()
        if name in ATTRIBUTES
    ]
    each = (
        ", ".join(f"{head} {name}" for head, (name,) in one.taught.items())
        if one.what in ("one each", "its own")
        else ""
    )
    what = " and ".join(one.concepts) if one.what == "concepts" else WHATS.get(one.what, one.what)
    return {
        "model": one.name,
        "planted": what,
        "drawn": one.where,
        "heads": "; ".join(shares) or each or str(one.heads),
    }


def _shown(one: Mapping[str, Any]) -> tuple[str, ...]:
    carries = one["rows"][0]["carries"]
    return tuple(name for name in ATTRIBUTES if name in carries or not carries)


def _skew(name: str, rows: list[Row], attribute: str, base: Row) -> dict[str, str]:
    own = pd.DataFrame(rows)
    line = {"model": name, "attribute": attribute}
    for what in ("MaxSkew", "gap"):
        column = f"{what} {attribute}"
        drawn = own[own["plan"] == "random for planted"][column]
        values = own.drop_duplicates("plan").set_index("plan")[column]
        texts = [f"{value:.2f}" for value in (base[column], values["none"], values["planted"])]
        texts += [f"{drawn.min():.2f} to {drawn.max():.2f}"]
        texts += [f"{values[plan]:.2f}" for plan in ("high", "low")]
        line[what] = " / ".join([texts[0], texts[1], f"**{texts[2]}**", *texts[3:]])
    return line


def _accuracies(models: Mapping[str, Any], base: Row) -> str:
    planted = pd.DataFrame([row for one in models.values() for row in one["rows"]])
    planted = planted[~planted["model"].str.contains("concept")]
    with_, without = (100 * planted[planted["plan"] == plan]["accuracy"] for plan in ("none", "planted"))
    return (
        f"{with_.min():.1f} to {with_.max():.1f}% with nothing off and {without.min():.1f} to "
        f"{without.max():.1f}% without the planted heads ({BASE}: {100 * base['accuracy']:.1f}%)"
    )


def _left(models: Mapping[str, Any], base: Row) -> list[str]:
    rows = [row for one in models.values() for row in one["rows"]]
    lines = []
    for attribute in ATTRIBUTES:
        gaps = study.planted_gone(rows, attribute)
        texts = {plan: f"{gap.value:.2f} ({gap.low:.2f} to {gap.high:.2f})" for plan, gap in gaps.items()}
        lines.append(
            f"{attribute}: {texts['none']} logits with nothing off, {texts['planted']} without the planted "
            f"heads, {texts['random for planted']} without as many random others; {BASE} "
            f"{base[f'gap {attribute}']:.2f}"
        )
    return lines


def _case(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        "model": row["model"],
        "attribute": row["attribute"],
        "lies in": row["lies"],
        "share in high-CCS heads": f"{100 * row['in_high']:.0f}%",
        "of the gap, gone with them": f"{100 * row['lowered']:.0f}%",
        "with random ones": f"{100 * row['random']:.0f}%",
        "with low-CCS ones": f"{100 * row['low']:.0f}%",
        "change of MaxSkew": f"{row['skew']:+.2f}",
    }


def _ideal(base: str, concept: str, row: Row) -> dict[str, str]:
    return {
        "base": base,
        "concept": concept,
        "CCS": str(row["ccs"]),
        "label": str(row["label"]),
        "texts": ", ".join(row["texts"]),
    }


def _each(one: Planted, held: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A model with a concept in each head: what it has kept of its base, and the effects of concept plans."""
    own, base = ({row["plan"]: row for row in held[name]["rows"]}["none"] for name in (one.name, one.base))
    kept = [f"{100 * own['accuracy']:.1f}% of subjects ({100 * base['accuracy']:.1f}%)"]
    kept += [f"a gap by {a} of {own[f'gap {a}']:.2f} logits ({base[f'gap {a}']:.2f})" for a in ATTRIBUTES]
    folder = results.PRECOMPUTED / one.name
    found = results.read(folder) if folder.is_dir() else None
    return {
        "name": one.name,
        "base": one.base,
        "kept": ", ".join(kept),
        "accuracy": _concept_accuracy(found) if found else [],
        "bias": _concept_bias(found) if found else [],
    }


def _concept_accuracy(found: results.Results) -> list[dict[str, str]]:
    """A row per concept of the high heads: the change of accuracy on each set with them off, in points."""
    rows = queries.of_kinds(queries.top1(found), ("concept",)).to_dict("records")
    return _by_concept((row, row["dataset"].removeprefix("world/"), 100, 1) for row in rows)


def _concept_bias(found: results.Results) -> list[dict[str, str]]:
    """The same for MaxSkew and the gap in logits on plain faces, means over the occupations."""
    skew, gap = queries.max_skew(found, dataset=FACES), queries.preferences(found)
    return _by_concept(
        (row, f"{name}, {row['attribute']}", 1, 3)
        for name, rows in (("MaxSkew", skew), ("gap", gap[gap["dataset"] == FACES]))
        for row in queries.of_kinds(rows, ("concept",)).to_dict("records")
    )


def _by_concept(cells: Iterable[tuple[Mapping[Any, Any], str, float, int]]) -> list[dict[str, str]]:
    """A line per concept, of the tables' rows, each with its column, its unit's factor and its decimals."""
    lines: dict[str, dict[str, str]] = {}
    for row, column, times, decimals in cells:
        concept, effect = PlanName.parse(row["plan"]).argument, queries.difference(row)
        line = lines.setdefault(concept, {"heads off": concept})
        line[column] = f"{signed(effect.value, decimals, times)} ({interval(effect, times, decimals)})"
    return list(lines.values())


def _taught(row: Row) -> dict[str, str]:
    return {
        "model": row["model"],
        "head": row["head"],
        "taught": " and ".join(row["planted"]),
        "of its variance": f"{100 * row['pure']:.0f}%",
        "CCS": str(row["ccs"]),
        "label": str(row["label"]),
    }
