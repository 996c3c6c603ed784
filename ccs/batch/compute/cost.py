"""What a run needs, told before it starts: downloads and their terms, requests to judges, dollars, disk.

Nothing is opened, fetched or computed for it: sizes and licences are those of the registered sets' records,
heads and weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.judge import judges_of, known_pool
from ccs.batch.compute.run_plans import n_plans
from ccs.batch.compute.settings import Settings
from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges.prices import CostEstimate, default_budget
from ccs.judges.question import Question
from ccs.model.loading import sources
from ccs.model.loading.sources import HUB, UNTRAINED
from ccs.sets import SOURCES, DatasetRecord, drawn_sets
from ccs.sets.known_sets import ALIASES
from ccs.texts.pools import ADDRESSES, REFERENCE, find_reference


def _weights(source: sources.Source) -> float | None:
    """Bytes of weights to fetch in single precision, from shapes alone; None where they are not known."""
    import open_clip

    if source.place is not None or source.tag == UNTRAINED:
        return 0
    if source.config["text_cfg"].get("hf_model_name"):
        return None  # its text tower is described on the Hub
    logging.disable(logging.WARNING)  # open_clip's, that no weights were loaded
    try:
        with torch.device("meta"):
            clip = open_clip.create_model(source.open_clip_name, load_weights=False, device="meta")
    finally:
        logging.disable(logging.NOTSET)
    return 4 * sum(int(values.numel()) for values in clip.parameters())


def _asked(settings: Settings, heads: int) -> list[CostEstimate]:
    """What language models would be asked about so many heads, with the pool's longest texts: the most."""
    pool = known_pool(settings)
    panel, labeler = judges_of(settings, pool)
    texts = tuple(sorted(pool.texts, key=len)[-settings.all_ks[-1] :])
    each = [] if labeler is None else [labeler.estimate({Head(0, 0): texts[: settings.k]})]
    parts = filter(None, (texts[: settings.k], texts[settings.k :]))
    each += panel.estimate([Question("L0.H0", "Backgrounds", part) for part in parts])

    def of_all(dollars: float | None) -> float | None:
        return dollars and heads * dollars

    return [
        replace(a, requests=heads * a.requests, dollars=of_all(a.dollars), at_most=of_all(a.at_most))
        for a in each
    ]


def page(settings: Settings) -> str:
    """The needs of all models, for a person to read. Raises InputError if none can be used."""
    chosen = [settings.for_model(name) for name in settings.models]
    lines, sizes, asked, failed = ["Models:"], list[float](), list[CostEstimate](), list[InputError]()
    counted: list[tuple[Settings, int, int]] = []
    for one in chosen:
        name = one.models[0]
        try:
            if name.startswith(HUB):
                raise InputError("its configuration is on the Hub, and nothing is fetched.")
            source = sources.find(name)
            heads, size = len(sources.known_tower(source, one.layers).heads), _weights(source)
            asked += _asked(one, heads)
        except InputError as error:
            failed.append(error)
            lines.append(f"  {name:32s} not counted: {error}")
            continue
        sizes.append(size or 0)
        counted.append((one, heads, source.config["embed_dim"]))
        fetched = f"{size / 1e9:.2f} GB of weights, unless they are here" if size else "here"
        fetched = "weights of unknown size to fetch" if size is None else fetched
        lines.append(f"  {source.name:32s} {heads:3d} heads   {fetched}")
    if len(failed) == len(chosen):
        raise failed[0]
    names = dict.fromkeys(name for one in chosen for name in (one.images, *names_of_sets(one), *one.people))
    records = [SOURCES[ALIASES.get(name, name)] for name in names if ALIASES.get(name, name) in SOURCES]
    lines += ["Data sets:", *map(_set, records)]
    drawn = {"world", *(f"world/{name}" for name in ("images", *drawn_sets.names()))}
    for name in (name for name in names if ALIASES.get(name, name) not in SOURCES):
        here = "drawn here" if name in drawn else "on disk" if Path(name).expanduser().exists() else ""
        hub = "/" in name.removeprefix("world/")
        lines.append(f"  {name:32s} {here or ('on the Hub, if anywhere' if hub else 'not found here')}")
    if any(one.texts == REFERENCE for one in chosen) and find_reference() is None:
        lines += ["Texts:", f"  {REFERENCE:32s} 0.1 MB from {ADDRESSES[0]}"]
    lines += ["Language models:", *_judges(asked)]
    if asked and all(one.dollars is not None for one in asked):
        budget = settings.budget or default_budget(sum(one.dollars or 0 for one in asked))
        more = " (twice the estimate; --budget sets another)" if settings.budget is None else ""
        lines.append(f"  Budget: {budget:.2f} dollars{more}")
    embedded = [  # while a set is measured its embeddings under every plan are there
        4 * dim * min(record.rows, one.eval_images or record.rows) * n_plans(record, one, heads)
        for one, heads, dim in counted
        for record in records
        if record.kind in ("classification", "bias")
    ]
    once = {record.address: record.gigabytes for record in records}  # one address is one download
    lines.append(
        f"Disk: {sum(sizes) / 1e9:.1f} GB of weights, {sum(once.values()):.1f} GB of data sets and about as "
        "much again for videos unpacked and images as `datasets` keeps them, and up to "
        f"{max(embedded, default=0) / 1e9:.1f} GB of embeddings while a set is measured, of which sets of up "
        f"to {settings.keep / 1e9:g} GB stay (--keep)."
    )
    return "\n".join(lines)


def _set(record: DatasetRecord) -> str:
    where = "from the Hub" if record.hub else "a local copy is needed"
    gate = ", after its terms are accepted there and with a login (hf auth login)" if record.gated else ""
    return (
        f"  {record.name:32s} {record.rows:7,d} items {record.gigabytes:6.2f} GB {where}{gate}; "
        f"licence: {record.licence}"
    )


def _judges(asked: Sequence[CostEstimate]) -> list[str]:
    """A line for each language model, and their sum."""
    by_name = {one.judge: [same for same in asked if same.judge == one.judge] for one in asked}
    if not by_name:
        return ["  none is asked: labels and verdicts are by `tags`"]
    return [f"  {name:32s} {_price(own)}" for name, own in {**by_name, "all": list(asked)}.items()]


def _price(asked: Sequence[CostEstimate]) -> str:
    requests = f"{sum(one.requests for one in asked):5,d} requests"
    if any(one.at_most is None for one in asked):
        return f"{requests}, price unknown: give one with --prices"
    expected, most = sum(one.dollars or 0.0 for one in asked), sum(one.at_most or 0.0 for one in asked)
    return f"{requests}, {expected:.2f} dollars, at most {most:.2f} (five attempts each, the longest replies)"
