"""Zero-shot accuracy: class embeddings, paired differences, and warnings about weak results."""

import numpy as np
import pytest

import ccs
from ccs.analysis.inputs import embed_names
from ccs.analysis.result import FEWEST_IMAGES, warn_if_small
from ccs.metrics import accuracy, stats


def make_classification(n_images=300, n_classes=8, dim=12):
    """Draw image embeddings near their class embedding, with uneven classes, some of them empty."""
    rng = np.random.default_rng(0)
    classes = rng.standard_normal((n_classes, dim)).astype(np.float32)
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    labels = rng.integers(0, n_classes, n_images) ** 2 % n_classes
    noise = rng.standard_normal((n_images, dim)).astype(np.float32)
    return classes[labels] + 1.5 * dim**-0.5 * noise, classes, labels


def test_class_embeddings_match_loop_over_templates(tiny_model):
    classes, templates = ["dog", "a {weird} name", "someone"], ["a photo of a {}.", "{}", "the {} and the {}"]
    weights = embed_names(tiny_model, classes, templates)
    for row, name in enumerate(classes):
        texts = [t.replace("{}", name).replace("a someone", "someone") for t in templates]
        embeddings = [tiny_model.embed_texts([text])[0] for text in texts]
        mean = np.mean([embedding / np.linalg.norm(embedding) for embedding in embeddings], axis=0)
        assert weights[row] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


@pytest.mark.parametrize("subset", [None, [1, 4, 0]])
def test_accuracy_matches_plain_count(subset):
    images, weights, labels = make_classification()
    result = accuracy.accuracy(images, weights, labels, subset=subset)
    classes = np.arange(8) if subset is None else np.sort(subset)
    in_subset = np.isin(labels, classes)
    predicted = classes[(images[in_subset] @ weights[classes].T).argmax(axis=1)]
    assert result.top1.value == pytest.approx(np.mean(labels[in_subset] == predicted))
    assert result.n == in_subset.sum()


def test_paired_difference_is_narrower_than_single_intervals():
    images, weights, labels = make_classification(n_images=1000)
    noisy = images + 0.05 * np.random.default_rng(1).standard_normal(images.shape)
    before, after = (accuracy.accuracy(x, weights, labels) for x in (images, noisy))
    effect = accuracy.compare_accuracies(after, before)
    assert effect.value == pytest.approx(after.top1.value - before.top1.value)
    assert effect.high - effect.low < before.top1.high - before.top1.low
    unchanged = accuracy.compare_accuracies(before, before)
    assert (unchanged.value, unchanged.high, unchanged.p_value) == (0, stats.wilson(0, 1000)[1], 1)
    reversed_order = accuracy.accuracy(images[::-1], weights, labels[::-1])
    with pytest.raises(ccs.InputError, match="same images"):
        accuracy.compare_accuracies(before, reversed_order)


@pytest.mark.parametrize(("n_classes", "threshold"), [(2, 0.6), (1000, 0.002)])
def test_near_chance_warns_below_threshold(n_classes, threshold):
    """The threshold is twice the chance level or 10 points above it, whichever is lower."""
    assert accuracy.near_chance(0.6, 0.95 * threshold, n_classes)
    assert accuracy.near_chance(0.6, 1.05 * threshold, n_classes) is None


def test_too_few_images_cause_warning():
    for result, (smallest, _) in FEWEST_IMAGES.items():
        assert warn_if_small(result, smallest) == ""
        with pytest.warns(UserWarning, match=f"{smallest - 1}. Results mean little below {smallest}"):
            assert warn_if_small(result, smallest - 1)
    with pytest.warns(UserWarning, match="Too few images for accuracy: 2"):
        table = ccs.accuracy("organism", "world/subjects", max_images=2)
    assert "below 30" in table.about["warning"]
