"""TEXTSPAN from moments against the plain implementation that keeps the images x D matrix.

    python -m benchmarks.textspan [--images 5000] [--texts 3500] [--k 20]

Both start from the same made-up contributions of a head of ViT-B (dimension 64, D = 512). The time from
moments includes collecting them from the images' coordinates. CPU time of this process on one thread, in
one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "textspan.json"
HEAD_DIM, DIM, REQUIRED = 64, 512, 50


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--texts", type=int, default=3500)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument(
        "--heads", type=int, default=12, help="heads done from moments; the plain way does one"
    )
    arguments = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy starts its threads
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy as np

    from ccs import Head, HeadSet, Moments
    from ccs.texts import textspan

    def plain(matrix: np.ndarray, vectors: np.ndarray, rank: int) -> list[int]:
        _, _, rows = np.linalg.svd(matrix, full_matrices=False)
        left = vectors @ rows[:rank].T @ rows[:rank]
        data = matrix - matrix.mean(0)
        picks = []
        for _ in range(arguments.k):
            pick = int(np.argmax((data @ left.T).std(0)))
            direction = left[pick] / np.linalg.norm(left[pick])
            data = data - np.outer(data @ direction, direction)
            left = left - np.outer(left @ direction, direction)
            picks.append(pick)
        return picks

    rng = np.random.default_rng(0)
    r, n_heads = HEAD_DIM + 3, arguments.heads
    z = rng.standard_normal((n_heads, arguments.images, r), np.float32) * np.linspace(
        1, 0.05, r, dtype=np.float32
    )
    z += rng.standard_normal((n_heads, 1, r), np.float32)
    basis = rng.standard_normal((n_heads, r, DIM), np.float32)
    vectors = rng.standard_normal((arguments.texts, DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [f"text {i}" for i in range(arguments.texts)]
    heads = HeadSet(Head(0, i) for i in range(n_heads))

    def from_moments() -> dict[Head, list[int]]:
        wide = z.astype(np.float64)
        products = wide.transpose(0, 2, 1) @ wide
        moments = Moments("made up", heads, HEAD_DIM, arguments.images, wide.sum(1), products, basis)
        spans = textspan(moments, texts, vectors, arguments.k)
        return {head: [span.index for span in chosen] for head, chosen in spans.items()}

    start = time.process_time()
    ours = from_moments()
    ours_seconds = (time.process_time() - start) / n_heads
    matrix = z[0] @ basis[0]
    start = time.process_time()
    expected = plain(matrix, vectors, HEAD_DIM)
    plain_seconds = time.process_time() - start

    same, ratio = ours[Head(0, 0)] == expected, plain_seconds / ours_seconds
    print(f"{arguments.images} images, {arguments.texts} texts, k = {arguments.k}, one head:")
    print(f"  plain        {plain_seconds:8.3f} s")
    print(f"  from moments {ours_seconds:8.3f} s   {ratio:.0f} times faster (required: {REQUIRED})")
    print(f"  same picks   {'yes' if same else 'NO'}")
    result = {
        "machine": platform.processor() or platform.machine(),
        "numpy": np.__version__,
        **{name: getattr(arguments, name) for name in ("images", "texts", "k")},
        "plain_seconds_a_head": plain_seconds,
        "moments_seconds_a_head": ours_seconds,
        "times_faster": ratio,
        "required": REQUIRED,
        "same_picks": same,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
