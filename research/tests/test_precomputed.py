"""The bundled tables: labels of high-CCS heads don't depend on identically encoded texts."""

import numpy as np
import pytest

import ccs
from ccs import results
from ccs.results import queries
from ccs.texts.pools import load_pool

MODELS = sorted(file.parent.name for file in results.PRECOMPUTED.glob("*/manifest.json"))


@pytest.mark.parametrize("name", MODELS)
def test_identically_encoded_texts_of_high_heads_have_one_concept(name):
    """The model encodes texts of words that it never saw identically ("an animal", "an occupation").

    Their order in the pool decides which of them describes a head, so it must not change the concept.
    """
    model_results = results.read_results(results.PRECOMPUTED / name)
    pool = load_pool(model_results.manifest["settings"]["texts"])
    vectors = ccs.load(name).embed_texts(pool.texts)
    row_of = {text: row for row, text in enumerate(pool.texts)}
    high = queries.main_scores(model_results).query("level == 'high'")[["layer", "head", "k"]]
    spans = model_results.table("spans").merge(high, on=["layer", "head"])
    spans = spans[spans["rank"] < spans["k"]]
    assert len(spans) == high["k"].sum()
    for text in spans["text"].unique():
        same = np.flatnonzero(vectors @ vectors[row_of[text]] > 1 - 1e-5)
        assert {pool.concepts[row] for row in same} == {pool.concept_of(text)}, text
