"""`ccs.edit_heads`: its agreement with the notation of edits, and what it preserves."""

from functools import partial

import numpy as np
import pytest

import ccs

HEADS = "L4.H1 L5.H2"


def test_bias_of_erase_notation_matches_edited_model(tiny_model, gallery):
    edited = ccs.edit_heads(tiny_model, gallery, "race", heads=HEADS)
    notation = " ".join(f"{head}=erase:race" for head in HEADS.split())
    of_notation = ccs.bias(tiny_model, gallery, attribute="gender", ablate=notation)
    of_edited = ccs.bias(edited, gallery, attribute="gender")
    np.testing.assert_allclose(of_notation.rows["after"], of_edited.rows["after"], atol=1e-5)
    assert list(edited.rows["head"]) == HEADS.split()
    assert (edited.rows["after"] < 1e-9 * edited.rows["before"]).all()


def test_strength_ranges_from_erasing_all_to_preserving_all(tiny_model, gallery):
    edit, remaining = partial(ccs.edit_heads, tiny_model, gallery, heads="L5.H2"), []
    controls = ccs.open_dataset("world/letters", max_images=52)
    for strength in (0.0, 0.1, 0.5, 1.0):
        edited = edit("race", preserve=controls, strength=strength)
        remaining.append(float(edited.rows["after"].iloc[0] / edited.rows["before"].iloc[0]))
    assert remaining == sorted(remaining)
    assert remaining[0] < 1e-9
    assert remaining[-1] == pytest.approx(1)
    preserved = edit(preserve=["a cat", "a dog"], strength=1.0)
    images = gallery.images[:4]
    np.testing.assert_allclose(preserved.embed_images(images), tiny_model.embed_images(images), atol=1e-6)
