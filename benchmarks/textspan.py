"""TEXTSPAN from moments against the plain implementation that keeps the images x D matrix.

    python -m benchmarks.textspan

Both start from the same made-up contributions of a head of ViT-B (dimension 64, D = 512). The time from
moments includes collecting them from the images' coordinates. CPU time of this process on one thread, in
one run.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import MACHINE, keep
from ccs import Head, HeadSet, Moments, textspan

IMAGES, TEXTS, K = 5000, 3500, 20
HEADS = 12  # done from moments; the plain way does one
HEAD_DIM, DIM, REQUIRED = 64, 512, 50


def plain(
    matrix: np.ndarray, vectors: np.ndarray, k: int = K, rank: int = HEAD_DIM
) -> list[tuple[int, float]]:
    """Pick texts from the full matrix of contributions, removing each direction from both.

    Args:
        matrix: A head's contributions [images, D].
        vectors: Text embeddings [texts, D].
        k: The number of texts to pick.
        rank: The number of the matrix's directions to which texts are projected.

    Returns:
        The index of each picked text and its share of the variance, the first pick first.
    """
    _, strength, rows = np.linalg.svd(matrix, full_matrices=False)
    rows = rows[: min(rank, int((strength > 1e-6 * strength[0]).sum()))]
    left, data = vectors @ rows.T @ rows, matrix - matrix.mean(0)
    total, picks = data.var(0).sum(), []
    for _ in range(k):
        pick = int(np.argmax((data @ left.T).std(0)))
        direction = left[pick] / np.linalg.norm(left[pick])
        picks.append((pick, float((data @ direction).var() / total)))
        data = data - np.outer(data @ direction, direction)
        left = left - np.outer(left @ direction, direction)
    return picks


def main() -> int:
    rng, r = np.random.default_rng(0), HEAD_DIM + 3
    z = rng.standard_normal((HEADS, IMAGES, r), np.float32) * np.linspace(1, 0.05, r, dtype=np.float32)
    z += rng.standard_normal((HEADS, 1, r), np.float32)
    basis = rng.standard_normal((HEADS, r, DIM), np.float32)
    vectors = rng.standard_normal((TEXTS, DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [f"text {i}" for i in range(TEXTS)]

    start = time.process_time()
    wide = z.astype(np.float64)
    products = wide.transpose(0, 2, 1) @ wide
    heads = HeadSet(Head(0, i) for i in range(HEADS))
    moments = Moments("made up", heads, HEAD_DIM, IMAGES, wide.sum(1), products, basis)
    ours = textspan(moments, texts, vectors, K)
    ours_seconds = (time.process_time() - start) / HEADS
    matrix = z[0] @ basis[0]
    start = time.process_time()
    expected = [index for index, _ in plain(matrix, vectors)]
    plain_seconds = time.process_time() - start

    same, ratio = [span.index for span in ours[Head(0, 0)]] == expected, plain_seconds / ours_seconds
    print(f"{IMAGES} images, {TEXTS} texts, k = {K}, one head:")
    print(f"  plain        {plain_seconds:8.3f} s")
    print(f"  from moments {ours_seconds:8.3f} s   {ratio:.0f} times faster (required: {REQUIRED})")
    print(f"  same picks   {'yes' if same else 'NO'}")
    result = {
        "machine": MACHINE,
        "numpy": np.__version__,
        **{"images": IMAGES, "texts": TEXTS, "k": K},
        "plain_seconds_a_head": plain_seconds,
        "moments_seconds_a_head": ours_seconds,
        "times_faster": ratio,
        "required": REQUIRED,
        "same_picks": same,
    }
    keep("textspan", result)
    return 0 if same else 1


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
