"""Direct effects against the definition, on a real (tiny) model; ranking and agreement of heads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import false_discovery_control, spearmanr

from ccs import Head, HeadSet, InputError
from ccs.measures import effects
from ccs.measures.stats import Effect


def test_direct_embeddings_equal_the_definition(tiny_model, pictures):
    images = pictures(5)
    plans = [HeadSet(), HeadSet.parse("L5.H1"), HeadSet.parse("L2.H0 L4.H3 L5.H1")]
    found = effects.direct_embeddings(tiny_model, images, plans, batch_size=2)
    parts, remainder = tiny_model.contributions(images)
    for plan, off in enumerate(plans):
        kept = remainder.copy()
        for layer in range(parts.shape[1]):
            for head in range(parts.shape[2]):
                if Head(layer, head) not in off:
                    kept += parts[:, layer, head]
        kept /= np.linalg.norm(kept, axis=1, keepdims=True)
        assert found[plan] == pytest.approx(kept, abs=1e-5)
    assert found[0] == pytest.approx(tiny_model.embed_images(images), abs=1e-5)


def test_direct_and_total_effect_differ(tiny_model, pictures):
    """Later layers react to a head that is off; a subtraction does not show that."""
    images = pictures(4)
    off = HeadSet.parse("L2.H1")
    total = tiny_model.embed_images(images, off)
    direct = effects.direct_embeddings(tiny_model, images, [off])[0]
    assert np.abs(direct - tiny_model.embed_images(images)).max() > 1e-3
    assert np.abs(direct - total).max() > 1e-3


def test_pixels_are_as_good_as_pictures(tiny_model, pictures):
    images = pictures(3)
    off = [HeadSet.parse("L4.H1")]
    pixels = tiny_model.preprocess(images)
    from_pixels = effects.direct_embeddings(tiny_model, pixels, off, batch_size=2)
    assert from_pixels == pytest.approx(effects.direct_embeddings(tiny_model, images, off), abs=1e-6)


def test_heads_are_ranked_and_false_discoveries_controlled():
    rng = np.random.default_rng(0)
    given = {Head(3, h): Effect(float(rng.normal()), 0.0, 0.0, float(rng.random() ** 3)) for h in range(12)}
    ranked = effects.rank_heads(given)
    values = [one.effect.value for one in ranked]
    assert values == sorted(values)
    expected = dict(zip(given, false_discovery_control([e.p_value for e in given.values()]), strict=True))
    assert all(one.q_value == pytest.approx(expected[one.head]) for one in ranked)


def test_agreement_over_heads():
    rng = np.random.default_rng(1)
    total = {Head(3, h): Effect(float(rng.normal()), 0, 0, 1) for h in range(24)}
    direct = {head: Effect(e.value + 0.3 * float(rng.normal()), 0, 0, 1) for head, e in total.items()}
    found = effects.agreement(direct, total)
    expected = spearmanr([direct[h].value for h in total], [total[h].value for h in total]).statistic
    assert found["spearman"].value == pytest.approx(expected)
    assert 0.5 < found["pearson"].low < found["pearson"].value < found["pearson"].high <= 1
    assert found["pearson"].p_value < 0.01
    with pytest.raises(InputError, match="not the same"):
        effects.agreement({Head(0, 0): Effect(0, 0, 0, 1)}, total)


def test_effects_refuse(tiny_model):
    with pytest.raises(InputError, match=r"no head L9\.H0"):
        effects.without(np.ones((2, 3)), np.zeros((2, 4, 4, 3)), HeadSet.parse("L9.H0"))
    with pytest.raises(InputError, match="do not belong"):
        effects.without(np.ones((2, 3)), np.zeros((3, 4, 4, 3)), HeadSet())
    with pytest.raises(InputError, match="0 and 1"):
        effects.direct_embeddings(tiny_model, [], [HeadSet()])
