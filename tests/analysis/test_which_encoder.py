"""Which encoder a group score gap sits in: embeddings of which it is known, and plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ccs
from ccs import Head, HeadSet, InputError
from ccs.analysis import which_encoder as encoders
from ccs.analysis.bias import embed_occupations, in_prompts
from ccs.analysis.which_encoder import which_encoder
from ccs.data import synthetic
from ccs.heads import TEXT
from ccs.metrics.stats import Estimate

PEOPLE, PICTURES = synthetic.bias_set("faces"), synthetic.bias_set("counterfactuals")


def made(model, seed, skewed):
    """Embeddings of people and pictures; people lean by group where the skew is in the images."""
    rng = np.random.default_rng(seed)
    prompts = embed_occupations(model, PEOPLE)
    prompts = prompts - prompts.mean(0)
    names, women = np.array(PEOPLE.occupations), PEOPLE.groups["gender"] == "woman"
    apart = rng.standard_normal((2, prompts.shape[1])) * 0.1
    faces = apart[women.astype(int)] + 0.05 * rng.standard_normal((len(women), prompts.shape[1]))
    if skewed == "images":
        faces += np.outer(np.where(women, 1, -1), rng.choice([-1, 1], len(prompts)) @ prompts)
    place = [int(np.flatnonzero(names == one)[0]) for one in np.asarray(PICTURES.pools)]
    pictures = prompts[place] + 0.05 * rng.standard_normal((len(place), prompts.shape[1]))
    return faces.astype(np.float32), pictures.astype(np.float32)


def test_images_that_lean_are_told_from_prompts_that_do(tiny_model, monkeypatch):
    found = which_encoder(tiny_model, PEOPLE, PICTURES, "gender", embedded=made(tiny_model, 0, "images"))
    assert found.images.low > 0.8
    faces, pictures = made(tiny_model, 0, "prompts")
    one, other = encoders.group_means(faces, PEOPLE.groups["gender"])
    prompts = embed_occupations(tiny_model, PEOPLE)
    leaning = prompts + np.outer(np.resize([1, -1], len(prompts)), 2.5 * (one - other))
    monkeypatch.setattr(encoders, "embed_occupations", lambda *_: leaning)
    found = which_encoder(tiny_model, PEOPLE, PICTURES, "gender", embedded=(faces, pictures))
    assert found.prompts.low > 0.8
    assert found.occupations == 20
    assert found.conclusive
    assert not replace(found, images=Estimate(0.53, 0.31, 0.73)).conclusive


def test_figures_are_those_of_plain_loops(tiny_model):
    faces, pictures = made(tiny_model, 1, "images")
    found = which_encoder(tiny_model, PEOPLE, PICTURES, "skin tone", embedded=(faces, pictures))
    tones = PEOPLE.groups["skin tone"]
    means = {tone: faces[tones == tone].astype(float).mean(0) for tone in sorted(set(tones))}
    middle = sum(means.values()) / len(means)

    def leans(queries):
        own = queries.astype(float) - queries.astype(float).mean(0)
        size = np.sqrt((own**2).sum())
        return np.array([[one @ (mean - middle) / size for mean in means.values()] for one in own])

    shown = []
    for name in PEOPLE.occupations:
        groups = PICTURES.groups["skin tone"]
        own = [pictures[(PICTURES.pools == name) & (groups == tone)].astype(float).mean(0) for tone in means]
        shown.append(sum(own) / len(own))
    ours, theirs = leans(embed_occupations(tiny_model, PEOPLE)), leans(np.stack(shown))
    share = np.clip((ours * theirs).sum() / (ours**2).sum(), 0, 1)
    assert found.images.value == pytest.approx(share, abs=1e-6)
    apart = np.array([mean - middle for mean in means.values()])
    slow = at_its_mean(tiny_model, Head(0, 1, TEXT), apart)
    assert found.carried[Head(0, 1, TEXT)] == pytest.approx(slow, rel=1e-3, abs=1e-6)
    assert abs(slow) > 1e-3
    assert list(found.carried.values()) == sorted(found.carried.values(), reverse=True)
    assert HeadSet(found.carried) == tiny_model.text_heads


def at_its_mean(model, head, apart):
    """The share of the lean that goes with a head at its mean where a text is read, one text at a time."""
    encoder, outputs = model.texts.encoder, []
    texts = [template.replace("{}", name) for name in in_prompts(PEOPLE) for template in PEOPLE.templates]
    trunks = [encoder.trunk(part) for text in texts for _, part in model.texts.batches([text])]
    own = slice(head.head * encoder.head_dim, (head.head + 1) * encoder.head_dim)

    def seen(layer, values):
        if layer == head.layer:
            outputs.append(values[0, :, own].clone())
        return values

    def replaced(layer, values):
        if layer == head.layer:
            values = values.clone()
            values[0, 0, own] = sum(one[0] for one in outputs) / len(outputs)
        return values

    leans = []
    with torch.no_grad():
        for change in (seen, replaced):
            units = np.stack([encoder.with_values(trunk, change)[0].numpy() for trunk in trunks]).astype(
                float
            )
            prompts = units.reshape(len(in_prompts(PEOPLE)), len(PEOPLE.templates), -1).mean(1)
            prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
            leans.append(np.linalg.norm(prompts @ apart.T))
    return 1 - leans[1] / leans[0]


def test_the_text_head_that_writes_what_groups_differ_by_comes_first(tiny_folder):
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
    faces, pictures = made(model, 2, "prompts")
    faces += np.outer(np.where(PEOPLE.groups["gender"] == "woman", 1, -1), along)
    found = which_encoder(model, PEOPLE, PICTURES, "gender", embedded=(faces, pictures))
    assert next(iter(found.carried)) == head
    assert found.carried[head] > 0.3


def test_pictures_that_do_not_say_enough_are_refused(tiny_model):
    judges = np.where(PICTURES.groups["gender"] == "man", "judge", PICTURES.pools)
    for pictures, why in (
        (PEOPLE, "must show at least three of the occupations"),
        (replace(PICTURES, groups={"age": PICTURES.groups["gender"]}), "does not say the gender"),
        (replace(PICTURES, pools=judges), "no"),
    ):
        with pytest.raises(InputError, match=why):
            which_encoder(tiny_model, PEOPLE, pictures, "gender", embedded=made(tiny_model, 0, "images"))
