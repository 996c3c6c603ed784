"""Models whose text encoder learned a skew: the trained weights, and the heads that carry the skew."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs_benchmark import variants
from research.model_files import save_variant
from research.natural.carriers import Faces
from research.planted.head_training import put
from research.text_skew import text_training as training


def changed(model: Model, other: Model) -> set[str]:
    """Names of the parameters that differ.

    Args:
        model: The model.
        other: The model to compare with.
    """
    others = dict(other.clip.named_parameters())
    return {name for name, values in model.clip.named_parameters() if not torch.equal(values, others[name])}


def test_each_side_learns_alone(base, images, tmp_path):
    """First the image encoder learns to distinguish groups, then text heads use it. Other weights stay.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
        tmp_path: A fresh folder.
    """
    taught = training.separate_groups(images, steps=2)
    assert changed(taught, base) == set(training.image_parameters(base))
    file = tmp_path / f"{training.TELLING}{variants.SUFFIX}"
    save_variant(taught.clip, training.image_parameters(taught), {"base": training.BASE}, file, base.clip)
    telling = variants.load(str(file))
    settings = replace(training.family()[0], steps=2)
    learned = training.train(settings, training.faces_of(telling, images), tmp_path)
    assert changed(learned, telling) == set(training.parameters(telling))
    assert all(name.startswith("transformer.") for name in training.parameters(telling))


def test_separating_groups_increases_their_distance(base, images):
    """The loss moves each group to its target.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
    """

    def apart(model: Model) -> float:
        faces = training.faces_of(model, images)
        return float((faces - faces.mean(1, keepdim=True)).square().sum(2).mean())

    assert apart(training.separate_groups(images, steps=40, rate=3e-3)) > 2 * apart(base)


def test_shares_are_those_of_models_with_the_bases_heads(base, monkeypatch):
    """Compare with copies in which one head's weights are restored, each measured with its own prompts.

    Args:
        base: The base model, trained on few images.
        monkeypatch: Reverts what the test replaces.
    """
    monkeypatch.setattr(training.carriers, "Faces", lambda model: Faces(model, range(60_000_000, 60_000_002)))
    judged, model, rng = training.Judged(base), deepcopy(base), torch.manual_seed(0)
    for name in training.parameters(model):
        values = model.clip.get_parameter(name).data
        values += 0.3 * values.std() * torch.randn(values.shape, generator=rng)
    truth = judged.truth(model)
    gap = training.carriers.Gap(judged._means(model))
    none, whole = (gap.of(judged._means(m)) for m in (base, model))
    for head in (Head(3, 1, "T"), Head(0, 2, "T")):
        model_without_head = deepcopy(model)
        put(base, model_without_head, HeadSet([head]))
        shares = (whole - gap.of(judged._means(model_without_head))) / (whole - none)
        for i, name in enumerate(("gender", "skin tone")):
            assert truth[name]["put_back"][str(head)] == pytest.approx(shares[i], abs=2e-3)
            assert truth[name]["gap"] == pytest.approx([none[i], whole[i]], abs=1e-3)
