"""The encoder that causes a group score gap: embeddings with a known cause, and plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ccs
from ccs import Head, HeadSet, InputError
from ccs.analysis.inputs import embed_occupations, in_prompts
from ccs.data import synthetic
from ccs.heads import TEXT
from ccs.metrics.stats import Estimate
from research.text_skew import which_encoder as encoders
from research.text_skew.which_encoder import which_encoder

PEOPLE, PICTURES = synthetic.bias_set("faces"), synthetic.bias_set("counterfactuals")


def make_embeddings(model, seed, skewed):
    """Make embeddings of people and pictures. If images are skewed, people's embeddings depend on the group.

    Args:
        model: The model.
        seed: Random seed.
        skewed: Whether the images are skewed.
    """
    rng = np.random.default_rng(seed)
    prompts = embed_occupations(model, PEOPLE)
    prompts = prompts - prompts.mean(0)
    names, women = np.array(PEOPLE.occupations), PEOPLE.groups["gender"] == "woman"
    apart = rng.standard_normal((2, prompts.shape[1])) * 0.1
    faces = apart[women.astype(int)] + 0.05 * rng.standard_normal((len(women), prompts.shape[1]))
    if skewed == "images":
        faces += np.outer(np.where(women, 1, -1), rng.choice([-1, 1], len(prompts)) @ prompts)
    place = [int(np.flatnonzero(names == name)[0]) for name in np.asarray(PICTURES.pools)]
    pictures = prompts[place] + 0.05 * rng.standard_normal((len(place), prompts.shape[1]))
    return faces.astype(np.float32), pictures.astype(np.float32)


def test_skew_of_images_and_skew_of_prompts_are_distinguished(tiny_model, monkeypatch):
    """Skew of images and skew of prompts are distinguished.

    Args:
        tiny_model: An untrained model.
        monkeypatch: Reverts what the test replaces.
    """
    result = which_encoder(
        tiny_model, PEOPLE, PICTURES, "gender", embedded=make_embeddings(tiny_model, 0, "images")
    )
    assert result.images.low > 0.8
    faces, pictures = make_embeddings(tiny_model, 0, "prompts")
    first_mean, second_mean = encoders.group_means(faces, PEOPLE.groups["gender"])
    prompts = embed_occupations(tiny_model, PEOPLE)
    leaning = prompts + np.outer(np.resize([1, -1], len(prompts)), 2.5 * (first_mean - second_mean))
    monkeypatch.setattr(encoders, "embed_occupations", lambda *_: leaning)
    result = which_encoder(tiny_model, PEOPLE, PICTURES, "gender", embedded=(faces, pictures))
    assert result.prompts.low > 0.8
    assert result.occupations == 20
    assert result.conclusive
    assert not replace(result, images=Estimate(0.53, 0.31, 0.73)).conclusive


def test_results_equal_plain_loops(tiny_model):
    faces, pictures = make_embeddings(tiny_model, 1, "images")
    result = which_encoder(tiny_model, PEOPLE, PICTURES, "skin tone", embedded=(faces, pictures))
    tones = PEOPLE.groups["skin tone"]
    means = {tone: faces[tones == tone].astype(float).mean(0) for tone in sorted(set(tones))}
    middle = sum(means.values()) / len(means)

    def leans(queries):
        centered = queries.astype(float) - queries.astype(float).mean(0)
        size = np.sqrt((centered**2).sum())
        return np.array([[query @ (mean - middle) / size for mean in means.values()] for query in centered])

    picture_means = []
    for name in PEOPLE.occupations:
        groups = PICTURES.groups["skin tone"]
        group_means = [
            pictures[(PICTURES.pools == name) & (groups == tone)].astype(float).mean(0) for tone in means
        ]
        picture_means.append(sum(group_means) / len(group_means))
    ours, theirs = leans(embed_occupations(tiny_model, PEOPLE)), leans(np.stack(picture_means))
    share = np.clip((ours * theirs).sum() / (ours**2).sum(), 0, 1)
    assert result.images.value == pytest.approx(share, abs=1e-6)
    apart = np.array([mean - middle for mean in means.values()])
    slow = at_its_mean(tiny_model, Head(0, 1, TEXT), apart)
    assert result.carried[Head(0, 1, TEXT)] == pytest.approx(slow, rel=1e-3, abs=1e-6)
    assert abs(slow) > 1e-3
    assert list(result.carried.values()) == sorted(result.carried.values(), reverse=True)
    assert HeadSet(result.carried) == tiny_model.text_heads


def at_its_mean(model, head, apart):
    """Return the share of the preference that mean ablation of a head removes, one text at a time.

    Args:
        model: The model.
        head: The head.
        apart: The directions between group means.
    """
    encoder, outputs = model.texts.encoder, []
    texts = [template.replace("{}", name) for name in in_prompts(PEOPLE) for template in PEOPLE.templates]
    trunks = [encoder.trunk(part) for text in texts for _, part in model.texts.batches([text])]
    head_columns = slice(head.head * encoder.head_dim, (head.head + 1) * encoder.head_dim)

    def record(layer, values):
        """Record the outputs of a layer.

        Args:
            layer: The layer.
            values: The heads' outputs.
        """
        if layer == head.layer:
            outputs.append(values[0, :, head_columns].clone())
        return values

    def replaced(layer, values):
        """Replace the outputs of the head by their mean.

        Args:
            layer: The layer.
            values: The heads' outputs.
        """
        if layer == head.layer:
            values = values.clone()
            values[0, 0, head_columns] = sum(output[0] for output in outputs) / len(outputs)
        return values

    leans = []
    with torch.no_grad():
        for change in (record, replaced):
            units = np.stack([encoder.with_values(trunk, change)[0].numpy() for trunk in trunks]).astype(
                float
            )
            prompts = units.reshape(len(in_prompts(PEOPLE)), len(PEOPLE.templates), -1).mean(1)
            prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
            leans.append(np.linalg.norm(prompts @ apart.T))
    return 1 - leans[1] / leans[0]


def test_the_text_head_that_writes_the_group_difference_ranks_first(tiny_folder):
    """People differ along what one head writes to some of the prompts; its output is made large."""
    model, head = ccs.load(str(tiny_folder)), Head(1, 0, TEXT)
    with torch.no_grad():
        d = model.texts.encoder.head_dim
        model.clip.transformer.resblocks[1].attn.out_proj.weight[:, :d] *= 5
    prompts = [template.replace("{}", name) for name in in_prompts(PEOPLE) for template in PEOPLE.templates]
    written = model.texts.contributions(prompts, HeadSet([head])).direct[:, 0]
    along = np.linalg.svd(written - written.mean(0), full_matrices=False)[2][0]
    middle = model.embed_texts(prompts).mean(0)
    along -= (along @ middle) / (middle @ middle) * middle  # what all prompts have in common leans nowhere
    faces, pictures = make_embeddings(model, 2, "prompts")
    faces += np.outer(np.where(PEOPLE.groups["gender"] == "woman", 1, -1), along)
    result = which_encoder(model, PEOPLE, PICTURES, "gender", embedded=(faces, pictures))
    assert next(iter(result.carried)) == head
    assert result.carried[head] > 0.3


def test_pictures_without_enough_groups_or_occupations_are_refused(tiny_model):
    judges = np.where(PICTURES.groups["gender"] == "man", "judge", PICTURES.pools)
    for pictures, why in (
        (PEOPLE, "needs images of at least three"),
        (replace(PICTURES, groups={"age": PICTURES.groups["gender"]}), "has no column of groups 'gender'"),
        (replace(PICTURES, pools=judges), "has no image of group"),
    ):
        with pytest.raises(InputError, match=why):
            which_encoder(
                tiny_model, PEOPLE, pictures, "gender", embedded=make_embeddings(tiny_model, 0, "images")
            )
