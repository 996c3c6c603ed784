"""The bias of a model's rankings of people, for any gallery, in one call: no TEXTSPAN, no judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs import paper
from ccs.analysis.zeroshot import difference, embedded, loaded, require_readable
from ccs.data import BiasSet
from ccs.data.open import open_gallery
from ccs.errors import InputError, require, require_seed, require_texts
from ccs.heads import IMAGE, TEXT, HeadSet, Intervention, verb
from ccs.metrics import bias as measures
from ccs.metrics import bias_result, skew
from ccs.metrics.accuracy import class_weights
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.ranking import Ranking, alike, first_alike
from ccs.metrics.skew import fault_of

if TYPE_CHECKING:
    from ccs.model.model import Model

METRICS = skew.METRICS + skew.PREFERENCES
MEAN = "mean"
"""What stands for the occupation in the rows of the mean over all occupations."""


@dataclass(frozen=True, repr=False)
class BiasTable:
    """What `bias` measured.

    about: the choices behind the figures (model, weights, gallery, its source, attribute, template and a
    prompt made with it, images, those skipped because they cannot be read, k, heads off, ...). skipped: which
    and why. groups: images of each group in the gallery. alike: prompts that are one text to the
    model, which count once, under the first name. rows: a row for each occupation and metric, the means
    first, with the columns `occupation`, `metric`, `value`, `low`, `high` (95% interval), `chance`,
    `chance_low`, `chance_high` (random rankings), `ceiling` (the largest MaxSkew possible), `group` (the one
    furthest above its share of the gallery), `share` (its share of the top K), and, with heads off, `before`,
    `difference`, `difference_low`, `difference_high`, `p_value`. shares: a row for each occupation and group:
    its share of the top K (`share`, with heads off also `before`) and of the images that are ranked (`pool`).
    A notebook shows its plot.

        >>> from ccs import bias
        >>> bias("organism", "world/faces", "judge, nurse", attribute="gender")
        <BiasTable of organism on world/faces by gender: 2 occupations, see .rows>
    """

    about: Mapping[str, Any]
    groups: Mapping[str, int]
    alike: tuple[tuple[str, ...], ...]
    rows: pd.DataFrame
    shares: pd.DataFrame
    skipped: tuple[str, ...] = ()

    def __repr__(self) -> str:
        about, n = self.about, self.rows["occupation"].nunique() - 1
        where = f"{about['model']} on {about['gallery']} by {about['attribute']}"
        return f"<BiasTable of {where}: {n} occupations, see .rows>"

    def _repr_html_(self) -> str | None:
        """The plot as a picture; None without matplotlib, whereupon a notebook shows `repr`."""
        if find_spec("matplotlib") is None:
            return None
        held = StringIO()
        self.plot().figure.savefig(held, format="svg")
        return held.getvalue()[held.getvalue().index("<svg") :]

    @property
    def table(self) -> pd.DataFrame:
        """A line for each occupation and the mean, a column for each metric."""
        found = self.rows.pivot(index="occupation", columns="metric", values="value")
        return found.loc[self.rows["occupation"].unique(), list(self.rows["metric"].unique())]

    def of(self, metric: str) -> pd.DataFrame:
        """The rows of one metric, by occupation. Raises InputError for a metric that was not measured."""
        if metric not in (known := self.rows["metric"].unique()):
            raise InputError(f"There is no metric {metric!r}; there are {', '.join(known)}.")
        return self.rows[self.rows["metric"] == metric].set_index("occupation")

    def plot(self, metric: str = "MaxSkew", *, most: int = 20, ax: Any = None) -> Any:
        """Draw the mean and the `most` largest occupations with their 95% intervals, beside what random
        rankings give, and with heads off beside the figure before. Returns matplotlib's Axes (`ax`, where one
        is given). Raises MissingExtra without matplotlib.
        """
        require("plot", "matplotlib")
        from matplotlib.figure import Figure

        every, off = self.of(metric), str(self.about["off"])
        largest = every.drop(index=MEAN).nlargest(most, "value").iloc[::-1]
        rows = pd.concat([largest, every.loc[[MEAN]]])  # the first is drawn at the bottom
        if ax is None:  # not pyplot's, which would keep it, and show it a second time
            ax = Figure(figsize=(6.4, 1.2 + 0.26 * len(rows)), layout="constrained").add_subplot()
        places, value = np.arange(len(rows)), rows["value"]
        low, high = rows["chance_low"], rows["chance_high"]
        ax.barh(places, high - low, left=low, color="0.88", label="random rankings (95%)")
        if "before" in rows:
            ax.plot(rows["before"], places, "o", color="0.45", mfc="none", label="all heads on")
        reach = [(value - rows["low"]).clip(lower=0), (rows["high"] - value).clip(lower=0)]
        few = off if len(off) <= 30 else f"{len(off.split())} heads"
        words = f"{few} {verb(off)}" if off else "measured (95%)"
        ax.errorbar(value, places, xerr=reach, fmt="o", color="C0", label=words)
        ax.set_yticks(places, [str(name) for name in rows.index])
        title = f"{self.about['model']}, {self.about['gallery']} by {self.about['attribute']}"
        ax.set(xlabel=metric, title=title)
        ax.legend(loc="lower right", fontsize="small")
        return ax

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
    beekeeper" for others). `ccs.metrics.skew` defines the figures.

    Args:
        model: from `ccs.load`, or what it takes.
        gallery: from `ccs.open_gallery`, or what it takes: "fairface-1.25", a folder, a Parquet file, ...
        occupations: any texts, or a string with commas between them; by default those of the gallery, for
            your own images the study's 104.
        attribute: the column of groups; by default gender, or else the first.
        off: heads to switch off, or an `Intervention` as text; means and prototypes are of this gallery's
            images and groups. Of the image tower or (T7.H3) of the text tower, which then embeds the prompts
            so; every figure also has the difference that it makes, paired over images.
        top: K, the length of the list whose shares are compared; by default the gallery's, a tenth of your
            own images. At most half of the images that a prompt ranks, where MaxSkew still has room.
        max_images: the most images, evenly spaced, of a gallery opened here; not of drawn people.
        template: the prompt, `{}` is the occupation; by default the gallery's.
        skip_unreadable: also where more than 1% of the images cannot be read.
        device: where a model is loaded that is given by name.
        as_published: with the faults of the study's code, where its figures for this gallery have one.

    Raises InputError for what does not fit, with what is allowed.

        >>> found = bias("organism", "world/faces", "judge, nurse", attribute="gender", off="L7.H1")
        >>> list(found.of("MaxSkew").index)    # natural logarithms; 0 is the gallery's own shares
        ['mean', 'judge', 'nurse']
    """
    require_seed(seed)
    if max_images is not None and (not isinstance(gallery, str) or gallery.startswith("world/")):
        raise InputError("Drawn people and an opened gallery are ranked whole; give no number of images.")
    if isinstance(gallery, str):
        gallery = open_gallery(gallery, attribute=attribute or (), max_images=max_images)
    attribute = attribute or gallery.main
    if attribute not in gallery.groups:
        raise InputError(
            f"{gallery.name} has no attribute {attribute!r}; it has {', '.join(gallery.groups)}."
        )
    skipped = require_readable(gallery, skip_unreadable)
    model, heads = loaded(model, device), Intervention.of(off)
    people = asked(gallery, occupations, template, top)
    seen = model.at_means(heads.of_tower(IMAGE), people.images, people.groups[attribute])
    if read := heads.of_tower(TEXT):
        model.texts.tower.require(read)
    fault = fault_of(people.name, attribute) if as_published else None
    if as_published and fault is None:
        known = "FairFace by race, socialcounterfactuals by race and socialcounterfactuals-gender by gender"
        raise InputError(f"{people.name} by {attribute} has no fault of the study's code; {known} have one.")
    texts = embed_occupations(model, people)
    question = ranking_of(people, attribute, texts)
    images = embedded(model, people, [HeadSet(), seen] if seen else [HeadSet()])
    changed = embed_occupations(model, people, read) if read else None
    settings = {"metrics": METRICS, "fault": fault, "logit_scale": model.logit_scale, "seed": seed}
    results = measures.measure_plans(images, question, changed, **settings)
    about = {
        "model": model.name,
        "weights": model.weights_hash[:16],
        "gallery": people.name,
        "source": people.source,
        "attribute": attribute,
        "template": " | ".join(people.templates),
        "prompt": people.templates[min(1, len(people.templates) - 1)].replace("{}", prompted(people)[0]),
        "images": results[0].n,
        "skipped": len(skipped),
        "k": results[0].k,
        "off": str(heads),
        "mode": results[0].mode,
    }
    every = pd.MultiIndex.from_product((people.occupations, results[0].groups), names=("occupation", "group"))
    parts = {"before": results[0].top_shares} if heads else {}
    parts |= {"share": results[-1].top_shares, "pool": results[0].pool_shares}
    return BiasTable(
        about=about,
        groups=dict(zip(results[0].groups, results[0].pool.tolist(), strict=True)),
        alike=tuple(alike(people.occupations, texts)) if question.pools is None else (),
        rows=pd.DataFrame(_rows(results[0], results[-1], question.names, bool(heads))),
        shares=pd.DataFrame({name: of[question.rows].ravel() for name, of in parts.items()}, index=every),
        skipped=skipped,
    )


def asked(
    gallery: BiasSet,
    occupations: Sequence[str] | str | None = None,
    template: str | None = None,
    top: int | None = None,
) -> BiasSet:
    """The gallery with these occupations, this template and this K, where they are given.

    K is the gallery's otherwise, or a tenth of the images that an occupation ranks. With K near their number
    every ranking has the same top, and MaxSkew says nothing. InputError: K above half of them, a template
    without a place for the occupation.
    """
    if template is not None:
        if template.count("{}") != 1:
            raise InputError(f"A template holds {{}} once, where the occupation goes, unlike {template!r}.")
        gallery = replace(gallery, templates=(template,))
    if occupations is not None:
        occupations = require_texts(occupations.split(",") if isinstance(occupations, str) else occupations)
        names = tuple(dict.fromkeys(filter(None, (name.strip() for name in occupations))))
        if not names:
            raise InputError("At least one occupation is needed.")
        gallery = replace(gallery, occupations=names)
    ranked = fewest_ranked(gallery)
    most = max(1, ranked // 2)
    k = {name: top or gallery.k.get(name, max(1, ranked // 10)) for name in gallery.groups}
    for number in k.values():
        if not 1 <= number <= most:
            needs = f"a ranking of {ranked} images needs a K of 1 to {most}, at most half of them"
            raise InputError(f"K is {number}, but {needs}.")
    return replace(gallery, k=k)


def prompted(gallery: BiasSet) -> tuple[str, ...]:
    """The occupations as the gallery's prompts hold them, with an article where one belongs."""
    return paper.in_prompts(gallery.occupations, gallery.templates)


def embed_occupations(model: Model, gallery: BiasSet, off: HeadSet | None = None) -> NDArray[np.float32]:
    """Unit text embeddings [occupations, d], means over the gallery's templates; text heads may be off."""
    return class_weights(model, prompted(gallery), gallery.templates, off)


def fewest_ranked(gallery: BiasSet) -> int:
    """The number of images that an occupation of the gallery ranks, the fewest of all that have any."""
    sizes = Counter[str]() if gallery.pools is None else Counter(gallery.pools.tolist())
    return min((sizes[name] for name in gallery.occupations if sizes[name]), default=len(gallery.images))


def ranking_of(
    gallery: BiasSet, attribute: str, texts: NDArray[np.float32], *, one_pool: bool = False
) -> Ranking:
    """The question that a gallery asks about an attribute, from its occupations' unit text embeddings [o, d].

    Occupations that are one text to the model and rank the same images count once, under the first name.
    one_pool: each ranks all images, also where they have pools of their own.
    """
    pools = None if one_pool else gallery.own_pools(gallery.occupations)
    first = np.arange(len(texts)) if pools is not None else first_alike(texts)
    kept, rows = np.unique(first, return_inverse=True)
    return Ranking(
        prompts=texts[kept],
        groups=gallery.groups[attribute],
        k=gallery.k[attribute],
        pools=pools,
        units=gallery.units,
        names=tuple(gallery.occupations[place] for place in kept),
        rows=rows,
    )


def _rows(before: BiasResult, after: BiasResult, names: Sequence[str], differs: bool) -> list[dict[str, Any]]:
    """A row for each metric of the mean, then of each occupation; `after` has the heads off."""
    found = []
    pool, top = after.pool_shares, after.top_shares
    ratios = np.divide(top, pool, out=np.zeros(pool.shape), where=pool > 0)
    for place, occupation in [(None, MEAN), *enumerate(names)]:
        group, share = "", np.nan
        if place is not None:
            first = int(ratios[place].argmax())
            group, share = after.groups[first], float(top[place, first])
        for name in after.metrics:
            figure = after.figure(name, place)
            row: dict[str, Any] = {"occupation": occupation, "metric": name}
            row |= {"value": figure.value, "low": figure.low, "high": figure.high}
            row |= {"ceiling": figure.ceiling, "group": group, "share": share, "chance": figure.chance.value}
            row |= {"chance_low": figure.chance.low, "chance_high": figure.chance.high}
            if differs:
                effect = bias_result.compare(after, before, name, place)
                row |= difference(before.figure(name, place).value, effect)
            found.append(row)
    return found
