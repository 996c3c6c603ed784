"""Models that learned a skew contrastively: what is trained, and who is said to carry it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ccs.benchmark import natural, variants
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from research.natural import carriers, ccs_questions
from research.natural.__main__ import summary
from research.natural.skew_training import Natural, family, fresh, parameters, train
from research.planted.bench import Bench
from research.planted.family import BASE
from research.planted.frozen_images import Images
from research.planted.head_training import put


@pytest.fixture(scope="module")
def base() -> Model:
    return variants.load(BASE)


def test_the_family_has_every_kind_and_strength_on_every_base() -> None:
    made = family()
    skewed = [one for one in made if one.world == "skewed"]
    assert (len(made), len(skewed), len({one.name for one in made})) == (20, 15, 20)
    assert {(one.base, one.trained) for one in skewed} == {
        (f"organism-base-{i}", kind) for i in range(5) for kind in ("attention", "all", "MLPs")
    }
    assert {(one.trained, one.strength) for one in skewed} == {
        (kind, part) for kind in ("attention", "all", "MLPs") for part in (1.0, 0.7, 0.4)
    }
    assert len({(one.base, one.trained, one.strength) for one in map(fresh, range(20))}) > 8


def test_only_what_is_to_learn_learns_and_training_goes_on_where_it_stopped(
    base: Model, tmp_path: Path
) -> None:
    images = Images(base, tmp_path, 24, 4)
    one = Natural("one", BASE, 0, "attention", steps=2, scenes=4, lineups=1)
    model = train(one, images, tmp_path)
    names = parameters(base, "attention")
    for name, values in model.clip.named_parameters():
        assert torch.equal(values, base.clip.get_parameter(name)) != (name in names), name
    again = train(one, images, tmp_path)  # from the last checkpoint: nothing is left to do
    for name, values in again.clip.named_parameters():
        assert torch.equal(values, model.clip.get_parameter(name)), name


def test_shares_are_those_of_models_with_these_weights(base: Model) -> None:
    """One part after the other, each model run whole; Shapley values sum to one."""
    rng = torch.manual_seed(0)
    model = variants.load(BASE)
    names = parameters(base, "all")
    for name in names:
        values = model.clip.get_parameter(name).data
        values += 0.3 * values.std() * torch.randn(values.shape, generator=rng)
    faces = carriers.Faces(base, carriers.LINEUPS[:2])
    parts = (Head(4, 1), Head(6, 0), 5)
    every = carriers.parts_of(base, names)
    assert len(every) == 28
    for part in set(every) - set(parts):
        carriers.put(base, model, part)
    found = carriers.shares(model, base, variants.load(BASE), parts, faces, 3)

    images = carriers.images(carriers.LINEUPS[:2])
    gap = carriers.Gap(faces.means(model.embed_images(images)))
    none, whole = (gap.of(faces.means(m.embed_images(images))) for m in (base, model))
    mixed = variants.load(BASE)
    put(model, mixed, HeadSet([Head(4, 1), Head(6, 0)]))
    without = gap.of(faces.means(mixed.embed_images(images)))
    for i, attribute in enumerate(("gender", "skin tone")):
        said = found[attribute]
        assert said["gap"] == pytest.approx([none[i], whole[i]], abs=2e-3)
        share = (whole - without)[i] / (whole - none)[i]
        assert said["put_back"]["L5.MLP"] == pytest.approx(share, rel=1e-2, abs=5e-3)  # type: ignore[index]
        assert sum(said["shapley"].values()) == pytest.approx(1, abs=5e-3)  # type: ignore[attr-defined]


def test_the_table_says_who_carries_it() -> None:
    truth = {
        "gap": [0, 0.4],
        "put_back": {"L4.H0": 0.7},
        "shapley": {"L4.H0": 0.6},
        "spread": {"L4.H0": 0.01},
    }
    shown = {f"{what} {name}": 0.4 for what in ("gap", "MaxSkew") for name in ("gender", "skin tone")}
    one = {"trained": "all", "strength": 0.7, "world": "skewed", "subjects": 0.998, "shown": shown}
    page = summary({"organism-natural-0-all": one | {"truth": {"gender": truth, "skin tone": truth}}})
    assert "| organism-natural-0-all | all | 0.7 | 99.8% | 0.40, 0.40 | L4.H0 60% (70%) |" in page


def test_skews_by_occupation_are_those_whose_mean_is_shown(base: Model) -> None:
    bench = Bench(base)
    (shown,) = bench.show(base, [HeadSet()])
    for attribute, skews in bench.skews(base).items():
        assert len(skews) == 20
        assert skews.mean() == pytest.approx(shown[f"MaxSkew {attribute}"], abs=1e-5)


def test_answers_follow_what_was_measured() -> None:
    """CCS rises with the share in one case and falls in the other; carriers' effects alone are shown."""
    for sign, word in ((1, "they do"), (-1, "they have a lower one")):
        held = {}
        for name in natural.located():
            (shares, *_) = natural.truth(name).values()
            order = sorted(shares, key=lambda head: sign * shares[head])
            heads = {str(head): [1 + 4 * (place >= 18), "Letters"] for place, head in enumerate(order)}
            none = dict.fromkeys(
                ("MaxSkew gender", "MaxSkew skin tone", "gap gender", "gap skin tone", "accuracy"), 0.8
            )
            plans = [{"plan": "none", "size": 0, **none}]
            plans += [{"plan": "high", "size": 6, **{k: v - 0.5 for k, v in none.items()}}]
            plans += [{"plan": "random for high", "size": 6, **{k: v - 0.1 for k, v in none.items()}}]
            alone = {
                one: {str(head): [0.1, 1e-6 if shares.get(head, 0) >= 0.1 else 0.5] for head in shares}
                for one, shares in natural.truth(name).items()
            }
            held[name] = {"heads": heads, "plans": plans, "alone": alone}
        said = ccs_questions.answers(held)
        assert word in said
        truths = [own for name in held for own in natural.truth(name).values()]
        carriers = sum(share >= 0.1 for own in truths for share in own.values())
        assert f"for {carriers} of" in said
        assert f"a tenth or more, for {carriers}." in said
        assert "| +0.400 [+0.400, +0.400], p 0.002 | +0.500 [+0.500, +0.500], p 0.002 |" in said
