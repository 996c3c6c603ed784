"""General preference or stereotype: the part of the group scores that all prompts share, and the rest.

A prompt's group scores are each group's mean score minus the mean over groups. A model can prefer a group
whatever the prompt says (a general preference), or different groups for different prompts. MaxSkew is high in
both cases, so it can't tell them apart.

Group scores are noisy, and squaring them adds the noise. So every square here is a mean product of two
*different* blocks of images, which averages the true value:

- total: the same prompt on two blocks, mean over prompts and pairs of blocks, summed over groups;
- general: two different prompts on two blocks, mean over pairs of prompts and of blocks;
- specific: total minus general.

This is the crossed random-effects (variance components) estimate, and the limit of split-half products over
all splits. It averages 0 where groups don't matter, so a single estimate can be slightly negative.

"Chance" means sampling noise: which people happen to be in a gallery. A network of random weights is not at
chance. It maps the pixels of a skin tone or a hair style somewhere, and texts of one template have most of
their embedding in common, so it has a real, general preference without a meaning: a ViT-B-32 of random
weights has general shares of 0.86 to 0.98 on synthetic faces, and is at chance with shuffled groups.
`docs/concepts.md` has these results and those of real faces.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.errors import InputError
from ccs.metrics import skew, stats
from ccs.metrics.stats import Effect, Estimate, Floats

Verdict = Literal[
    "mostly a general preference",
    "mostly specific to occupations",
    "both",
    "undecided",
    "no evidence of either",
]
BLOCKS = 200
"""The most blocks of images; more cost time and make the estimate hardly more exact."""
DRAWS = 1_000
AT_ONCE = 100
"""Draws whose orders are held in memory together."""
MOSTLY = 2 / 3
"""The share of the total from which a part is most of it."""


@dataclass(frozen=True)
class Split:
    """The split of one model's group scores.

    Attributes:
        verdict: Verdict in words.
        share: General part as a share of the total, 0 to 1, with its 95% interval. NaN without evidence of
            any preference.
        chance: Share of the general part for the same scores if prompts agreed only by chance.
        total, general, specific: Sums over groups of squared group scores, averaged over prompts: all, the
            part that all prompts share, and the rest.
        p_total: P-value of the total, against shuffled group labels.
        p_general: P-value of the share, against its chance level.
        groups: Names of the groups.
        direction: Score of each group averaged over prompts (the general part), with its interval.
        prompts: Number of prompts.
        blocks: Number of blocks of images.
    """

    verdict: Verdict
    share: Estimate
    chance: Estimate
    total: Estimate
    general: Estimate
    specific: Estimate
    p_total: float
    p_general: float
    groups: tuple[str, ...]
    direction: tuple[Estimate, ...]
    prompts: int
    blocks: int

    @property
    def preferred_group(self) -> str:
        """Return the group that the general part puts first."""
        return self.groups[int(np.argmax([score.value for score in self.direction]))]


@dataclass(frozen=True)
class Parts:
    """The parts of the group scores of one model's rankings: each value first, then its bootstrap draws.

    Attributes:
        total: Sum over groups of squared group scores, averaged over prompts [1 + draws].
        general: Part that all prompts share [1 + draws].
        specific: Part that is specific to prompts: `total` minus `general` [1 + draws].
        direction: Score of each group averaged over prompts [1 + draws, groups].
        cells: Group scores of blocks of images [prompts, blocks, groups].
    """

    total: Floats
    general: Floats
    specific: Floats
    direction: Floats
    cells: Floats


@dataclass(frozen=True)
class PartChanges:
    """Changes of the two parts of the group scores by an ablation, or by another change of a model.

    Attributes:
        general: Change of the general part as a share of the total before, with its paired p-value.
        specific: The same for the specific part.
    """

    general: Effect
    specific: Effect

    @property
    def moves(self) -> str:
        """Return which part it lowers or raises: "general", "specific", "both", or "neither"."""
        moved = [name for name in ("general", "specific") if getattr(self, name).p_value <= 1 - stats.LEVEL]
        return "both" if len(moved) == 2 else moved[0] if moved else "neither"


def measure_parts(
    scores: ArrayLike, groups: ArrayLike, *, units: ArrayLike | None = None, seed: int = 0, draws: int = DRAWS
) -> Parts:
    """Measure the general and the prompt-specific part of the group scores of rankings.

    Two models with the same images, prompts, and seed have the same draws: see `compare_parts`.

    Args:
        scores: Cosines or logits of images for prompts [prompts, n]. Prompts that the model encodes
            identically should occur once (`Ranking.prompts` of `ccs.analysis.bias.rank_gallery`).
        groups: Group of each image [n].
        units: Unit number of each image [n]. Images with the same number stay in one block. By default each
            image is its own unit.
        seed: Random seed for blocks and resampling.
        draws: Number of bootstrap draws, which resample prompts and blocks of images.

    Returns:
        The parts, in squared units of the scores.

    Raises:
        InputError: If there are fewer than two prompts, two groups, or two images of a group.
    """
    stats.check_draws(draws)
    codes = np.unique(np.asarray(groups, np.str_), return_inverse=True)[1]
    cells, rng = block_scores(scores, codes, units=units, seed=seed), np.random.default_rng((seed, 52))
    prompts, blocks = cells.shape[:2]
    of_blocks, of_prompts = (rng.multinomial(n, np.full(n, 1 / n), size=draws) for n in (blocks, prompts))
    # A draw of one block, or one prompt, has no pair.
    whole = ((of_blocks > 0).sum(1) > 1) & ((of_prompts > 0).sum(1) > 1)
    weights = (np.vstack([np.ones(of.shape[1]), of[whole]]) for of in (of_blocks, of_prompts))
    return _parts(cells, *weights)


def compare_parts(after: Parts, before: Parts) -> PartChanges:
    """Compare the parts of two models' rankings, or of one model's with and without ablation.

    Args:
        after: Parts with some heads ablated, from `measure_parts`.
        before: Parts without ablation, for the same images, prompts, groups, seed, and number of draws.

    Returns:
        The changes as shares of the total before.

    Raises:
        InputError: If the two have different numbers of draws.
    """
    if after.total.shape != before.total.shape:
        raise InputError("Two splits can be compared only for the same images, prompts, seed, and draws.")
    size, changes = max(before.total[0], 1e-12), dict[str, Effect]()
    for name in ("general", "specific"):
        value, *drawn = (getattr(after, name) - getattr(before, name)) / size
        changes[name] = stats.effect(float(value), np.array(drawn))
    return PartChanges(**changes)


def split(
    scores: ArrayLike, groups: ArrayLike, *, units: ArrayLike | None = None, seed: int = 0, draws: int = DRAWS
) -> Split:
    """Split the group scores of rankings into a general and a prompt-specific part.

    Args:
        scores: Logits of images for prompts [prompts, n]. Prompts that the model encodes identically should
            occur once.
        groups: Group of each image [n].
        units: Unit number of each image [n]. Images with the same number stay in one block. By default each
            image is its own unit.
        seed: Random seed for blocks, resampling, and shuffling.
        draws: Number of bootstrap draws, and of shuffles.

    Returns:
        The split, with intervals over resampled prompts and blocks of images.

    Raises:
        InputError: If there are fewer than two prompts, two groups, or two images of a group.
    """
    parts = measure_parts(scores, groups, units=units, seed=seed, draws=draws)
    total, general, specific = (
        stats.interval(float(values[0]), values[1:], center=True)
        for values in (parts.total, parts.general, parts.specific)
    )
    p_total = _p_value(total.value, _shuffled_blocks(parts.cells, draws, seed))
    by_chance = _shuffled_prompts(parts.cells, draws, seed)
    ratio = general.value / total.value if total.value > 0 else np.nan
    p_general, drawn = _p_value(ratio, by_chance), (parts.general[1:], parts.total[1:])
    share = chance = stats.UNKNOWN
    if p_total <= 1 - stats.LEVEL:
        shares = np.divide(*drawn, out=np.zeros(len(drawn[1])), where=drawn[1] > 0)
        share = stats.interval(ratio, np.clip(shares, -1, 1), center=True).clipped()
        chance = stats.interval(0.0, by_chance).clipped()
    return Split(
        verdict=_verdict(share, p_total, p_general, specific),
        share=share,
        chance=chance,
        total=total,
        general=general,
        specific=specific,
        p_total=p_total,
        p_general=p_general,
        groups=tuple(np.unique(np.asarray(groups, np.str_)).tolist()),
        direction=tuple(stats.interval(float(column[0]), column[1:]) for column in parts.direction.T),
        prompts=parts.cells.shape[0],
        blocks=parts.cells.shape[1],
    )


def block_scores(
    scores: ArrayLike, codes: NDArray[np.integer], *, units: ArrayLike | None = None, seed: int = 0
) -> Floats:
    """Return the group scores of random blocks of images [prompts, blocks, groups].

    Args:
        scores: Logits of images for prompts [prompts, n].
        codes: Group of each image [n], as a number from 0.
        units: Unit number of each image [n]. Images with the same number stay in one block.
        seed: Random seed for the blocks.

    Raises:
        InputError: As in `split`.
    """
    values, n_groups = np.asarray(scores, np.float64), int(codes.max(initial=0)) + 1
    if values.ndim != 2 or values.shape[1:] != codes.shape or not np.isfinite(values).all():
        raise InputError(f"Expected finite scores [prompts, {len(codes)}]; got shape {values.shape}.")
    if len(values) < 2 or n_groups < 2:
        raise InputError(
            f"Expected at least 2 different prompts and 2 groups; got {len(values)} and {n_groups}. "
            "With fewer, a preference can't be told from a stereotype."
        )
    block = _blocks(codes, units, seed)
    cell = block * n_groups + codes
    shape = (int(block.max()) + 1, n_groups)
    counts = np.bincount(cell, minlength=shape[0] * n_groups)
    sums = np.stack([np.bincount(cell, row, len(counts)) for row in values])
    means = (sums / counts).reshape(len(values), *shape)
    return np.asarray(means - means.mean(axis=2, keepdims=True))


def _blocks(codes: NDArray[np.integer], units: ArrayLike | None, seed: int) -> NDArray[np.intp]:
    """Deal images into at most BLOCKS blocks [n], each with images of every group."""
    rng, sizes = np.random.default_rng((seed, 51)), np.bincount(codes)
    if units is None:
        count = min(BLOCKS, int(sizes.min()))
        order = rng.permutation(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        dealt = np.empty(len(codes), np.intp)
        dealt[order] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    else:
        unit = np.unique(np.asarray(units), return_inverse=True)[1]
        dealt = rng.permutation(int(unit.max()) + 1)[unit]
        count = min(BLOCKS, int(dealt.max()) + 1)
        while count > 1 and len(np.unique(dealt % count * len(sizes) + codes)) < count * len(sizes):
            count //= 2
    if count < 2:
        raise InputError(f"Expected at least 2 images of each group; got {sizes.tolist()}.")
    return np.asarray(dealt % count, np.intp)


def _parts(cells: Floats, of_blocks: Floats, of_prompts: Floats) -> Parts:
    """Return the parts for weights of blocks [draws, blocks] and of prompts [draws, prompts].

    Products of a block or a prompt with itself, which a draw may hold several times, are left out.
    """
    prompts, blocks, groups = cells.shape
    block_pairs = of_blocks.sum(1) ** 2 - (of_blocks**2).sum(1)
    prompt_pairs = of_prompts.sum(1) ** 2 - (of_prompts**2).sum(1)
    by_block = cells.transpose(1, 0, 2).reshape(blocks, -1)
    sums = (of_blocks @ by_block).reshape(-1, prompts, groups)  # [draws, prompts, groups]
    squares = of_blocks**2 @ (cells**2).sum(2).T  # products of a block with itself [draws, prompts]
    same = ((sums**2).sum(2) - squares) / block_pairs[:, None]
    total = (of_prompts * same).sum(1) / of_prompts.sum(1)
    mixed = (of_prompts @ cells.reshape(prompts, -1)).reshape(-1, blocks, groups)  # summed over prompts
    together = np.einsum("dp,dpg->dg", of_prompts, sums)
    pairs = ((together**2).sum(1) - np.einsum("db,dbg->d", of_blocks**2, mixed**2)) / block_pairs
    general = (pairs - (of_prompts**2 * same).sum(1)) / prompt_pairs
    direction = together / (of_blocks.sum(1) * of_prompts.sum(1))[:, None]
    return Parts(total, general, total - general, direction, cells)


def _shuffled_blocks(cells: Floats, draws: int, seed: int) -> Floats:
    """Return the total [draws] with the groups of each block shuffled: no preference at all."""
    prompts, blocks, groups = cells.shape
    by_block, squares = cells.reshape(prompts, -1), []
    for orders in _group_orders(blocks, groups, draws, np.random.default_rng((seed, 53))):
        sums = (by_block @ orders).reshape(prompts, -1, groups)
        squares.append((sums**2).sum((0, 2)))
    return np.asarray((np.concatenate(squares) - (cells**2).sum()) / (prompts * blocks * (blocks - 1)))


def _shuffled_prompts(cells: Floats, draws: int, seed: int) -> Floats:
    """Return the general share [draws] with the groups of each prompt shuffled: prompts agree by chance."""
    prompts, blocks, groups = cells.shape
    total = _parts(cells, np.ones((1, blocks)), np.ones((1, prompts))).total[0]  # the same in any order
    if total <= 0:
        return np.zeros(draws)
    by_prompt, pairs = cells.transpose(1, 0, 2).reshape(blocks, -1), []
    for orders in _group_orders(prompts, groups, draws, np.random.default_rng((seed, 54))):
        sums = by_prompt @ orders  # over prompts [blocks, draws * groups]
        products = sums.sum(0) ** 2 - (sums**2).sum(0)  # of different blocks
        pairs.append(products.reshape(-1, groups).sum(1) / (blocks * (blocks - 1)))
    return np.asarray((np.concatenate(pairs) - prompts * total) / (prompts * (prompts - 1)) / total)


def _group_orders(rows: int, groups: int, draws: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield random orders of each row's groups as matrices of 0 and 1 [rows * groups, draws * groups]."""
    plain, place = np.tile(np.arange(groups), (rows, 1)), np.arange(groups)[:, None, None]
    for start in range(0, draws, AT_ONCE):
        orders = [rng.permuted(plain, axis=1) for _ in range(start, min(start + AT_ONCE, draws))]
        chosen = np.stack(orders, axis=1)[:, None] == place  # [rows, groups, draws, groups]
        yield chosen.reshape(rows * groups, -1).astype(np.float64)


def _p_value(value: float, by_chance: Floats) -> float:
    """Return the share of values by chance that are at least as large; 1 for a value that is NaN."""
    ties = value - 1e-9 * abs(value)  # a shuffle that restores the order is equal but for rounding
    return float((1 + (by_chance >= ties).sum()) / (1 + len(by_chance))) if value == value else 1.0


def _verdict(share: Estimate, p_total: float, p_general: float, specific: Estimate) -> Verdict:
    """Return the verdict in words: "undecided" if the interval allows that either part is most of the total.

    A part without evidence doesn't count, whatever its share.
    """
    if p_total > 1 - stats.LEVEL:
        return "no evidence of either"
    if p_general > 1 - stats.LEVEL or share.value <= 1 - MOSTLY:
        return "mostly specific to occupations" if share.high < MOSTLY else "undecided"
    if specific.low <= 0 or share.value >= MOSTLY:
        return "mostly a general preference" if share.low > 1 - MOSTLY else "undecided"
    return "both"


@dataclass(frozen=True)
class FirstGroup:
    """The group that a prompt puts first.

    Attributes:
        prompt: Name of the prompt.
        group: Group whose share of the top K is the largest multiple of its share of the gallery.
        share: Share of the group in the top K.
        pool: Share of the group in the gallery.
        max_skew: MaxSkew of the top K.
        chance: MaxSkew of random rankings, with its 95% range.
    """

    prompt: str
    group: str
    share: float
    pool: float
    max_skew: float
    chance: Estimate

    @property
    def by_chance(self) -> bool:
        """Return whether a random ranking is as skewed in one of 40 cases or more."""
        return self.max_skew <= self.chance.high


def first_groups(
    names: Sequence[str], scores: ArrayLike, groups: ArrayLike, k: int, *, seed: int = 0, draws: int = DRAWS
) -> tuple[FirstGroup, ...]:
    """Return the group that each prompt puts first among its top K images.

    Args:
        names: Names of the prompts.
        scores: Scores [prompts, n]. Equal scores are ranked in the order of the images.
        groups: Group of each image [n].
        k: Length of the top list.
        seed: Random seed for the random rankings.
        draws: Number of random rankings.
    """
    labels, codes = np.unique(np.asarray(groups, np.str_), return_inverse=True)
    pool, values = np.bincount(codes), np.asarray(scores)
    shares = skew.target_shares(pool)
    rng = np.random.default_rng((seed, 55))
    random_tops = rng.multivariate_hypergeometric(pool, k, size=draws)
    random_skews = skew.max_skew_of(random_tops, shares)
    chance = stats.interval(float(random_skews.mean()), random_skews)
    firsts = []
    for name, row in zip(names, values, strict=True):
        counts = np.bincount(codes[np.argsort(-row, kind="stable")[:k]], minlength=len(labels))
        place = int((counts / shares).argmax())
        share, skewed = float(counts[place] / k), float(skew.max_skew_of(counts, shares))
        firsts.append(FirstGroup(name, str(labels[place]), share, float(shares[place]), skewed, chance))
    return tuple(firsts)
