"""How biased is a model's ranking of people for occupations?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ccs.analysis import galleries, inputs
from ccs.analysis.preference import Preference, measure_preference
from ccs.analysis.result import Chart, Result
from ccs.data import BiasSet
from ccs.errors import InputError, require_seed
from ccs.heads import IMAGE, TEXT, HeadSet, Intervention, changes, effect_word
from ccs.metrics import bias as rankings
from ccs.metrics import group_gaps, preference, skew
from ccs.metrics.bias_result import BiasResult, compare_bias
from ccs.metrics.ranking import Ranking, alike
from ccs.metrics.skew import MetricName
from ccs.metrics.stats import Estimate

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

    The model ranks the gallery's images for each occupation by cosine with its prompt (the mean over the
    gallery's templates; with the paper's, "A photo of judge" for its own occupations and "A photo of a
    beekeeper" for others). `ccs.metrics.skew` and `ccs.metrics.group_gaps` define the metrics.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: from `ccs.open_gallery`, or a name that it takes: "fairface-1.25", a folder, a file, ...
        occupations: any texts, or one text with commas between them; by default those of the gallery, for
            your own images the paper's 104.
        attribute: the column of groups; by default gender, or else the first. "gender,race" crosses two
            (`ccs.analysis.galleries`); people in crossed groups of fewer than 10 are left out.
        ablate: heads to ablate, such as "L8.H11 L9.H2=0.3", of the image encoder or (T7.H3) of the text
            encoder. Means are those of this gallery's images, and so are edits
            (`L6.H1=erase:skin tone`) that `ccs.edit_heads` hasn't fitted on others.
        top: K, the length of the list whose shares are compared, at most half of the images that a prompt
            ranks; by default the gallery's, a tenth of your own images.
        template: the prompt, with `{}` for the occupation; by default the gallery's.
        prompts: a named prompt set such as "traits" in place of occupations and template
            (`ccs.texts.prompts`).
        max_images: maximum number of images of a gallery opened here, drawn at random from each group; not of
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
        raise InputError("Synthetic people and opened galleries are ranked whole; leave out the limit.")
    people, attribute, left_out = galleries.open_people(
        gallery, attribute, max_images, skip_unreadable=skip_unreadable
    )
    model, ablation = inputs.load_model(model, device), Intervention.from_heads(ablate)
    people = galleries.set_question(people, occupations, template, top, prompts)
    if as_published and not skew.has_order_fault(people.name, attribute):
        raise InputError(f"The paper's bug affects FairFace by race, not {people.name} by {attribute}.")
    in_images = model.at_means(ablation.of_encoder(IMAGE), people.images)
    if any(change.attribute for _, change in changes(in_images)):
        from ccs.model.editing import fit_edits  # imports PyTorch

        in_images, _ = fit_edits(model, in_images, people.images, people.groups)
    if in_texts := ablation.of_encoder(TEXT):
        model.texts.encoder.require_heads(in_texts)
    images = inputs.embed_ablations(
        model, people.images, [HeadSet(), in_images] if in_images else [HeadSet()]
    )
    texts = [
        galleries.embed_occupations(model, people, heads)
        for heads in ([None, in_texts] if in_texts else [None])
    ]
    table = measure_people(
        model, people, attribute, images, texts, ablate=ablation, as_published=as_published, seed=seed
    )
    description = {
        **table.about,
        "skipped": len(people.skipped),
        "left_out": galleries.format_left_out(left_out),
    }
    if warning := inputs.warn_if_small("bias", min(table.groups.values())):
        description["warning"] = warning
    return replace(table, about=description, skipped=people.skipped)


def measure_people(
    model: Model,
    people: BiasSet,
    attribute: str,
    images: inputs.Embeddings,
    texts: inputs.Embeddings,
    *,
    ablate: HeadSet,
    metrics: Sequence[MetricName] = METRICS,
    as_published: bool = False,
    seed: int = 0,
    draws: int | None = None,
) -> BiasTable:
    """Measure the bias of embedded people and occupations.

    Args:
        model: that embedded them.
        people: the gallery, with the occupations, prompts, and K in force (`set_question`).
        attribute: one of its columns of groups.
        images: embeddings [n, d] before ablation and, if the image encoder is ablated, after.
        texts: embeddings [occupations, d] before ablation and, if the text encoder is ablated, after.
        ablate: the heads that are ablated in the second of both.
        metrics: names of metrics.
        as_published: as in `bias`.
        seed: of resampling.
        draws: number of resamples; by default 500, and 1,000 for the preference.

    Returns:
        BiasTable: as `bias` returns it.
    """
    ranking = galleries.rank_gallery(people, attribute, texts[0])
    ends = [(images[0], texts[0]), (images[-1], texts[-1])][: len(images) + len(texts) - 1]
    prompts = [of_end[ranking.first_positions] for _, of_end in ends]
    results = rankings.measure_ablations(
        [of_end for of_end, _ in ends],
        ranking,
        prompts,
        metrics=metrics,
        as_published=as_published,
        logit_scale=model.logit_scale,
        seed=seed,
        draws=draws or rankings.DRAWS,
    )
    before, after = results[0], results[-1]
    choices = inputs.describe_model(model) | {
        "gallery": people.name,
        "source": people.source,
        "attribute": attribute,
        "template": " | ".join(people.templates),
        "prompt": people.templates[min(1, len(people.templates) - 1)].replace(
            "{}", galleries.in_prompts(people)[0]
        ),
        "images": before.n,
        "skipped": 0,
        "left_out": "",
        "k": before.k,
        "ties": int(after.ties[ranking.rows].sum()),
        "ablate": str(ablate),
        "mode": before.mode,
    }
    cases = pd.MultiIndex.from_product((people.occupations, before.groups), names=("occupation", "group"))
    shares = {"before": before.top_shares, "after": after.top_shares, "pool": before.pool_shares}
    return BiasTable(
        about=choices,
        groups=dict(zip(before.groups, np.bincount(ranking.codes).tolist(), strict=True)),
        alike=tuple(alike(people.occupations, texts[0])) if ranking.pools is None else (),
        rows=pd.DataFrame(_rows(before, after, ranking)),
        shares=pd.DataFrame({name: of[ranking.rows].ravel() for name, of in shares.items()}, index=cases),
        preference=measure_preference(
            model,
            ends,
            ranking,
            people.templates,
            ablate=ablate.of_encoder(TEXT) or None,
            seed=seed,
            draws=draws or preference.DRAWS,
        ),
        within_sets=rankings.chance_within_units(
            images[-1], replace(ranking, prompts=prompts[-1]), seed=seed
        ),
    )


def _rows(before: BiasResult, after: BiasResult, ranking: Ranking) -> list[dict[str, Any]]:
    """Return one row per metric for the mean, then for each occupation that the model tells apart."""
    rows = []
    for place, occupation in [(None, MEAN), *enumerate(ranking.names)]:
        for metric in after.metrics:
            group, share = after.preferred_group(metric, place)
            figure, old = after.figure(metric, place), before.figure(metric, place).value
            effect = inputs.NO_CHANGE if after is before else compare_bias(after, before, metric, place)
            row: dict[str, Any] = {"occupation": occupation, "metric": metric, "group": group, "share": share}
            row |= inputs.value_columns(old, figure, effect) | {"chance": figure.chance.value}
            row |= {"chance_low": figure.chance.low, "chance_high": figure.chance.high}
            rows.append(row | {"ceiling": figure.ceiling})
    return rows
