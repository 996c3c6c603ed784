"""Models that learned a skew contrastively: the trained weights, and the heads that carry the skew."""

import pytest
import torch

from ccs.heads import Head, HeadSet
from ccs_benchmark import natural, variants
from research.natural import carriers, ccs_questions
from research.natural.skew_training import Natural, parameters, train
from research.planted.bench import Bench
from research.planted.family import BASE
from research.planted.head_training import put


def test_only_chosen_weights_change_and_training_resumes_where_it_stopped(base, images, tmp_path):
    """Other weights stay, and a stopped training continues to the same weights.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
        tmp_path: A fresh folder.
    """
    settings = Natural("one", BASE, 0, "attention", steps=2, scenes=4, lineups=1)
    model = train(settings, images, tmp_path)
    names = parameters(base, "attention")
    for name, values in model.clip.named_parameters():
        assert torch.equal(values, base.clip.get_parameter(name)) != (name in names), name
    again = train(settings, images, tmp_path)  # from the last checkpoint: nothing is left to do
    for name, values in again.clip.named_parameters():
        assert torch.equal(values, model.clip.get_parameter(name)), name


def test_shares_are_those_of_models_with_these_weights(base):
    """Compare with whole models, one part replaced after the other. Shapley values sum to 1."""
    rng = torch.manual_seed(0)
    model = variants.load(BASE)
    names = parameters(base, "all")
    for name in names:
        values = model.clip.get_parameter(name).data
        values += 0.3 * values.std() * torch.randn(values.shape, generator=rng)
    faces = carriers.Faces(base, carriers.LINEUPS[:2])
    parts = (Head(4, 1), Head(6, 0), 5)
    all_parts = carriers.parts_of(base, names)
    assert len(all_parts) == 28
    for part in set(all_parts) - set(parts):
        carriers.put(base, model, part)
    shares_by_attribute = carriers.shares(model, base, variants.load(BASE), parts, faces, 3)

    images = carriers.images(carriers.LINEUPS[:2])
    gap = carriers.Gap(faces.means(model.embed_images(images)))
    none, whole = (gap.of(faces.means(m.embed_images(images))) for m in (base, model))
    mixed = variants.load(BASE)
    put(model, mixed, HeadSet([Head(4, 1), Head(6, 0)]))
    gap_without = gap.of(faces.means(mixed.embed_images(images)))
    for i, attribute in enumerate(("gender", "skin tone")):
        attribute_shares = shares_by_attribute[attribute]
        assert attribute_shares["gap"] == pytest.approx([none[i], whole[i]], abs=2e-3)
        share = (whole - gap_without)[i] / (whole - none)[i]
        assert attribute_shares["put_back"]["L5.MLP"] == pytest.approx(share, rel=1e-2, abs=5e-3)
        assert sum(attribute_shares["shapley"].values()) == pytest.approx(1, abs=5e-3)


def test_the_mean_of_skews_by_occupation_is_the_reported_mean(base):
    bench = Bench(base)
    (metrics,) = bench.show(base, [HeadSet()])
    for attribute, skews in bench.skews(base).items():
        assert len(skews) == 20
        assert skews.mean() == pytest.approx(metrics[f"MaxSkew {attribute}"], abs=1e-5)


@pytest.mark.parametrize(("sign", "word"), [(1, "** Yes. "), (-1, "** No, a lower one. ")])
def test_answers_follow_the_measurements(sign, word):
    """CCS rises with the share in one case and falls in the other; only effects of carriers are shown.

    Args:
        sign: The direction in which CCS changes with the share.
        word: The word of the answer.
    """
    truths = {name: natural.truth(name) for name in natural.located()}
    carriers = sum(
        share >= 0.1 for truth in truths.values() for shares in truth.values() for share in shares.values()
    )
    measured = [f"{metric} {name}" for metric in ("MaxSkew", "gap") for name in ("gender", "skin tone")]
    held = {}
    for model, truth in truths.items():
        (shares, *_) = truth.values()
        order = sorted(shares, key=lambda head: sign * shares[head])
        held[model] = {
            "heads": {str(head): [1 + 4 * (place >= 18), "Letters"] for place, head in enumerate(order)},
            "ablations": [
                {"ablation": ablation, "size": size, **dict.fromkeys((*measured, "accuracy"), value)}
                for ablation, size, value in (("none", 0, 0.8), ("high", 6, 0.3), ("random for high", 6, 0.7))
            ],
            "alone": {
                name: {
                    str(head): [0.1, 1e-6 if head_shares.get(head, 0) >= 0.1 else 0.5] for head in head_shares
                }
                for name, head_shares in truth.items()
            },
        }
    report = ccs_questions.answers(held)
    assert word in report
    assert f"confirms it in {carriers} of" in report
    assert (
        f"Of the {carriers} cases in which the head carries a tenth or more, it confirms {carriers}."
        in report
    )
    assert "| +0.400 [+0.400, +0.400], p 0.125 | +0.500 [+0.500, +0.500], p 0.125 |" in report
