"""Resampling of the images that prompts rank, and the top K of each draw.

A resampled ranking holds an image as often as it was drawn. The order of the images never changes, so a draw
is one weight per image, and its top K ends where the weights along the ranking sum to K.
"""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccs.metrics import group_gaps, ranking, stats
from ccs.metrics.ranking import Ranking
from ccs.metrics.skew import target_shares
from ccs.metrics.stats import Floats

FEW = 32  # draws for metrics that read every rank of a top K
SIGMAS = 4.5  # standard deviations beyond K in which the end of a draw's top K is searched first
_HALVES, _OF_PROMPT, _TIES = 3, 4, 5  # components of random seeds


class Pool:
    """Images and the prompts that rank them, with everything that all ablation sets share.

    Args:
        question: Ranking question with all prompts and images.
        rows: Positions of this pool's prompts in the question [p].
        images: Positions of this pool's images among all images [m].
        seed: Random seed for all draws.
        n_draws: Number of resamples, at least 40.
        as_published: Whether to put target shares in the wrong order, as the paper's code does
            (`ccs.analysis.inputs.has_order_fault`).

    Attributes:
        codes: Group of each image [m], as a number below `n_groups`.
        units: Unit number of each image [m]. Images with the same number are drawn together. None if each is
            drawn alone.
        member: Whether each image is in each group, bool [groups, m].
        counts: Number of images of each group [groups].
    """

    def __init__(
        self,
        question: Ranking,
        rows: NDArray[np.intp],
        images: NDArray[np.intp],
        seed: list[int],
        n_draws: int,
        as_published: bool = False,
    ) -> None:
        self.question, self.rows, self.images, self.seed = question, rows, images, seed
        self.n_draws, self.as_published, self.n_groups = n_draws, as_published, len(question.group_names)
        self.codes: NDArray[np.uint8] = question.codes[images]
        self.units = None if question.units is None else question.units[images]
        self.member = np.equal.outer(np.arange(self.n_groups), self.codes)
        self.counts = self.member.sum(axis=1)

    @cached_property
    def half(self) -> NDArray[np.bool_]:
        """The half of the images [m] on which groups are chosen (`group_gaps`)."""
        return group_gaps.halves(self.codes, [*self.seed, _HALVES], self.units)

    @cached_property
    def drawn(self) -> tuple[NDArray[np.unsignedinteger], Floats]:
        """How often each image was drawn [m, draws], in the smallest type, and images per group [draws, g].

        A draw has as many units as the pool.
        """
        stats.check_draws(self.n_draws)
        rng, groups = np.random.default_rng(self.seed), self.n_groups
        unit = np.arange(len(self.codes))
        if self.units is not None:
            unit = np.unique(self.units, return_inverse=True)[1]
        n = int(unit.max()) + 1
        # Images of each unit and group; a draw's images are those of its units.
        of_units = np.bincount(unit * groups + self.codes, minlength=n * groups).reshape(n, groups)
        times = np.empty((self.n_draws, n), dtype=np.min_scalar_type(n * int(of_units.sum(axis=1).max())))
        for draw in range(self.n_draws):
            times[draw] = np.bincount(rng.integers(0, n, n), minlength=n)
        counts = np.stack([row @ of_units for row in times]).astype(np.float64)
        return np.take(times.T, unit, axis=0), counts

    def shares(self, counts: ArrayLike) -> Floats:
        """Return target shares [..., groups] for a pool's counts."""
        pool = np.asarray(counts, dtype=np.float64)
        if self.as_published:  # groups in the order in which they first appear
            pool = pool[..., np.argsort(np.unique(self.codes, return_index=True)[1])]
        return target_shares(pool)

    def of(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Select the cosines [p, m] of these prompts and images from the question's [prompts, n]."""
        return scores if self.question.pools is None else scores[np.ix_(self.rows, self.images)]

    def top(self, scores: NDArray[np.float32], depth: int, first: int = 0) -> NDArray[np.intp]:
        """Return the best images of each prompt [prompts, depth]; equal scores are in random order.

        Args:
            scores: Cosines [prompts, m].
            depth: Number of images to return for each prompt.
            first: Position of the first of these prompts in the pool.
        """
        tie_seeds = [[*self.seed, _TIES, first + prompt] for prompt in range(len(scores))]
        return ranking.top(scores, depth, tie_seeds)

    def top_of_draws(self, scores: NDArray[np.float32], prompt: int) -> NDArray[np.intp]:
        """Rank a prompt's best images, as many as the top K of every draw needs.

        Args:
            scores: Cosines [m].
            prompt: Position of the prompt in the pool.

        Returns:
            Indices of images, best first: enough for every draw, or all.
        """
        n, k = len(scores), self.question.k
        depth = min(n, k + int(SIGMAS * np.sqrt(k)) + 4)
        while True:
            order: NDArray[np.intp] = self.top(scores[None], depth, prompt)[0]
            if depth == n or self.drawn[0][order].sum(axis=0, dtype=np.intp).min() >= k:
                return order
            depth = min(n, 8 * depth)  # images of one unit lie close together: a draw can lack the first ones

    def count(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Count images of each group [prompts, groups] among the groups of ranked images [prompts, ranks]."""
        return np.stack([(codes == group).sum(axis=1) for group in range(self.n_groups)], axis=1)

    def drawn_counts(self, order: NDArray[np.intp]) -> Floats:
        """Count images of each group in each draw's top K [draws, groups], from `top_of_draws` [depth]."""
        filled = np.minimum(np.cumsum(self.drawn[0][order], axis=0, dtype=np.int32), self.question.k)
        inside, codes = np.diff(filled, axis=0, prepend=0), self.codes[order]
        counts = [inside[codes == group].sum(axis=0) for group in range(self.n_groups)]
        return np.stack(counts, axis=-1).astype(np.float64)

    def drawn_tops(self, order: NDArray[np.intp]) -> NDArray[np.uint8]:
        """List the group codes of the top K in each of the first FEW draws [FEW, K].

        A draw of units may hold fewer than K images. The last image's group is then repeated.

        Args:
            order: Images from `top_of_draws` [depth], best first.
        """
        k, codes = self.question.k, self.codes[order]
        last_codes = np.full(k, codes[-1])
        drawn = self.drawn[0][order, :FEW].T
        return np.stack([np.append(np.repeat(codes, of), last_codes)[:k] for of in drawn])


def make_pools(question: Ranking, seed: int, n_draws: int, as_published: bool = False) -> list[Pool]:
    """Return one pool with all prompts, or, if prompts have pools, one for each prompt.

    Args:
        question: Ranking question: prompts, the images' groups, and K.
        seed: Random seed for all draws.
        n_draws: Number of resamples.
        as_published: As in `Pool`.
    """
    settings = n_draws, as_published
    if question.pools is None:
        prompts, images = np.arange(len(question.prompts)), np.arange(len(question.groups))
        return [Pool(question, prompts, images, [seed], *settings)]
    return [
        Pool(question, np.array([prompt]), np.flatnonzero(pool), [seed, _OF_PROMPT, prompt], *settings)
        for prompt, pool in enumerate(question.pools)
    ]
