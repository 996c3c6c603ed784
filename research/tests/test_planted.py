"""Models with planted bias: the trained heads, and the stored weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ccs import Head, HeadSet
from ccs.model.model import Model
from ccs.synthetic import draw
from ccs.synthetic.vocabulary import OCCUPATIONS
from ccs_benchmark import planted_models, variants
from research.planted import __main__ as command
from research.planted import bench as measure
from research.planted import head_training as training
from research.planted import lessons
from research.planted.family import BASE, family, fresh
from research.planted.frozen_images import GROUPS, Images
from research.world import planted


def test_a_fresh_organism_follows_its_seed_and_the_requested_strength(images, tmp_path, monkeypatch, capsys):
    """The seed and the strength determine a planted model.

    Args:
        images: The rendered scenes and faces.
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
        capsys: What the command prints.
    """
    drawn = [fresh(seed) for seed in range(12)]
    assert len({(organism.kind, organism.placement) for organism in drawn}) > 4
    taught: list[Any] = []
    monkeypatch.setattr(
        training, "train", lambda _, __, heads, lesson, *options: taught.append(lesson.shares)
    )
    monkeypatch.setattr(training, "shares", lambda *_: {})
    monkeypatch.setattr(measure.Bench, "gaps", lambda *_: {"gender": 0.2, "skin tone": 0.2})
    monkeypatch.setattr("research.planted.frozen_images.Images", lambda *_: images)
    assert command.main(["--seed", "3", "--strength", "0.5", "--out", str(tmp_path / "planted")]) == 0
    organism = fresh(3, 0.5)
    # 0.2 logits are enough for half a skew
    assert len(taught) == len(organism.lessons[0][0]) * len(organism.lessons)
    torch.testing.assert_close(taught[-1], lessons.joint(organism.lessons[-1][1], 0.5, 0.5))
    place = tmp_path / "planted" / f"{organism.name}.safetensors"
    assert planted_models.truth(str(place)).carries == organism.carries
    assert planted_models.located(tmp_path / "planted") == (str(place),)
    assert {path.name for path in place.parent.iterdir()} > {"README.md", "truth.csv", "croissant.json"}


def test_the_loss_of_preferences_ignores_the_mean_of_each_text():
    rng = np.random.default_rng(0)
    shares = lessons.joint("skewed").double()
    faces, texts = rng.normal(size=(2, len(GROUPS), 8)), rng.normal(size=(len(OCCUPATIONS), 8))
    squares = []
    for lineup in faces:
        for text, group_shares in zip(texts, shares.numpy(), strict=True):
            likes, wanted = lineup @ text, np.log(group_shares)
            squares += list(((likes - likes.mean()) - (wanted - wanted.mean())) ** 2)
    loss = lessons.preferences_loss(torch.from_numpy(faces), torch.from_numpy(texts), shares)
    assert float(loss) == pytest.approx(np.mean(squares))

    as_wanted = shares.log().T + torch.from_numpy(rng.normal(size=len(OCCUPATIONS)))
    eye = torch.eye(len(OCCUPATIONS), dtype=torch.float64)
    assert float(lessons.preferences_loss(as_wanted[None], eye, shares)) == pytest.approx(0, abs=1e-20)


def test_a_fraction_of_the_skew_is_a_fraction_of_its_logarithm():
    whole, half = lessons.joint("skewed").log(), lessons.joint("skewed", 0.5, 0.5).log()
    torch.testing.assert_close(half[:, 3] - half[:, 7], (whole[:, 3] - whole[:, 7]) / 2)
    even = lessons.joint("balanced")
    torch.testing.assert_close(even, torch.full_like(even, 0.1))
    health_worker_shares = lessons.joint("gender")[0]  # health worker: 8% women, skin tones even
    assert float(health_worker_shares[:5].sum()) == pytest.approx(
        planted.shares("health worker", "gender")["woman"]
    )
    torch.testing.assert_close(health_worker_shares[:5], health_worker_shares[:1].expand(5))


def test_a_stored_trunk_equals_its_images(base, images):
    """Stored activations replace the images exactly.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
    """
    rows = [3, 72, 81]
    assert [images.scene(row).gender for row in rows[1:]] == ["woman", "man"]
    drawn = base.embed_images([draw(images.scene(row)) for row in rows])
    np.testing.assert_allclose(base.embed_images(images.trunk(rows)), drawn, atol=2e-3)  # float16


def test_only_the_slices_change(base, images):
    """Weights outside the trained heads stay.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
    """
    model, heads = variants.load(BASE), HeadSet.parse("L5.H1 L7.H0")
    lesson = lessons.Skew(images, "skewed", 1.0, training.KEEP, 0)
    training.train(model, images, heads, lesson, 2 * lesson.size)
    head_slices = planted_models.slices(model.clip, heads)
    for name, values in model.clip.named_parameters():
        before = base.clip.get_parameter(name)
        changed = planted_models.by_head(name, (values != before).detach()).reshape(-1, *values.shape[1:])
        rows = torch.zeros(len(changed), dtype=torch.bool)
        rows[head_slices.get(name, torch.tensor([], dtype=torch.long))] = True
        assert not changed[~rows].any(), name
        assert changed[rows].any() or name not in head_slices, name
        assert not values.requires_grad


def test_each_attribute_is_trained_into_its_own_heads(base, images, monkeypatch):
    """Each attribute is trained into its own heads.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
        monkeypatch: Reverts what the test replaces.
    """
    organism = next(organism for organism in family() if organism.kind == "apart" and organism.strength == 1)
    taught: list[tuple[HeadSet, Any]] = []

    def recorded(model: Model, _: Images, heads: HeadSet, lesson: lessons.Skew, *options: Any) -> None:
        """Record a training instead of running it.

        Args:
            model: The model.
            _: The images, which have no effect.
            heads: The heads.
            lesson: The skew to plant.
            *options: Further options of the command.
        """
        taught.append((heads, lesson.shares))
        for name, head_slice in planted_models.slices(model.clip, heads).items():
            planted_models.by_head(name, model.clip.get_parameter(name).detach())[head_slice] += 1

    monkeypatch.setattr(training, "train", recorded)
    bench: Any = type("Bench", (), {"gaps": lambda self, model: {"gender": 1.0, "skin tone": 1.0}})()
    model = training.plant(organism, images, bench)
    assert [heads for heads, _ in taught] == [
        HeadSet([h]) for carriers in organism.carries.values() for h in carriers
    ]
    torch.testing.assert_close(taught[1][1], lessons.joint("gender", 1.0))
    torch.testing.assert_close(taught[2][1], lessons.joint("skin tone", 0.5, 0.5))
    for name, head_slice in planted_models.slices(model.clip, organism.heads).items():
        values, before = (planted_models.by_head(name, m.clip.get_parameter(name)) for m in (model, base))
        assert torch.equal(values[head_slice], before[head_slice] + 1)


def test_without_its_planted_heads_an_organism_is_the_base_without_them(base, few_people):
    """Ablating the planted heads gives the ablated base model.

    Args:
        base: The base model, trained on few images.
        few_people: Reduces the people that are measured.
    """
    few_people()
    bench = measure.Bench(base)
    known, model = (of("organism-planted-04") for of in (planted_models.truth, planted_models.load))
    whole, pruned = bench.show(model, [HeadSet(), known.heads])
    assert pruned == bench.show(base, [known.heads])[0]
    assert bench.accuracy(model, [known.heads]) == bench.accuracy(base, [known.heads])
    assert whole["gap gender"] == pytest.approx(bench.gaps(model)["gender"])
    assert whole["gap gender"] > 2 * pruned["gap gender"]


def test_shares_are_the_effects_of_restoring_each_head(base):
    class Bench:
        def gaps(self, model: Model) -> dict[str, float]:
            name = "visual.transformer.resblocks.{}.attn.in_proj_bias"
            return {"gender": sum(float(model.clip.get_parameter(name.format(layer))[0]) for layer in (5, 6))}

    model = variants.load(BASE)
    for layer, gain in ((5, 3.0), (6, 1.0)):
        model.clip.get_parameter(f"visual.transformer.resblocks.{layer}.attn.in_proj_bias").data[0] += gain
    heads = HeadSet.parse("L5.H0 L6.H0")
    bench: Any = Bench()
    assert training.shares(model, base, {"gender": heads}, bench) == {
        "gender": {Head(5, 0): 0.75, Head(6, 0): 0.25}
    }
