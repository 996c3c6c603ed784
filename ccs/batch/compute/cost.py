"""What a run needs, told before it starts: downloads and their terms, requests to judges, dollars, disk.

Nothing is opened, fetched or computed for it: sizes and licences are those of the registered sets' records,
heads and weights are counted on open_clip's configuration, and questions on the pool of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ccs.batch.compute import hours
from ccs.batch.compute.inputs import names_of_sets
from ccs.batch.compute.judge import judges_of, known_pool
from ccs.batch.compute.run import n_plans
from ccs.batch.compute.settings import Settings
from ccs.batch.pages import printed
from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges.prices import CostEstimate, default_budget
from ccs.judges.question import Question
from ccs.model.loading import sources
from ccs.model.loading.sources import HUB, UNTRAINED
from ccs.model.tower import ImageTower
from ccs.sets import SOURCES, DatasetRecord, drawn_sets
from ccs.sets.known_sets import ALIASES
from ccs.texts.pools import ADDRESSES, REFERENCE, find_reference


def _weights(source: sources.Source) -> float | None:
    """Bytes of weights to fetch in single precision, from shapes alone; None where they are not known."""
    if source.place is not None or source.tag == UNTRAINED:
        return 0
    if source.config["text_cfg"].get("hf_model_name"):
        return None  # its text tower is described on the Hub
    return 4 * source.values


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
    lines: list[tuple[str, int | None, str]] = []
    counted: list[tuple[Settings, int, int]] = []
    towers: list[ImageTower] = []
    asked, weights, failed = list[CostEstimate](), 0.0, list[InputError]()
    for one in chosen:
        name = one.clip
        try:
            if name.startswith(HUB):
                raise InputError("its configuration is on the Hub, and nothing is fetched.")
            source = sources.find(name)
            tower = sources.known_tower(source, one.layers)
            heads, size = len(tower.heads), _weights(source)
            asked += _asked(one, heads)
        except InputError as error:
            failed.append(error)
            lines.append((name, None, f"not counted: {error}"))
            continue
        weights += size or 0
        towers.append(tower)
        counted.append((one, heads, source.config["embed_dim"]))
        needs = f"{size / 1e9:.2f} GB of weights, unless they are here" if size else "here"
        lines.append((source.name, heads, "weights of unknown size to fetch" if size is None else needs))
    if len(failed) == len(chosen):
        raise failed[0]
    names = dict.fromkeys(name for one in chosen for name in (one.images, *names_of_sets(one), *one.people))
    known = {name: record for name in names if (record := SOURCES.get(ALIASES.get(name, name)))}
    once = {record.address: record.gigabytes for record in known.values()}  # one address is one download
    wanted = any(one.texts == REFERENCE for one in chosen) and find_reference() is None
    budget = settings.budget
    if budget is None and asked and all(one.dollars is not None for one in asked):
        budget = default_budget(sum(one.dollars or 0 for one in asked))
    device, records = hours.device_of(settings), list(known.values())
    works = [
        hours.work(one, tower, heads, records, device)
        for (one, heads, _), tower in zip(counted, towers, strict=True)
        if device
    ]
    return printed(
        "cost",
        time=hours.sentence(device, works, weights + 1e9 * sum(once.values())) if records else "",
        budget=budget if asked else None,
        by_default=settings.budget is None,
        models=lines,
        records=known.values(),
        others=[(name, _place(name)) for name in names if name not in known],
        texts=REFERENCE if wanted else "",
        address=ADDRESSES[0],
        judges=_judges(asked),
        weights=weights / 1e9,
        sets=sum(once.values()),
        embeddings=max((_embedded(*one, record) for one in counted for record in known.values()), default=0),
        keep=settings.keep / 1e9,
    )


def _embedded(settings: Settings, heads: int, dim: int, record: DatasetRecord) -> float:
    """GB of a set's embeddings under every plan, which are there while it is measured."""
    if record.kind not in ("classification", "bias"):
        return 0.0
    n = min(record.rows, settings.eval_images or record.rows)
    return 4e-9 * dim * n * n_plans(record, settings, heads)


def _place(name: str) -> str:
    """Where a set that has no record is."""
    if name in {"world", *(f"world/{drawn}" for drawn in ("images", *drawn_sets.names()))}:
        return "drawn here"
    if Path(name).expanduser().exists():
        return "on disk"
    return "on the Hub, if anywhere" if "/" in name.removeprefix("world/") else "not found here"


def _judges(asked: Sequence[CostEstimate]) -> list[tuple[str, int, float | None, float | None]]:
    """Of each language model, and of all: name, requests, dollars expected and at most, None if unknown."""
    of = {judge: [one for one in asked if one.judge == judge] for judge in (one.judge for one in asked)}
    return [
        (
            name,
            sum(one.requests for one in own),
            _sum(one.dollars for one in own),
            _sum(one.at_most for one in own),
        )
        for name, own in {**of, "all": list(asked)}.items()
        if own
    ]


def _sum(dollars: Iterable[float | None]) -> float | None:
    known = list(dollars)
    return None if None in known else sum(filter(None, known))
