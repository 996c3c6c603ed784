"""Class weights and accuracies against plain loops; intervals against resampled images."""

import numpy as np
import pytest

import ccs
from ccs import InputError
from ccs.analysis.inputs import embed_names
from ccs.analysis.result import FEWEST_IMAGES, warn_if_small
from ccs.metrics import accuracy as zeroshot
from ccs.metrics import stats


def example(n=300, classes=8, d=12, seed=0, noise=1.5):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((classes, d)).astype(np.float32)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    labels = rng.integers(0, classes, n) ** 2 % classes  # uneven, and some classes without images
    images = weights[labels] + noise * d**-0.5 * rng.standard_normal((n, d)).astype(np.float32)
    return images, weights, labels


def test_class_weights_equal_a_loop_over_classes(tiny_model):
    classes, templates = ["dog", "a {weird} name", "someone"], ["a photo of a {}.", "{}", "the {} and the {}"]
    weights = embed_names(tiny_model, classes, templates)
    for row, name in enumerate(classes):
        texts = [t.replace("{}", name).replace("a someone", "someone") for t in templates]
        rows = [tiny_model.embed_texts([text])[0] for text in texts]
        mean = np.mean([r / np.linalg.norm(r) for r in rows], axis=0)
        assert weights[row] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)
    assert weights.dtype == np.float32


@pytest.mark.parametrize("subset", [None, [1, 4, 0]])
def test_accuracy_equals_a_plain_count(subset):
    images, weights, labels = example()
    result = zeroshot.accuracy(images, weights, labels, subset=subset)
    among = np.arange(8) if subset is None else np.sort(subset)
    in_subset = np.isin(labels, among)
    picked = among[(images[in_subset] @ weights[among].T).argmax(axis=1)]
    assert result.top1.value == pytest.approx(np.mean(labels[in_subset] == picked))
    assert result.n == in_subset.sum()


def test_a_paired_difference_is_surer_than_two_intervals():
    images, weights, labels = example(n=1000)
    other = images + 0.05 * np.random.default_rng(1).standard_normal(images.shape)
    first, second = (zeroshot.accuracy(x, weights, labels) for x in (images, other))
    effect = zeroshot.compare_accuracies(second, first)
    assert effect.value == pytest.approx(second.top1.value - first.top1.value)
    assert effect.high - effect.low < first.top1.high - first.top1.low
    assert zeroshot.compare_accuracies(first, first) == stats.Effect(0.0, 0.0, 0.0, 1.0)
    shuffled = zeroshot.accuracy(images[::-1], weights, labels[::-1])
    with pytest.raises(InputError, match="same images"):
        zeroshot.compare_accuracies(first, shuffled)


@pytest.mark.parametrize(("classes", "threshold"), [(2, 0.6), (1000, 0.002)])
def test_a_model_near_chance_is_told(classes, threshold):
    """Twice the guess, or a tenth above it, whichever is less."""
    assert zeroshot.near_chance(0.6, 0.95 * threshold, classes)
    assert zeroshot.near_chance(0.6, 1.05 * threshold, classes) is None


def test_too_few_images_are_warned_of():
    for result, (smallest, _) in FEWEST_IMAGES.items():
        assert warn_if_small(result, smallest) is None
        with pytest.warns(UserWarning, match=f"{smallest - 1}. Results mean little below {smallest}"):
            assert warn_if_small(result, smallest - 1)
    with pytest.warns(UserWarning, match="Too few images for accuracy: 2"):
        table = ccs.accuracy("organism", "world/subjects", max_images=2)
    assert "below 30" in table.doubt
