"""How biased is a model's ranking of people for occupations?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs import paper
from ccs.analysis.crossing import format_left_out
from ccs.analysis.inputs import (
    NO_CHANGE,
    Names,
    change_columns,
    embed_ablations,
    load_model,
    open_people,
    read_names,
    require_readable,
)
from ccs.analysis.preference import Preference, measure_preference
from ccs.analysis.result import Chart, Result
from ccs.analysis.sample_size import warn_if_small
from ccs.data import BiasSet
from ccs.errors import InputError, require_seed
from ccs.heads import IMAGE, TEXT, HeadSet, Intervention, changes, effect_word
from ccs.metrics import bias as rankings
from ccs.metrics import group_gaps, skew
from ccs.metrics.accuracy import class_weights
from ccs.metrics.bias_result import BiasResult, compare_bias, repeated
from ccs.metrics.ranking import Ranking, alike, first_alike
from ccs.metrics.stats import Estimate
from ccs.texts.prompts import load_prompts

if TYPE_CHECKING:
    from ccs.model.model import Model

METRICS = skew.METRICS + group_gaps.PREFERENCES
MEAN = "mean"
"""The name that the rows of the mean over all occupations have in the column `occupation`."""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class BiasTable(Result):
    """The result of `ccs.bias`. A notebook shows its plot.

    Attributes:
        about: the model, gallery, attribute, prompts, K, ablated heads, and images behind the numbers.
        rows: one row per occupation and metric, the means first. Columns: `occupation`; `metric`; `group`,
            which the metric prefers (the most overrepresented in the top K for MaxSkew, the one with the
            highest mean or AUC for the others, none for NDKL), and `share`, its share of the top K; `before`
            and `after` ablation, equal without ablation; `low`, `high`, the 95% interval of `after`;
            `difference`, `difference_low`, `difference_high`, `p_value`, paired over images; `chance`,
            `chance_low`, `chance_high`, of random rankings; `ceiling`, the largest possible MaxSkew.
        groups: number of images of each group in the gallery.
        alike: occupations whose prompts the model encodes identically; they count once, under the first name.
        shares: one row per occupation and group: its share of the top K `before` and `after`, and of the
            ranked images (`pool`).
        preference: the split into a general and an occupation-specific preference, and neutral prompts; over
            all images, also if each occupation ranks its own.
        within_sets: mean MaxSkew, with its 95% range, if groups are shuffled within each set of images that
            differ only in group; None for galleries without such sets. Images of a set rank next to each
            other, so here this is the chance level of MaxSkew, below the column `chance`.
        skipped: images that cannot be read, with the reason.

    Example:
        >>> from ccs import bias
        >>> bias("organism", "world/faces", "judge, nurse", attribute="gender")
        <BiasTable of organism on world/faces by gender: 2 occupations, see .rows>
    """

    groups: Mapping[str, int]
    alike: tuple[tuple[str, ...], ...]
    shares: pd.DataFrame
    preference: Preference
    within_sets: Estimate | None = None
    skipped: tuple[str, ...] = ()

    def __repr__(self) -> str:
        n = self.rows["occupation"].nunique() - 1
        subject = f"{self.about['model']} on {self.about['gallery']} by {self.about['attribute']}"
        return f"<BiasTable of {subject}: {n} occupations, see .rows>"

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
        title = f"{self.about['model']}, {self.about['gallery']} by {self.about['attribute']}"
        return Chart(rows=rows, names=rows.index, xlabel=metric, title=title, label=label, points=True)


def bias(
    model: Model | str,
    gallery: BiasSet | str,
    occupations: Names | None = None,
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

    The model ranks the gallery's images for each occupation by cosine with its prompt (the mean over the
    gallery's templates; with the paper's, "A photo of judge" for its own occupations and "A photo of a
    beekeeper" for others). `ccs.metrics.skew` and `ccs.metrics.group_gaps` define the metrics.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: from `ccs.open_gallery`, or a name that it takes: "fairface-1.25", a folder, a file, ...
        occupations: any texts, or one text with commas between them; by default those of the gallery, for
            your own images the paper's 104.
        attribute: the column of groups; by default gender, or else the first. "gender,race" crosses two
            (`ccs.analysis.crossing`); people in crossed groups of fewer than 10 are left out.
        ablate: heads to ablate, such as "L8.H11 L9.H2=0.3", of the image encoder or (T7.H3) of the text
            encoder. Means are those of this gallery's images, and so are edits
            (`L6.H1=erase:skin tone`) that `ccs.edit_heads` hasn't fitted on others.
        top: K, the length of the list whose shares are compared, at most half of the images that a prompt
            ranks; by default the gallery's, a tenth of your own images.
        template: the prompt, with `{}` for the occupation; by default the gallery's.
        prompts: a named prompt set such as "traits" in place of occupations and template
            (`ccs.texts.prompts`).
        max_images: the most images, drawn at random from each group, of a gallery opened here; not of
            synthetic people.
        as_published: reproduce the fault of the paper's code, for FairFace by race (`ccs.metrics.skew`).
        skip_unreadable: continue if more than 1% of the images cannot be read.
        seed: of resampling.
        device: for a model given by name.

    Returns:
        BiasTable: one row per occupation and metric, before and after ablation.

    Raises:
        InputError: If an argument does not fit the others; the message says what is allowed.

    Example:
        >>> ranked = bias("organism", "world/faces", "judge, nurse", attribute="gender", ablate="L7.H1")
        >>> list(ranked.of("MaxSkew").index)    # natural logarithms; 0 is the gallery's own shares
        ['mean', 'judge', 'nurse']
    """
    require_seed(seed)
    if max_images is not None and (not isinstance(gallery, str) or gallery.startswith("world/")):
        raise InputError("Drawn people and an opened gallery are ranked whole; give no number of images.")
    gallery, attribute, left_out = open_people(gallery, attribute, max_images)
    skipped = require_readable(gallery, skip_unreadable)
    model, ablation = load_model(model, device), Intervention.from_heads(ablate)
    people = set_question(gallery, occupations, template, top, prompts)
    if as_published and not skew.has_order_fault(people.name, attribute):
        raise InputError(f"{people.name} by {attribute} has no such fault; FairFace by race has it.")
    in_images = model.at_means(ablation.of_encoder(IMAGE), people.images)
    if any(change.attribute for _, change in changes(in_images)):
        from ccs.model.editing import fit_edits  # imports PyTorch

        in_images, _ = fit_edits(model, in_images, people.images, people.groups)
    in_texts = ablation.of_encoder(TEXT)
    if in_texts:
        model.texts.encoder.require_heads(in_texts)
    images = embed_ablations(model, people.images, [HeadSet(), in_images] if in_images else [HeadSet()])
    texts = [embed_occupations(model, people)]
    texts += [embed_occupations(model, people, in_texts)] if in_texts else []
    table = measure_people(
        model, people, attribute, images, texts, ablate=ablation, as_published=as_published, seed=seed
    )
    about = {**table.about, "skipped": len(skipped), "left_out": format_left_out(left_out)}
    if warning := warn_if_small("bias", min(table.groups.values())):
        about["warning"] = warning
    return replace(table, about=about, skipped=skipped)


def measure_people(
    model: Model,
    people: BiasSet,
    attribute: str,
    images: Sequence[NDArray[np.floating]] | NDArray[np.floating],
    texts: Sequence[NDArray[np.floating]],
    *,
    ablate: HeadSet,
    seed: int = 0,
    **settings: Any,
) -> BiasTable:
    """Measure the bias of embedded people and occupations.

    Args:
        model: that embedded them.
        people: the gallery, with the occupations, prompts, and K in force (`set_question`).
        attribute: one of its columns of groups.
        images: embeddings [n, d] before ablation and, if the image encoder is ablated, after.
        texts: embeddings [occupations, d] before ablation and, if the text encoder is ablated, after.
        ablate: the heads that are ablated in the second of both.
        seed: of resampling.
        settings: further ones of `ccs.metrics.bias.Measuring`, such as `metrics` and `draws`.

    Returns:
        BiasTable: as `bias` returns it.
    """
    before, after = measure_gallery(
        people, attribute, images, texts, logit_scale=model.logit_scale, seed=seed, **settings
    )
    ranking, in_texts = rank_gallery(people, attribute, texts[0]), ablate.of_encoder(TEXT) or None
    preference_settings = {"seed": seed, **{name: settings[name] for name in settings if name == "draws"}}
    preference = measure_preference(
        model, list(images), ranking, texts, people.templates, ablate=in_texts, **preference_settings
    )
    choices = {
        "model": model.name,
        "weights": model.weights_hash[:16],
        "gallery": people.name,
        "source": people.source,
        "attribute": attribute,
        "template": " | ".join(people.templates),
        "prompt": people.templates[min(1, len(people.templates) - 1)].replace("{}", in_prompts(people)[0]),
        "images": before.n,
        "skipped": 0,
        "left_out": "",
        "k": before.k,
        "ties": int(after.ties.sum()),
        "ablate": str(ablate),
        "mode": before.mode,
    }
    cases = pd.MultiIndex.from_product((people.occupations, before.groups), names=("occupation", "group"))
    shares = {"before": before.top_shares, "after": after.top_shares, "pool": before.pool_shares}
    return BiasTable(
        about=choices,
        groups=dict(zip(before.groups, before.pool.tolist(), strict=True)),
        alike=tuple(alike(people.occupations, texts[0])) if ranking.pools is None else (),
        rows=pd.DataFrame(_rows(before, after, ranking)),
        shares=pd.DataFrame({name: values.ravel() for name, values in shares.items()}, index=cases),
        preference=preference,
        within_sets=rankings.chance_within_units(
            images[-1], replace(ranking, prompts=texts[-1][ranking.first_positions]), seed=seed
        ),
    )


def measure_gallery(
    gallery: BiasSet,
    attribute: str,
    images: Sequence[NDArray[np.floating]] | NDArray[np.floating],
    texts: Sequence[NDArray[np.floating]],
    **settings: Any,
) -> tuple[BiasResult, BiasResult]:
    """Measure the gallery's rankings before and after ablation, on the same resampled images.

    Args:
        gallery: with the occupations, prompts, and K in force (`set_question`).
        attribute: one of its columns of groups.
        images: embeddings [n, d] of its images before ablation and, if the image encoder is ablated, after.
        texts: embeddings [occupations, d] before ablation and, if the text encoder is ablated, after.
        settings: those of `ccs.metrics.bias.Measuring`; by default all metrics.

    Returns:
        tuple: the results before and after, with one row per occupation; the same object without ablation.
    """
    ranking, settings = rank_gallery(gallery, attribute, texts[0]), {"metrics": METRICS} | settings
    if texts[-1] is texts[0]:
        results = rankings.measure_ablations(images, ranking, **settings)
    else:
        questions = ranking, replace(ranking, prompts=texts[-1][ranking.first_positions])
        ends = zip((images[0], images[-1]), questions, strict=True)
        results = [rankings.measure(*end, **settings) for end in ends]
    repeats = [repeated(result, ranking.rows) for result in results]
    return repeats[0], repeats[-1]


def set_question(
    gallery: BiasSet,
    occupations: Names | None = None,
    template: str | None = None,
    top: int | None = None,
    prompts: str | None = None,
) -> BiasSet:
    """Return the gallery with these occupations, this template, and this K, or its own.

    Args:
        gallery: people with groups.
        occupations: as in `bias`; repeated names count once.
        template: with `{}` for the occupation.
        top: K; by default the gallery's, or a tenth of the images that an occupation ranks. Near their number
            every ranking has the same top, and MaxSkew says nothing.
        prompts: a named prompt set, in place of occupations and template.

    Raises:
        InputError: For a K below 1 or above half of these images, a template without one `{}`, and names that
            are no texts or empty.
    """
    if prompts is not None:
        if occupations is not None or template is not None:
            raise InputError("A prompt set has its own names and template; give either it or those.")
        prompt_set = load_prompts(prompts)
        gallery = replace(gallery, occupations=prompt_set.names, templates=prompt_set.templates)
    if template is not None:
        if not isinstance(template, str) or template.count("{}") != 1:
            raise InputError(f"A template holds {{}} once, where the occupation goes, unlike {template!r}.")
        gallery = replace(gallery, templates=(template,))
    if occupations is not None:
        gallery = replace(gallery, occupations=tuple(dict.fromkeys(read_names(occupations, "occupation"))))
    ranked = fewest_ranked(gallery)
    largest = max(1, ranked // 2)
    k = {name: gallery.k.get(name, max(1, ranked // 10)) if top is None else top for name in gallery.groups}
    for number in k.values():
        if isinstance(number, bool) or int(number) != number or not 1 <= number <= largest:
            needs = f"a ranking of {ranked} images needs a K of 1 to {largest}, at most half of them"
            raise InputError(f"K is {number}, but {needs}.")
    return replace(gallery, k={name: int(number) for name, number in k.items()})


def in_prompts(gallery: BiasSet) -> tuple[str, ...]:
    """Return the occupations as the gallery's prompts hold them, with an article if one belongs there."""
    return paper.in_prompts(gallery.occupations, gallery.templates)


def embed_occupations(model: Model, gallery: BiasSet, ablate: HeadSet | None = None) -> NDArray[np.float32]:
    """Return unit text embeddings [occupations, d], means over the templates.

    Args:
        model: embeds the prompts.
        gallery: with occupations and templates.
        ablate: heads of the text encoder to ablate.
    """
    return class_weights(model, in_prompts(gallery), gallery.templates, ablate)


def fewest_ranked(gallery: BiasSet) -> int:
    """Return the smallest number of images that an occupation of the gallery ranks, if it has any."""
    sizes = Counter[str]() if gallery.pools is None else Counter(gallery.pools.tolist())
    return min((sizes[name] for name in gallery.occupations if sizes[name]), default=len(gallery.images))


def rank_gallery(
    gallery: BiasSet, attribute: str, texts: NDArray[np.floating], *, one_pool: bool = False
) -> Ranking:
    """Return the ranking task of a gallery by an attribute.

    Occupations that the model encodes identically and that rank the same images count once.

    Args:
        gallery: with occupations and K.
        attribute: one of its columns of groups.
        texts: unit embeddings [occupations, d].
        one_pool: rank all images for each occupation, even if each has images of its own.
    """
    pools = None if one_pool else gallery.own_pools(gallery.occupations)
    first = np.arange(len(texts)) if pools is not None else first_alike(texts)
    distinct, rows = np.unique(first, return_inverse=True)
    return Ranking(
        prompts=texts[distinct],
        groups=gallery.groups[attribute],
        k=gallery.k[attribute],
        pools=pools,
        units=gallery.units,
        names=tuple(gallery.occupations[place] for place in distinct),
        rows=rows,
    )


def _rows(before: BiasResult, after: BiasResult, ranking: Ranking) -> list[dict[str, Any]]:
    """Return one row per metric for the mean, then for each occupation that the model tells apart."""
    rows = []
    places = zip(ranking.first_positions.tolist(), ranking.names, strict=True)
    for place, occupation in [(None, MEAN), *places]:
        for metric in after.metrics:
            group, share = ("", np.nan) if place is None else after.preferred_group(metric, place)
            figure = after.figure(metric, place)
            effect = NO_CHANGE if after is before else compare_bias(after, before, metric, place)
            row: dict[str, Any] = {"occupation": occupation, "metric": metric, "group": group, "share": share}
            row |= {"before": before.figure(metric, place).value, "after": figure.value}
            row |= {"low": figure.low, "high": figure.high, **change_columns(effect)}
            row |= {"chance": figure.chance.value, "chance_low": figure.chance.low}
            row |= {"chance_high": figure.chance.high, "ceiling": figure.ceiling}
            rows.append(row)
    return rows
