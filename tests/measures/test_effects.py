"""Direct effects against the definition, on a real (tiny) model, and their agreement with total ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from ccs import Head, HeadSet, InputError
from ccs.measures import effects
from ccs.measures.stats import Effect


def test_subtracting_contributions_equals_adding_up_the_others(tiny_model, pictures):
    images, off = pictures(5), HeadSet.parse("L2.H0 L4.H3 L5.H1")
    parts, remainder = tiny_model.contributions(images)
    whole = tiny_model.embed_images(images)
    found = effects.subtracted(whole, (parts[:, head.layer, head.head] for head in off))
    layers, heads = parts.shape[1:3]
    kept = [parts[:, i, j] for i in range(layers) for j in range(heads) if Head(i, j) not in off]
    expected = remainder + sum(kept)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert found == pytest.approx(expected, abs=1e-5)
    # Later layers react to a head that is off; a subtraction does not show that.
    assert np.abs(found - tiny_model.embed_images(images, off)).max() > 1e-3


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
