"""Zero-shot classification: class weights from templates, accuracy with its interval, and rates of groups.

As in Radford et al. 2021, a class's weight is the mean of its templates' unit text embeddings, scaled to unit
length. An image is assigned to the class whose weight has the largest cosine with it.

    >>> accuracy([[1, 0], [0, 1], [1, 1]], [[1, 0.1], [0, 1]], labels=[0, 1, 1]).top1.value
    0.6666666666666666
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import ranking, stats
from ccs.metrics.stats import Effect, Estimate

BATCH = 4096  # images scored at a time, which bounds memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Accuracy:
    """The accuracy of scored images.

    Attributes:
        top1: Top-1 accuracy, a share of 1, with its 95% interval (`stats.share_interval`).
        n: Number of images.
        labels: Class of each image [n].
        correct: Whether each image is assigned to its class [n].
    """

    top1: Estimate
    n: int
    labels: NDArray[np.int64]
    correct: NDArray[np.bool_]


def accuracy(
    image_embeddings: ArrayLike,
    class_weights: ArrayLike,
    labels: ArrayLike,
    seed: int = 0,
    *,
    subset: Sequence[int] | None = None,
    draws: int = 2000,
) -> Accuracy:
    """Measure zero-shot accuracy. If scores are equal, the first class is assigned.

    Args:
        image_embeddings: Image embeddings [n, d].
        class_weights: Class weights [classes, d].
        labels: Index of each image's class, int [n].
        seed: Random seed for resampling.
        subset: Indices of the classes to score. Only their images count, and only these classes can be
            assigned. The result's `labels` are then positions in the sorted subset.
        draws: Number of resamples.

    Returns:
        The accuracy.

    Raises:
        InputError: If a label has no class, no image has a class of the subset, or there are no images.
    """
    images = ranking.finite_rows(image_embeddings, "image embeddings")
    weights = ranking.unit(class_weights, "class weights")
    truth = np.asarray(labels)
    if truth.shape != (len(images),) or truth.dtype.kind not in "iu":
        raise InputError(f"There must be one whole number as label for each of the {len(images)} images.")
    if truth.min() < 0 or truth.max() >= len(weights):
        raise InputError(f"Labels {truth.min()} to {truth.max()} do not fit {len(weights)} classes.")
    if subset is not None:
        chosen = np.unique(list(subset))
        inside = np.isin(truth, chosen)
        if not inside.any():
            raise InputError(f"No image has a class of the subset {list(subset)}.")
        images, weights, truth = images[inside], weights[chosen], np.searchsorted(chosen, truth[inside])
    truth = truth.astype(np.int64)
    right = correct(images, weights, truth)
    top1 = stats.share_interval(stats.bootstrap(right, draws=draws, seed=seed), len(right))
    return Accuracy(top1=top1, n=len(images), labels=truth, correct=right)


def correct(image_embeddings: ArrayLike, class_weights: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """Test whether each image is assigned to its class: accuracy without an interval, for searches.

    Args:
        image_embeddings: Image embeddings [n, d].
        class_weights: Class weights [classes, d].
        labels: Index of each image's class, int [n].

    Returns:
        Whether it is assigned to its class, bool [n].
    """
    images = ranking.finite_rows(image_embeddings, "image embeddings")
    weights = ranking.unit(class_weights, "class weights")
    # Images need not be unit vectors: their length does not change the ranking.
    parts = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
    assigned = [ranking.products(part, weights).argmax(axis=1) for part in parts]
    return np.asarray(np.concatenate(assigned) == np.asarray(labels))


def worst_group(correct: NDArray[np.bool_], labels: ArrayLike, groups: ArrayLike | None) -> float:
    """Return the lowest accuracy of a class within a group (Sagawa et al. 2020, arXiv 1911.08731).

    Args:
        correct: Whether each image is assigned to its class, bool [n].
        labels: Class of each image [n].
        groups: Group of each image [n], such as the place where a bird is shown. None without groups.

    Returns:
        A share of 1; NaN without groups. Classes without images of a group don't count.
    """
    if groups is None:
        return float("nan")
    cells = [np.asarray(labels), np.asarray(groups, np.str_)]
    return float(pd.Series(correct).groupby(cells).mean().min())


def near_chance(value: float, low: float, classes: int) -> str | None:
    """Warn about a model that is hardly better than guessing.

    The interval then reaches down to twice the accuracy of guessing (1 / classes), or to 0.1 above it,
    whichever is lower.

    Args:
        value: Accuracy without ablation, a share of 1.
        low: Lower end of its 95% interval.
        classes: Number of classes.

    Returns:
        A warning with what to check, or None if the model is better.
    """
    guess = 1 / classes
    if classes < 2 or low > min(2 * guess, guess + 0.1):
        return None
    return (
        f"With all heads on {value:.1%} are right; guessing among {classes:,} classes gives {guess:.1%}. "
        "Check the order of the class names, the template, the activation (QuickGELU), and whether the model "
        "has learned such images at all."
    )


def compare_accuracies(ours: Accuracy, baseline: Accuracy, *, draws: int = 10_000, seed: int = 0) -> Effect:
    """Compare two accuracies by paired bootstrap.

    Args:
        ours: Accuracy to compare.
        baseline: Accuracy of the baseline, on the same images in the same order.
        draws: Number of resamples.
        seed: Random seed for resampling.

    Returns:
        The accuracy minus the baseline's, a share of 1.

    Raises:
        InputError: If the images' classes differ.
    """
    if not np.array_equal(ours.labels, baseline.labels):
        raise InputError("Two accuracies can be compared only on the same images in the same order.")
    changes = ours.correct.astype(float) - baseline.correct
    drawn = stats.mean_draws(changes, draws, seed)
    return stats.effect(float(changes.mean()), drawn, units=len(changes))


# Rates of groups ------------------------------------------------------------------------------------------


def group_rates(groups: Mapping[str, ArrayLike], before: ArrayLike, after: ArrayLike) -> pd.DataFrame:
    """Compute the rate of each group, before and after ablation.

    Args:
        groups: Column -> group of each person [people].
        before: Whether each person is assigned to the category before ablation, bool [people].
        after: The same after ablation.

    Returns:
        One row per group that occurs, in alphabetical order: the columns of `groups`, the number of people
        `n`, the rates `before` and `after`, and `low` and `high`, the 95% interval of `after` (Wilson 1927).

    Raises:
        InputError: If lengths differ or there are no people.
    """
    columns = {name: np.asarray(of, str) for name, of in groups.items()}
    columns |= {"before": np.asarray(before, bool), "after": np.asarray(after, bool)}
    shapes = {column.shape for column in columns.values()}
    if len(shapes) > 1 or shapes & {(), (0,)}:
        raise InputError(f"Expected one group and one assignment for each person; got {sorted(shapes)}.")
    cells = pd.DataFrame(columns).groupby(list(groups))
    rates = cells.mean().assign(n=cells.size()).reset_index()
    low, high = stats.wilson(rates["after"], rates["n"])
    return rates[[*groups, "n", "before", "after"]].assign(low=low, high=high)


def rate_gap(assigned: ArrayLike, groups: ArrayLike, *, draws: int = 2_000, seed: int = 0) -> dict[str, Any]:
    """Test whether the groups' rates differ, by shuffling groups among people.

    Args:
        assigned: Whether each person is assigned to the category, bool [people].
        groups: Group of each person [people].
        draws: Number of shuffles.
        seed: Random seed for the shuffles.

    Returns:
        `group`, the groups with the highest and the lowest rate; `after`, the difference of their rates;
        `chance`, the mean difference when groups are shuffled among the people; `detectable`, the difference
        between two groups of these sizes that a test finds with 80% power; and `p_value`, the share of
        shuffles with a difference at least as large, the observed one included.

    Raises:
        InputError: If there is only one group.
    """
    hits, people = np.asarray(assigned, dtype=float), np.asarray(groups, str)
    names, codes, sizes = np.unique(people, return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise InputError(f"A gap needs two groups or more; everyone is in {names[0]!r}.")

    def rates(of: np.ndarray) -> np.ndarray:
        return np.bincount(codes, weights=of) / sizes

    rng, observed = np.random.default_rng(seed), rates(hits)
    highest, lowest, gap = observed.argmax(), observed.argmin(), float(np.ptp(observed))
    shuffled = np.array([np.ptp(rates(rng.permutation(hits))) for _ in range(draws)])
    variance = hits.mean() * (1 - hits.mean()) * (1 / sizes[highest] + 1 / sizes[lowest])
    return {
        "group": f"{names[highest]} minus {names[lowest]}" if gap else "no difference",
        "after": gap,
        "chance": float(shuffled.mean()),
        "detectable": float(stats.DETECTABLE * np.sqrt(variance)),
        "p_value": float((1 + (shuffled >= gap - 1e-12).sum()) / (1 + draws)),
    }
