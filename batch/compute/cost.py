"""What a run needs, told before it starts: downloads and their terms, requests to judges, dollars, disk.

Nothing is opened, fetched or computed for it: sizes and licences are those of the registered sets' records,
heads and weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from batch.compute.inputs import names_of_sets
from batch.compute.judge import judges_of
from batch.compute.settings import Settings
from ccs.datasets import SOURCES, DatasetRecord
from ccs.datasets.known_sets import ALIASES
from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges.prices import CostEstimate
from ccs.judges.question import Question
from ccs.model import sources
from ccs.model.sources import HUB, UNTRAINED
from ccs.texts import reference
from ccs.texts.pools import Pool, load_pool, make_pool


@dataclass(frozen=True)
class ModelNeeds:
    """heads: those that are scored. weights: bytes to fetch, 0 where they are here, None where unknown."""

    name: str
    heads: int
    weights: int | None
    judges: tuple[CostEstimate, ...]


def needs(settings: Settings) -> ModelNeeds:
    """The needs of the one model of the settings. Raises InputError for a model that cannot be used."""
    source = sources.find(settings.models[0])
    heads = len(sources.known_tower(source, settings.layers).heads)
    fetched = source.place is None and source.tag != UNTRAINED
    weights = _weights(source) if fetched else 0
    return ModelNeeds(source.name, heads, weights, tuple(asked(settings, heads)))


def _weights(source: sources.Source) -> int | None:
    """Bytes of a registered model's weights in single precision, from its shapes alone."""
    import open_clip

    if source.config["text_cfg"].get("hf_model_name"):
        return None  # its text tower is described on the Hub
    logging.disable(logging.WARNING)  # open_clip's, that no weights were loaded
    try:
        with torch.device("meta"):
            clip = open_clip.create_model(source.open_clip_name, load_weights=False, device="meta")
    finally:
        logging.disable(logging.NOTSET)
    return 4 * sum(int(values.numel()) for values in clip.parameters())


def asked(settings: Settings, heads: int) -> list[CostEstimate]:
    """What language models would be asked about that many heads, none answered yet.

    With the pool's longest texts: no head's question costs more.
    """
    name = settings.texts or "photographs"
    if name == reference.NAME and reference.find() is None:  # texts as long as its longest
        pool = make_pool(name, [(f"{i:0{reference.LONGEST}d}", None) for i in range(settings.all_ks[-1])])
    else:
        pool = load_pool(name)
    panel, labeler = judges_of(settings, pool)
    texts = _longest(pool, settings.all_ks[-1])
    each = [*panel.estimate([Question("L0.H0", "Backgrounds", texts)])]
    if labeler is not None:
        each.insert(0, labeler.estimate({Head(0, 0): texts[: settings.k]}))
    return [
        replace(
            one,
            requests=heads,
            dollars=None if one.dollars is None else heads * one.dollars,
            at_most=None if one.at_most is None else heads * one.at_most,
        )
        for one in each
    ]


def _longest(pool: Pool, k: int) -> tuple[str, ...]:
    return tuple(sorted(pool.texts, key=len)[-k:])


def page(settings: Settings) -> str:
    """The needs of all models, for a person to read. Raises InputError if none can be used."""
    chosen = [settings.for_model(name) for name in settings.models]
    lines, found, failed = ["Models:"], list[ModelNeeds](), None
    for one in chosen:
        name = one.models[0]
        if name.startswith(HUB):
            lines.append(f"  {name:32s} not counted: its configuration is on the Hub, and nothing is fetched")
            continue
        try:
            found.append(needs(one))
            lines.append(
                f"  {found[-1].name:32s} {found[-1].heads:3d} heads   {_to_fetch(found[-1].weights)}"
            )
        except InputError as error:
            failed = error
            lines.append(f"  {name:32s} not counted: {error}")
    if failed and not found:
        raise failed
    records, others = _sets(chosen)
    lines += ["Data sets:"] + [_set(record) for record in records]
    lines += [
        f"  {name:32s} {'drawn here' if name.startswith('world') else 'on disk or the Hub'}"
        for name in others
    ]
    lines += ["Language models:", *_judges([judge for one in found for judge in one.judges])]
    weights = sum(one.weights or 0 for one in found)
    # The sets of one address are one download; videos are there twice, packed and unpacked.
    sizes = {record.address: record.gigabytes * 1e9 for record in records}
    twice = {record.address: record.gigabytes * 1e9 for record in records if record.kind == "videos"}
    lines.append(
        f"Disk: {weights / 1e9:.1f} GB of weights, {sum(sizes.values()) / 1e9:.1f} GB of data sets, "
        f"{sum(twice.values()) / 1e9:.1f} GB of them once more when unpacked, and up to "
        f"{settings.keep / 1e9:g} GB of embeddings per model and set (--keep)."
    )
    return "\n".join(lines)


def _to_fetch(weights: int | None) -> str:
    if weights is None:
        return "weights of unknown size to fetch"
    return f"{weights / 1e9:.2f} GB of weights, unless they are here" if weights else "here"


def _sets(chosen: Sequence[Settings]) -> tuple[list[DatasetRecord], list[str]]:
    """The registered sets of all runs, and the names of the others."""
    names = dict.fromkeys(name for one in chosen for name in (one.images, *names_of_sets(one), *one.people))
    known = [SOURCES[ALIASES.get(name, name)] for name in names if ALIASES.get(name, name) in SOURCES]
    return known, [name for name in names if ALIASES.get(name, name) not in SOURCES]


def _set(record: DatasetRecord) -> str:
    where = "from the Hub" if record.hub else "a local copy is needed"
    gate = ", after its terms are accepted there and with a login (hf auth login)" if record.gated else ""
    return (
        f"  {record.name:32s} {record.rows:7,d} items {record.gigabytes:6.2f} GB {where}{gate}; "
        f"licence: {record.licence}"
    )


def _judges(asked: Sequence[CostEstimate]) -> list[str]:
    """A line for each language model, and their sum."""
    if not asked:
        return ["  none is asked: labels and verdicts are by `tags`"]
    lines = []
    for name in dict.fromkeys(one.judge for one in asked):
        own = [one for one in asked if one.judge == name]
        lines.append(f"  {name:32s} {_price(own)}")
    return [*lines, f"  {'all':32s} {_price(asked)}"]


def _price(asked: Sequence[CostEstimate]) -> str:
    requests = f"{sum(one.requests for one in asked):5,d} requests"
    if any(one.at_most is None for one in asked):
        return f"{requests}, price unknown: give one with --prices"
    expected, most = sum(one.dollars or 0.0 for one in asked), sum(one.at_most or 0.0 for one in asked)
    return f"{requests}, {expected:.2f} dollars, at most {most:.2f}"
