"""The bias of a model's rankings of people, for any gallery, in one call: no TEXTSPAN, no judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.measures import accuracy, ranking
from ccs.measures import bias as measures
from ccs.measures.bias import BiasResult
from ccs.measures.faults import fault_of
from ccs.paper import figures as paper
from ccs.progress import BAR
from ccs.sets.kinds import BiasSet, ImageSet, RetrievalSet
from ccs.sets.open import open_gallery

if TYPE_CHECKING:
    from ccs.model.model import Model

METRICS = measures.METRICS + measures.PLAIN + measures.PREFERENCES
MOST_SKIPPED = 0.01
"""The share of images that may be unreadable without anybody having said so."""
MEAN = "mean"
"""What stands for the occupation in the rows of the mean over all occupations."""
_AT_ONCE = 256  # images


@dataclass(frozen=True)
class BiasTable:
    """What `bias` measured.

    about: the choices behind the figures (model, weights, gallery, its source, attribute, template and a
    prompt made with it, images, those skipped because they cannot be read, k, heads off, ...). skipped: which
    and why. groups: images of each group in the gallery. alike: prompts that are one text to the
    model, which count once, under the first name. rows: a row for each occupation and metric, the means
    first, with the columns `occupation`, `metric`, `value`, `low`, `high` (95% interval), `chance`,
    `chance_low`, `chance_high` (random rankings), `ceiling` (the largest MaxSkew possible), `group` (the one
    furthest above its share of the gallery), `share` (its share of the top K), and, with heads off, `before`,
    `difference`, `difference_low`, `difference_high`, `p_value`.
    """

    about: Mapping[str, Any]
    groups: Mapping[str, int]
    alike: tuple[tuple[str, ...], ...]
    rows: pd.DataFrame
    skipped: tuple[str, ...] = ()

    def flat(self) -> pd.DataFrame:
        """The rows with every choice in a column of its own: what a CSV file holds."""
        named = {name: value for name, value in self.about.items() if name not in self.rows}
        return self.rows.assign(**named)


def bias(
    model: Model | str,
    gallery: BiasSet | str,
    occupations: Sequence[str] | str | None = None,
    *,
    attribute: str | None = None,
    off: HeadSet | str | None = None,
    top: int | None = None,
    template: str | None = None,
    max_images: int | None = None,
    as_published: bool = False,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> BiasTable:
    """MaxSkew, NDKL, AUC and logit gap of a CLIP's rankings of people for occupations.

    For each occupation the gallery's images are ranked by their cosine with its prompt (the mean over the
    gallery's templates; with the study's, "A photo of judge" for its own occupations and "A photo of a
    beekeeper" for others). `ccs.measures.skew` defines the figures.

    Args:
        model: from `ccs.load`, or what it takes.
        gallery: from `ccs.open_gallery`, or what it takes: "fairface-1.25", a folder, a Parquet file, ...
        occupations: any texts, or a string with commas between them; by default those of the gallery, for
        your own images the study's 104.
        attribute: the column of groups; by default "gender", or else the first.
        off: heads to switch off; every figure then also has the difference that it makes, paired over images.
        top: K, the length of the list whose shares are compared; by default the gallery's, a tenth of your
        own images. At most half of the images that a prompt ranks, where MaxSkew still has room.
        max_images: the most images, evenly spaced, of a gallery opened here; not of drawn people.
        template: the prompt, `{}` is the occupation; by default the gallery's.
        skip_unreadable: also where more than 1% of the images cannot be read.
        device: where a model is loaded that is given by name.
        as_published: with the faults of the study's code, where its figures for this gallery have one.

    Raises InputError for what does not fit, with what is allowed.
    """
    if max_images is not None and (not isinstance(gallery, str) or gallery.startswith("world/")):
        raise InputError("Drawn people and an opened gallery are ranked whole; give no number of images.")
    if isinstance(gallery, str):
        gallery = open_gallery(gallery, attribute=attribute or (), max_images=max_images)
    attribute = attribute or ("gender" if "gender" in gallery.groups else next(iter(gallery.groups)))
    if attribute not in gallery.groups:
        raise InputError(
            f"{gallery.name} has no attribute {attribute!r}; it has {', '.join(gallery.groups)}."
        )
    skipped = require_readable(gallery, skip_unreadable)
    if isinstance(model, str):
        from ccs.model.model import load  # which imports PyTorch

        model = load(model, device=device)
    found = asked(gallery, occupations, template)
    groups = np.asarray(found.groups[attribute], dtype=np.str_)
    heads = HeadSet.parse(off) if isinstance(off, str) else HeadSet(off or ())
    model.tower.require(heads)
    fault = fault_of(found.name, attribute) if as_published else None
    if as_published and fault is None:
        known = "FairFace by race, socialcounterfactuals by race and socialcounterfactuals-gender by gender"
        raise InputError(f"{found.name} by {attribute} has no fault of the study's code; {known} have one.")
    prompted = paper.in_prompts(found.occupations, found.templates)
    texts = accuracy.class_weights(model, prompted, found.templates)
    pools = found.own_pools(found.occupations)
    n = len(groups)
    distinct = np.arange(len(texts)) if pools is not None else np.unique(ranking.first_alike(texts))
    names = [found.occupations[index] for index in distinct]
    k = cut_off(found, attribute, n if pools is None else int(pools.sum(axis=1).min()), top)
    plans = [HeadSet(), heads] if heads else [HeadSet()]
    images = _embedded(model, found, plans)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor() as threads:
        results = measures.measure_plans(
            images,
            texts[distinct],
            groups,
            k,
            metrics=METRICS,
            fault=fault,
            pools=None if pools is None else pools[distinct],
            units=found.units,
            logit_scale=model.logit_scale,
            seed=seed,
            map=threads.map,
        )
    about = {
        "model": model.name,
        "weights": model.weights_hash[:16],
        "gallery": found.name,
        "source": found.source,
        "attribute": attribute,
        "template": " | ".join(found.templates),
        "prompt": found.templates[min(1, len(found.templates) - 1)].replace("{}", prompted[0]),
        "images": n,
        "skipped": len(skipped),
        "k": k,
        "off": str(heads),
        "mode": results[0].mode,
    }
    return BiasTable(
        about=about,
        groups=dict(zip(results[0].groups, results[0].pool.tolist(), strict=True)),
        alike=tuple(ranking.alike(found.occupations, texts)) if pools is None else (),
        rows=pd.DataFrame(_rows(results[0], results[-1], names, bool(heads))),
        skipped=skipped,
    )


def require_readable(data: ImageSet | RetrievalSet, skip_unreadable: bool) -> tuple[str, ...]:
    """The images that were skipped because they cannot be read; InputError where they are more than 1%."""
    skipped = tuple(one for one in data.skipped if not one.startswith("occupation "))
    whole = len(data.clips if isinstance(data, RetrievalSet) else data.images) + len(skipped)
    if len(skipped) > MOST_SKIPPED * whole and not skip_unreadable:
        raise InputError(
            f"{len(skipped)} of the {whole} images of {data.name} cannot be read (for example {skipped[0]}); "
            "mend or remove them, or leave them out with --skip-unreadable (in Python, skip_unreadable=True)."
        )
    return skipped


def cut_off(gallery: BiasSet, attribute: str, ranked: int, top: int | None) -> int:
    """K for rankings of so many images: `top`, or else the gallery's. InputError above half of them.

    With K near the number of images every ranking has the same top, and MaxSkew says nothing.
    """
    most = max(1, ranked // 2)
    k = gallery.k.get(attribute, max(1, ranked // 10)) if top is None else top
    if not 1 <= k <= most:
        raise InputError(
            f"K is {k}, but a ranking of {ranked} images needs a K of 1 to {most}, at most half of them."
        )
    return k


def asked(gallery: BiasSet, occupations: Sequence[str] | str | None, template: str | None) -> BiasSet:
    """The gallery with these occupations and this template, where they are given; InputError for others."""
    if template is not None:
        if template.count("{}") != 1:
            raise InputError(f"A template holds {{}} once, where the occupation goes, unlike {template!r}.")
        gallery = replace(gallery, templates=(template,))
    if occupations is not None:
        occupations = occupations.split(",") if isinstance(occupations, str) else occupations
        names = tuple(dict.fromkeys(filter(None, (one.strip() for one in occupations))))
        if not names:
            raise InputError("At least one occupation is needed.")
        gallery = replace(gallery, occupations=names)
    return gallery


def _embedded(model: Model, gallery: BiasSet, plans: list[HeadSet]) -> np.ndarray:
    """Unit embeddings [plans, images, dim], with a bar."""
    parts = []
    with BAR.get()(total=len(gallery.images), desc="images", leave=False, disable=None) as bar:
        for start in range(0, len(gallery.images), _AT_ONCE):
            some = list(gallery.images[start : start + _AT_ONCE])
            parts.append(model.embed_images(some, plans))
            bar.update(len(some))
    return np.concatenate(parts, axis=1)


def _rows(before: BiasResult, after: BiasResult, names: list[str], differs: bool) -> list[dict[str, Any]]:
    """A row for each metric of the mean, then of each occupation; `after` has the heads off."""
    found = []
    shares = after.pools / after.pools.sum(axis=1, keepdims=True)
    ratios = np.divide(after.top_shares, shares, out=np.zeros(shares.shape), where=shares > 0)
    for place in chain([None], range(len(names))):
        for name in after.metrics:
            metric, other = after.metrics[name], before.metrics[name]
            capped = np.nan if name != "MaxSkew" or after.fault else after.ceilings
            row: dict[str, Any] = {"occupation": MEAN if place is None else names[place]}
            row["metric"] = measures.CALLED.get(name, name)
            if place is None:
                value, chance, was = metric.mean, metric.chance_mean, other.mean.value
                row |= {"value": value.value, "low": value.low, "high": value.high}
                row |= {"ceiling": float(np.mean(capped)), "group": "", "share": np.nan}
            else:
                value, chance, was = metric.values[place], metric.chance, float(other.values[place])
                row |= {"value": float(value), "low": metric.low[place], "high": metric.high[place]}
                first = int(ratios[place].argmax())
                row["ceiling"] = float(np.broadcast_to(capped, len(names))[place])
                row |= {"group": after.groups[first], "share": float(after.top_shares[place, first])}
            row |= {"chance": chance.value, "chance_low": chance.low, "chance_high": chance.high}
            if differs:
                effect = measures.compare(after, before, name, place)
                row |= {"before": was, "difference": effect.value, "difference_low": effect.low}
                row |= {"difference_high": effect.high, "p_value": effect.p_value}
            found.append(row)
    return found
