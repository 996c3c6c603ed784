"""Time of the bias metrics after embedding, for FairFace and every ablation set of the paper.

`python -m benchmarks.skew_time` prints seconds with and without NDKL, and those of a plain computation (one
prompt at a time, a full sort, no intervals), and writes benchmarks/results/skew_time.json. With `--paper` it
computes all bias tables of one of the paper's models at full size instead, from random embeddings
(docs/reproduce-the-paper.md), in `--processes` processes with one core each. `--ratio` computes only
FairFace's tables, in one process on one core, in one on all cores, and in two with a core each. It prints
the ratios, in about five minutes. `--ablations N --random N` sets the numbers of ablation sets.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.common import keep
from ccs.analysis.ablation_sets import AblationSet
from ccs.batch.compute import measure
from ccs.data import BiasSet, Lazy
from ccs.heads import Head, HeadSet
from ccs.metrics import bias
from ccs.metrics.ranking import Ranking, cosines
from ccs.metrics.skew import METRICS, max_skew

IMAGES, OCCUPATIONS, WIDTH, K = 10_954, 104, 512, 900
ABLATIONS, DRAWS = 40, 500
# Images of each of FairFace's six races in its validation split.
RACES = {"White": 2085, "Latino": 1623, "Indian": 1516, "Asian": 2965, "Black": 1556, "Middle Eastern": 1209}


def ablated_embeddings() -> list[np.ndarray]:
    """Return image embeddings for each ablation set: a common base with small changes."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((IMAGES, WIDTH), dtype=np.float32)
    return [base + 0.2 * rng.standard_normal((IMAGES, WIDTH), dtype=np.float32) for _ in range(ABLATIONS)]


def plain(images: np.ndarray, texts: np.ndarray, groups: np.ndarray) -> list[float]:
    """Compute the MaxSkew of each occupation with a plain loop.

    Args:
        images: Image embeddings [n, D].
        texts: Text embeddings [occupations, D].
        groups: The group of each image [n].
    """
    pool = dict(Counter(groups.tolist()))
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    skews = []
    for text in texts:
        order = np.argsort(-(images @ text), kind="stable")
        skews.append(max_skew(groups[order].tolist(), pool, K))
    return skews


def gallery(name: str, n: int, k: dict[str, int], pools: bool) -> BiasSet:
    """Return a gallery of people of random groups.

    Args:
        name: The gallery's name.
        n: Number of people.
        k: Attribute -> the K of MaxSkew@K; only these attributes are used.
        pools: Each occupation ranks its own people, in sets of twelve, rather than all.
    """
    rng = np.random.default_rng(2)
    races = rng.permutation(np.resize(np.repeat(list(RACES), list(RACES.values())), n))
    groups = {"race": races, "gender": rng.permutation(np.resize(np.array(["man", "woman"]), n))}
    names = tuple(f"occupation {i}" for i in range(OCCUPATIONS))
    return BiasSet(
        name=name,
        images=Lazy(lambda row: row, range(n)),
        fingerprint="",
        source="random",
        groups={name: groups[name] for name in k},
        k=k,
        occupations=names,
        templates=("{}",),
        pools=np.array(names)[np.arange(n) * OCCUPATIONS // n] if pools else None,
        units=np.arange(n) // 12 if pools else None,
    )


def paper_tables(
    n_ablations: int, n_random: int, processes: int, few: bool = False, pinned: bool = False
) -> float:
    """Measure the wall-clock seconds of the bias tables of one model, shared by processes as in a run.

    Args:
        n_ablations: Number of ablation sets.
        n_random: Number of random sets.
        processes: Number of processes.
        few: Use FairFace's table with one padding only.
        pinned: Bind each process to its own core.
    """
    wall = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        workload = n_ablations, n_random, processes
        ran = [pool.submit(share, *workload, part, few, pinned) for part in range(processes)]
        times = ", ".join(f"{future.result():.0f}" for future in ran)
    wall = time.perf_counter() - wall
    on = "a core each" if pinned else "all cores"
    print(
        f"{n_ablations} + {n_random} ablation sets, {processes} on {on}: {wall:.0f} s, {times} of processor"
    )
    return wall


def ratio(n_ablations: int, n_random: int) -> None:
    """Print how many times as fast two processes are as one.

    Args:
        n_ablations: Number of ablation sets.
        n_random: Number of random sets.
    """
    shared = paper_tables(n_ablations, n_random, 2, few=True, pinned=True)
    for pinned in (True, False):
        alone = paper_tables(n_ablations, n_random, 1, few=True, pinned=pinned)
        cores = "one core" if pinned else "all cores"
        print(f"two processes: {alone / shared:.2f} times as fast as one on {cores}")


def share(n_ablations: int, n_random: int, processes: int, part: int, few: bool, pinned: bool) -> float:
    """Compute one process's share of the bias tables: FairFace and SocialCounterfactuals, both forms of each.

    Args:
        n_ablations: Number of ablation sets.
        n_random: Number of random sets.
        processes: Number of processes.
        part: The number of this process, from 0.
        few: Use FairFace's table with one padding only.
        pinned: Bind this process to one core.

    Returns:
        CPU seconds of this process.
    """
    if pinned:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[part]})
    sets = [gallery("fairface-0.25", IMAGES, {"race": K, "gender": K}, False)]
    if not few:
        sets.append(gallery("fairface-1.25", IMAGES, {"race": K, "gender": K}, False))
        sets.append(gallery("socialcounterfactuals", 171_000, {"race": 12, "gender": 4}, True))
        sets.append(gallery("socialcounterfactuals-gender", 171_000, {"gender": 4}, True))
    head_sets = [HeadSet(), *(HeadSet([Head(8 + i // 48, i % 48)]) for i in range(n_ablations + n_random))]
    ablations = [AblationSet("none", None, head_sets[0])]
    ablations += [
        AblationSet(f"concept:{i}", None, off) for i, off in enumerate(head_sets[1 : n_ablations + 1])
    ]
    ablations += [AblationSet("random", i, off) for i, off in enumerate(head_sets[n_ablations + 1 :])]
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((OCCUPATIONS, WIDTH), dtype=np.float32)
    n_images = max(len(data.images) for data in sets)
    whole, noise = (rng.standard_normal((n_images, WIDTH), dtype=np.float32) for _ in range(2))
    twice = 0.2 * np.concatenate([noise, noise], axis=1)  # each set adds other columns
    ablations = measure.share_of(ablations, part, processes)
    for data in sets:
        n, wall, processor = len(data.images), time.perf_counter(), time.process_time()

        def embeddings(off: HeadSet, n: int = n) -> np.ndarray:
            return whole[:n] + twice[:n, WIDTH - head_sets.index(off) :][:, :WIDTH]

        rows = measure.Evaluation(
            data=data, ablations=ablations, texts=texts, embeddings=embeddings, published=embeddings
        ).rows()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        spent = f"{wall:8.1f} s, {processor:.1f} of processor"
        print(f"  {data.name:32s} {spent}, {len(rows):,} rows", flush=True)
    return time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--ratio", action="store_true")
    parser.add_argument("--ablations", type=int, default=75)
    parser.add_argument("--random", type=int, default=60)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    if args.ratio:
        ratio(args.ablations, args.random)
        return
    if args.paper:
        enough = args.processes <= len(os.sched_getaffinity(0))
        paper_tables(args.ablations, args.random, args.processes, pinned=args.processes > 1 and enough)
        return
    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat(list(RACES), list(RACES.values())))
    texts = rng.standard_normal((OCCUPATIONS, WIDTH), dtype=np.float32)
    embeddings = ablated_embeddings()
    values: dict[str, float] = {}
    for name, metrics in (("MaxSkew", METRICS[:1]), ("MaxSkew, NDKL", METRICS)):
        wall, cpu = time.perf_counter(), time.process_time()
        scores = (cosines(texts, images) for images in embeddings)
        results = bias.measure_ablations(scores, Ranking(texts, groups, K), metrics=metrics, draws=DRAWS)
        values[f"{name}: seconds"] = time.perf_counter() - wall
        values[f"{name}: processor seconds"] = time.process_time() - cpu
    wall = time.perf_counter()
    slow = plain(embeddings[0], texts, groups)
    values["plain, MaxSkew alone without interval: seconds"] = (time.perf_counter() - wall) * ABLATIONS
    values["largest difference from plain"] = float(np.abs(np.array(slow) - results[0].max_skew.values).max())
    print(f"{IMAGES} images, {OCCUPATIONS} occupations, {ABLATIONS} ablation sets, K = {K}, {DRAWS} draws")
    for name, value in values.items():
        print(f"  {name:52s} {value:10.3g}")
    setting = {
        "ablation_sets": ABLATIONS,
        "draws": DRAWS,
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    keep("skew_time", setting | values)


if __name__ == "__main__":
    main()
