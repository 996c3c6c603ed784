"""`ccs.edit_heads`: what it preserves, what `ccs.bias` makes of it, and what it refuses."""

from functools import partial

import numpy as np
import pytest

import ccs

HEADS = "L4.H1 L5.H2"


def test_bias_of_the_notation_is_that_of_the_edited_model(tiny_model, gallery):
    edited = ccs.edit_heads(tiny_model, gallery, "race", heads=HEADS)
    notation = " ".join(f"{head}=erase:race" for head in HEADS.split())
    table = ccs.bias(tiny_model, gallery, attribute="gender", ablate=notation)
    again = ccs.bias(edited, gallery, attribute="gender")
    np.testing.assert_allclose(table.rows["after"], again.rows["after"], atol=1e-5)
    assert list(edited.rows["head"]) == HEADS.split()
    assert (edited.rows["after"] < 1e-9 * edited.rows["before"]).all()


def test_strength_goes_from_erasing_everything_to_preserving_everything(tiny_model, gallery):
    edit, left = partial(ccs.edit_heads, tiny_model, gallery, heads="L5.H2"), []
    controls = ccs.open_dataset("world/letters", max_images=52)
    for strength in (0.0, 0.1, 0.5, 1.0):
        edited = edit("race", preserve=controls, strength=strength)
        left.append(float(edited.rows["after"].iloc[0] / edited.rows["before"].iloc[0]))
    assert left == sorted(left)
    assert left[0] < 1e-9
    assert left[-1] == pytest.approx(1)
    texts = edit(preserve=["a cat", "a dog"], strength=1.0)
    images = gallery.images[:4]
    np.testing.assert_allclose(texts.embed_images(images), tiny_model.embed_images(images), atol=1e-6)
