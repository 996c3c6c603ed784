"""Time of the bias figures once embeddings are there: FairFace's size, every plan of the study.

`python -m benchmarks.skew_time` prints seconds with and without NDKL and those of the obvious way (one prompt
at a time, a full sort, no intervals), and writes benchmarks/results/skew_time.json.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import keep
from ccs.measures import bias
from ccs.measures.skew import METRICS, max_skew

IMAGES, OCCUPATIONS, WIDTH, K = 10_954, 104, 512, 900
PLANS, DRAWS = 40, 500
# Images of each of FairFace's six races in its validation split.
RACES = {"White": 2085, "Latino": 1623, "Indian": 1516, "Asian": 2965, "Black": 1556, "Middle Eastern": 1209}


def plans() -> list[np.ndarray]:
    """Image embeddings of each plan: one base, moved a little by each."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((IMAGES, WIDTH), dtype=np.float32)
    return [base + 0.2 * rng.standard_normal((IMAGES, WIDTH), dtype=np.float32) for _ in range(PLANS)]


def plain(images: np.ndarray, texts: np.ndarray, groups: np.ndarray) -> list[float]:
    """MaxSkew of each occupation, the obvious way."""
    pool = dict(Counter(groups.tolist()))
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    skews = []
    for text in texts:
        order = np.argsort(-(images @ text), kind="stable")
        skews.append(max_skew(groups[order].tolist(), pool, K))
    return skews


def main() -> None:
    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat(list(RACES), list(RACES.values())))
    texts = rng.standard_normal((OCCUPATIONS, WIDTH), dtype=np.float32)
    embeddings = plans()
    found: dict[str, float] = {}
    for name, metrics in (("MaxSkew", METRICS[:1]), ("MaxSkew, NDKL", METRICS)):
        wall, cpu = time.perf_counter(), time.process_time()
        # As batch.compute does: one thread per processor, and none of BLAS's own.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor() as threads:
            results = bias.measure_plans(
                embeddings, texts, groups, K, metrics=metrics, draws=DRAWS, map=threads.map
            )
        found[f"{name}: seconds"] = time.perf_counter() - wall
        found[f"{name}: processor seconds"] = time.process_time() - cpu
    wall = time.perf_counter()
    slow = plain(embeddings[0], texts, groups)
    found["plain, MaxSkew alone without interval: seconds"] = (time.perf_counter() - wall) * PLANS
    found["largest difference from plain"] = float(np.abs(np.array(slow) - results[0].max_skew.values).max())
    print(f"{IMAGES} images, {OCCUPATIONS} occupations, {PLANS} plans, K = {K}, {DRAWS} draws")
    for name, value in found.items():
        print(f"  {name:52s} {value:10.3g}")
    setting = {"plans": PLANS, "draws": DRAWS, "processors": os.cpu_count(), "load": os.getloadavg()[0]}
    keep("skew_time", setting | found)


if __name__ == "__main__":
    main()
