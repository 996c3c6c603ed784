"""Embeddings with groups, and slow references of the skew metrics."""

from collections import Counter

import numpy as np
from scipy.stats import entropy


def reference_skews(ranked, pool, k):
    """Compute the skew of each group in the top K, directly from the definition.

    Args:
        ranked: Groups in the order of the ranking.
        pool: Number of images of each group.
        k: Depth of the top.

    Returns:
        {group: skew}.
    """
    top, total = Counter(ranked[:k]), sum(pool.values())
    return {g: np.log((top[g] / k) / (pool[g] / total)) for g in top}


def reference_ndkl(ranked, pool, k):
    """Compute NDKL with scipy's relative entropy, prefix by prefix.

    Args:
        ranked: Groups in the order of the ranking.
        pool: Number of images of each group.
        k: Depth of the top.

    Returns:
        NDKL.
    """
    total, names = sum(pool.values()), [g for g in pool if pool[g]]
    share = [pool[g] / total for g in names]
    weights = [1 / np.log2(i + 1) for i in range(1, k + 1)]
    divergences = [entropy([ranked[:i].count(g) for g in names], share) for i in range(1, k + 1)]
    return float(np.dot(weights, divergences) / np.sum(weights))


def draw_embeddings(n=240, d=6, o=5, groups=3, seed=0, tilt=0.0):
    """Draw embeddings with groups.

    Args:
        n: Number of images.
        d: Dimensions.
        o: Number of occupations.
        groups: Number of groups.
        seed: Seed.
        tilt: Shift of the first group toward all occupations.

    Returns:
        Image embeddings [n, d], text embeddings [o, d], and labels.
    """
    rng = np.random.default_rng(seed)
    labels = np.array([f"g{i}" for i in rng.integers(0, groups, n)])
    images = rng.standard_normal((n, d)).astype(np.float32)
    images[labels == "g0", 0] += tilt
    texts = rng.standard_normal((o, d)).astype(np.float32)
    texts[:, 0] += tilt
    return images, texts, labels
