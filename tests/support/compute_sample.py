"""A small run of batch.compute: a tiny model, a few synthetic scenes, and forty texts."""

import json
import multiprocessing
import os
from contextlib import redirect_stderr, redirect_stdout

import pandas as pd

from ccs import results
from ccs.batch.compute import __main__ as compute
from ccs.batch.compute import measure
from ccs.texts.pools import load_pool

fork = multiprocessing.get_context("fork")


def write_small_pool(folder):
    """Write every twentieth text of the world's pool, with its concept, and return the file."""
    pool, path = load_pool("world"), folder / "pool.csv"
    rows = list(zip(pool.texts, pool.concepts, strict=True))[::20]
    path.write_text("text,concept\n" + "".join(f'"{text}",{concept}\n' for text, concept in rows))
    return path


def compute_arguments(model, texts, out, *options):
    """List the arguments of a small run with several shards.

    Args:
        model: Name or folder of the model.
        texts: File of texts.
        out: Folder of the results.
        *options: Further arguments.

    Returns:
        The command line.
    """
    # Two texts per head, so that a model of random weights has heads with high CCS.
    sizes = "--k 2 --shard 16 --eval-images 40 --max-images 60 --random-sets 5"
    sets = "--dataset world/letters --dataset world/clips"
    places = ("--model", str(model), "--texts", str(texts), "--out", str(out))
    return [*places, *sizes.split(), *sets.split(), *options]


def run_compute(arguments):
    """Run `compute.main` without output."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return compute.main(list(arguments))


def read_outputs(out):
    """Read the tables as bytes, and the manifest without times and measurements of the run."""
    comparable = {}
    for path in sorted(out.glob("[!.]*/*")):
        if path.name == "manifest.json":
            manifest = json.loads(path.read_text())
            comparable[path.name] = {k: v for k, v in manifest.items() if k not in ("created", "measured")}
        else:
            comparable[path.name] = path.read_bytes()
    return comparable


def assert_same_tables(left, right, ignore=()):
    """Assert that two models' folders hold equal tables, up to the rounding of matrix products.

    Args:
        left: Folder of the first model.
        right: Folder of the second model.
        ignore: Tables that may differ.
    """
    ours, theirs = results.read_results(left), results.read_results(right)
    assert set(ours.tables) == set(theirs.tables)
    for name, table in ours.tables.items():
        if name in ignore:
            continue
        pd.testing.assert_frame_equal(table, theirs.tables[name], rtol=0, atol=1e-6)


def measure_evaluation(data, ablations, texts, embeddings, **options):
    """Measure an evaluation.

    Args:
        data: Evaluation set.
        ablations: Ablation sets.
        texts: Embeddings of its texts.
        embeddings: Embeddings of its images by ablated heads.
        **options: As in `measure.Evaluation`.

    Returns:
        The rows, with the means of random sets among them.
    """
    evaluation = measure.Evaluation(
        data=data, ablations=ablations, texts=texts, embeddings=embeddings, **options
    )
    rows = evaluation.rows()
    return rows + measure.over_sets(rows, measure.table_of(data))
