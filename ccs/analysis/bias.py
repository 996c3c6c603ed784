"""How biased is a model's ranking of people for occupations?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ccs.analysis import inputs
from ccs.analysis.inputs import MEAN
from ccs.analysis.preference import Preference
from ccs.analysis.result import NO_CHANGE, Chart, Result, describe_model, value_columns, warn_if_small
from ccs.data import BiasSet
from ccs.errors import InputError, require_seed
from ccs.heads import TEXT, HeadSet, Intervention, effect_word
from ccs.metrics import group_gaps, preference, skew
from ccs.metrics.bias import DRAWS, Measuring
from ccs.metrics.bias_result import BiasResult, compare_bias
from ccs.metrics.ranking import Ranking, cosines, first_alike, threads
from ccs.metrics.skew import MetricName
from ccs.metrics.stats import Estimate
from ccs.texts.prompts import NEUTRAL

if TYPE_CHECKING:
    from ccs.model.handle import ModelHandle
    from ccs.model.model import Model

METRICS = skew.METRICS + group_gaps.PREFERENCES


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class BiasTable(Result):
    """The result of `ccs.bias`. A notebook shows its plot.

    Attributes:
        about: Model, gallery, attribute, prompts, K, ablated heads, and images behind the numbers.
        rows: One row per occupation and metric, the means first. Columns: `occupation`; `metric`; `group`,
            the group that the metric prefers (for MaxSkew the most overrepresented in the top K, for NDKL
            none, for the others the one with the highest mean or AUC); `share`, its share of the top K;
            `before` and `after` ablation, equal without ablation; `low` and `high`, the 95% interval of
            `after`; `difference`, `difference_low`, `difference_high`, and `p_value`, paired over images;
            `chance`, `chance_low`, and `chance_high`, the level of random rankings; `ceiling`, the largest
            possible MaxSkew.
        groups: Group -> number of images in the gallery.
        alike: Occupations whose prompts the model encodes identically. They count once, under the first name.
        shares: One row per occupation and group: its share of the top K `before` and `after`, and of the
            ranked images (`pool`).
        preference: Split into a general and an occupation-specific preference, and results for neutral
            prompts. It uses all images, even if each occupation ranks its own.
        within_sets: Mean MaxSkew, with its 95% range, if groups are shuffled within each set of images that
            differ only in group. None for galleries without such sets. Images of a set rank next to each
            other, so this is the chance level of MaxSkew here. It is lower than the column `chance`.
        skipped: Images that cannot be read, with the reason.

    Examples:
        >>> from ccs import bias
        >>> bias("organism", "world/faces", "judge, nurse", attribute="gender")
        <BiasTable of organism on world/faces by gender: 18 rows, see .rows>
    """

    groups: Mapping[str, int]
    alike: tuple[tuple[str, ...], ...]
    shares: pd.DataFrame
    preference: Preference
    within_sets: Estimate | None = None
    skipped: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """`after` with one line per occupation, the mean first, and one column per metric."""
        values = self.rows.pivot(index="occupation", columns="metric", values="after")
        return values.loc[self.rows["occupation"].unique(), list(self.rows["metric"].unique())]

    def of(self, metric: str) -> pd.DataFrame:
        """Return the rows of one metric, by occupation. Raises InputError for an unknown metric."""
        if metric not in (known := self.rows["metric"].unique()):
            raise InputError(f"There is no metric {metric!r}; there are {', '.join(known)}.")
        return self.rows[self.rows["metric"] == metric].set_index("occupation")

    def _chart(self, max_rows: int, metric: str = "MaxSkew") -> Chart:
        table, ablated = self.of(metric), str(self.about["ablate"])
        largest = table.drop(index=MEAN).nlargest(max_rows, "after").iloc[::-1]
        rows = pd.concat([largest, table.loc[[MEAN]]])
        short = ablated if len(ablated) <= 30 else f"{len(ablated.split())} heads"
        label = f"{short} {effect_word(ablated)}" if ablated else "measured (95%)"
        return Chart(rows=rows, names=rows.index, xlabel=metric, label=label, points=True)


def bias(
    model: Model | str,
    gallery: BiasSet | str,
    occupations: inputs.Names | None = None,
    *,
    attribute: str | None = None,
    ablate: HeadSet | str | None = None,
    top: int | None = None,
    template: str | None = None,
    prompts: str | None = None,
    max_images: int | None = None,
    as_published: bool = False,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> BiasTable:
    """Measure MaxSkew, NDKL, AUC, and logit gap of a model's rankings of people for occupations.

    The model ranks the gallery's images for each occupation by cosine with its prompt, the mean over the
    gallery's templates. The paper's templates give "A photo of judge" for the paper's occupations and "A
    photo of a beekeeper" for others. `ccs.metrics.skew` and `ccs.metrics.group_gaps` define the metrics.

    Args:
        model: A model from `ccs.load`, or its name.
        gallery: People with groups: a gallery from `ccs.open_gallery`, or a name or path that it accepts.
        occupations: A list of texts, or one text with commas between them. By default the gallery's
            occupations. For your own images, the default is the paper's 104.
        attribute: Column of groups. By default gender, or else the first column. "gender,race" crosses two
            columns. People in crossed groups of fewer than 10 are left out.
        ablate: Heads of either encoder to ablate, such as "L8.H11 L9.H2=0.3", or "T7.H3" of the text encoder.
            Mean outputs are taken over this gallery's images. Edits (`L6.H1=erase:skin tone`) are fitted on
            them, too, unless `ccs.edit_heads` has fitted them.
        top: K, the length of the top list, at most half of the images that a prompt ranks. By default the
            gallery's. For your own images, the default is a tenth of them.
        template: Prompt with `{}` for the occupation. By default the gallery's.
        prompts: Name of a prompt set (`ccs.texts.prompts`), such as "traits", in place of occupations and
            template.
        max_images: Maximum number of images, drawn at random from each group. Only for a gallery given by
            name, and not for synthetic people.
        as_published: Whether to reproduce the fault of the paper's code for FairFace by race
            (`ccs.analysis.inputs.has_order_fault`).
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        seed: Random seed for resampling.
        device: Device for a model given by name, as in `ccs.load`.

    Returns:
        BiasTable: One row per occupation and metric, before and after ablation.

    Raises:
        InputError: If an argument does not fit the others; the message says what is allowed.

    Examples:
        >>> ranked = bias("organism", "world/faces", "judge, nurse", attribute="gender", ablate="L7.H1")
        >>> list(ranked.of("MaxSkew").index)    # natural logarithms; 0 is the gallery's own shares
        ['mean', 'judge', 'nurse']
    """
    require_seed(seed)
    if max_images is not None and (isinstance(gallery, BiasSet) or str(gallery).startswith("world/")):
        raise InputError("Synthetic people and opened galleries are ranked whole; leave out the limit.")
    people, attribute, left_out = inputs.open_people(
        gallery, attribute, max_images, skip_unreadable=skip_unreadable
    )
    model, ablation = inputs.load_model(model, device), Intervention.from_heads(ablate)
    people = inputs.set_question(people, occupations, template, top, prompts)
    if as_published and not inputs.has_order_fault(people.name, attribute):
        raise InputError(f"The paper's bug affects FairFace by race, not {people.name} by {attribute}.")
    names = inputs.in_prompts(people)
    ends = inputs.embed_ends(model, people.images, names, people.templates, ablation, people.groups)
    neutral = inputs.embed_names(model, NEUTRAL, people.templates, ablation.of_encoder(TEXT))
    table = measure_people(
        model, people, attribute, ends, neutral, ablate=ablation, as_published=as_published, seed=seed
    )
    description = {
        **table.about,
        "prompt": people.templates[min(1, len(people.templates) - 1)].replace("{}", names[0]),
        "skipped": len(people.skipped),
        "left_out": inputs.format_left_out(left_out),
    }
    description["warning"] = warn_if_small("bias", min(table.groups.values()))
    return replace(table, about=description, skipped=people.skipped)


def rank_gallery(
    gallery: BiasSet, attribute: str, texts: NDArray[np.floating], *, one_pool: bool = False
) -> Ranking:
    """Return the ranking question of a gallery for an attribute.

    Occupations that the model encodes identically and that rank the same images count once.

    Args:
        gallery: Gallery with occupations and K.
        attribute: One of the gallery's columns of groups.
        texts: Unit text embeddings [occupations, d].
        one_pool: Whether to rank all images for each occupation, even if each has its own images.
    """
    pools = None if one_pool else own_pools(gallery)
    first = np.arange(len(texts)) if pools is not None else first_alike(texts)
    distinct, rows = np.unique(first, return_inverse=True)
    return Ranking(
        prompts=texts[distinct],
        groups=gallery.groups[attribute],
        k=gallery.k[attribute],
        pools=pools,
        units=gallery.units,
        names=gallery.occupations,
        rows=rows,
    )


def own_pools(gallery: BiasSet) -> NDArray[np.bool_] | None:
    """Return the images that each occupation of a gallery ranks, bool [occupations, images]; None for all."""
    if gallery.pools is None:
        return None
    if absent := ", ".join(sorted({*gallery.occupations} - {*gallery.pools})):
        advice = "Each occupation ranks its own images; rank one pool of all images instead."
        raise InputError(f"{gallery.name} has no image of {absent}. {advice}")
    return np.array([gallery.pools == occupation for occupation in gallery.occupations])


def measure_people(
    model: Model | ModelHandle,
    people: BiasSet,
    attribute: str,
    ends: Sequence[tuple[NDArray[np.floating], NDArray[np.floating]]],
    neutral: NDArray[np.floating],
    *,
    ablate: HeadSet,
    metrics: Sequence[MetricName] = METRICS,
    as_published: bool = False,
    seed: int = 0,
    draws: int | None = None,
) -> BiasTable:
    """Measure the bias of embedded people and occupations.

    Args:
        model: Model that computed the embeddings.
        people: Gallery with the occupations, prompts, and K to use (`set_question`).
        attribute: One of the gallery's columns of groups.
        ends: Embeddings of images [n, d] and of occupations [occupations, d], before and, with ablation,
            after.
        neutral: Embeddings of `NEUTRAL` in the gallery's templates, after ablation.
        ablate: Heads that are ablated in the second pair of `ends`.
        metrics: Names of metrics.
        as_published: As in `bias`.
        seed: Random seed for resampling.
        draws: Number of resamples. By default 500, and 1,000 for the preference.

    Returns:
        BiasTable: The same as from `bias`.
    """
    ranking = rank_gallery(people, attribute, ends[0][1])
    with threads() as map:
        measuring = Measuring(
            ranking,
            metrics=metrics,
            as_published=as_published,
            draws=draws or DRAWS,
            logit_scale=model.logit_scale,
            seed=seed,
            map=map,
        )
        scores = [cosines(texts, images, map=map)[ranking.first_positions] for images, texts in ends]
        results = [measuring(of_end, within_units=of_end is scores[-1]) for of_end in scores]
    before, after = results[0], results[-1]
    logits = [model.logit_scale * of_end[ranking.distinct] for of_end in scores]
    neutral_scores = cosines(neutral, ends[-1][0])
    choices = describe_model(model) | {
        "gallery": people.name,
        "source": people.source,
        "attribute": attribute,
        "template": " | ".join(people.templates),
        "images": before.n,
        "skipped": 0,
        "left_out": "",
        "k": before.k,
        "ties": int(after.ties[ranking.rows].sum()),
        "ablate": str(ablate),
        "mode": before.mode,
    }
    cases = pd.MultiIndex.from_product((people.occupations, before.groups), names=("occupation", "group"))
    pool_shares = before.pools / before.pools.sum(axis=1, keepdims=True)
    shares = {"before": before.top_shares, "after": after.top_shares, "pool": pool_shares}
    return BiasTable(
        about=choices,
        groups=dict(zip(before.groups, np.bincount(ranking.codes).tolist(), strict=True)),
        alike=ranking.alike,
        rows=pd.DataFrame(_rows(before, after, ranking)),
        shares=pd.DataFrame({name: of[ranking.rows].ravel() for name, of in shares.items()}, index=cases),
        preference=_preference(ranking, logits, neutral_scores, seed, draws or preference.DRAWS),
        within_sets=after.within_units,
    )


def _rows(before: BiasResult, after: BiasResult, ranking: Ranking) -> list[dict[str, Any]]:
    """Return one row per metric for the mean, then for each occupation that the model tells apart."""
    rows = []
    for place, occupation in [(None, MEAN), *enumerate(ranking.prompt_names)]:
        for metric in after.metrics:
            group, share = after.preferred_group(metric, place)
            figure, old = after.figure(metric, place), before.figure(metric, place).value
            effect = NO_CHANGE if after is before else compare_bias(after, before, metric, place)
            row: dict[str, Any] = {"occupation": occupation, "metric": metric, "group": group, "share": share}
            row |= value_columns(old, figure, effect) | {"chance": figure.chance.value}
            row |= {"chance_low": figure.chance.low, "chance_high": figure.chance.high}
            rows.append(row | {"ceiling": figure.ceiling})
    return rows


def _preference(
    ranking: Ranking, logits: Sequence[ArrayLike], neutral: ArrayLike, seed: int, draws: int
) -> Preference:
    """Split the logits [prompts, n] before and after ablation, and rank the images for neutral prompts."""
    splits, reason = list[preference.Split](), ""
    settings: dict[str, Any] = {"units": ranking.units, "seed": seed, "draws": draws}
    try:
        splits = [preference.split(scores, ranking.groups, **settings) for scores in logits]
    except InputError as error:
        reason = str(error)
    firsts = preference.first_groups(NEUTRAL, neutral, ranking.groups, ranking.k, seed=seed)
    before, after = (splits[0], splits[-1]) if splits else (None, None)
    return Preference(before=before, after=after, neutral=firsts, reason=reason)
