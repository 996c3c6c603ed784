"""A tiny model in which one head writes the difference of two groups, with the evidence for methods."""

import numpy as np
import pytest
import torch

import ccs
from ccs import Head, HeadSet
from ccs.analysis.evidence import Evidence, Reading
from ccs.analysis.task import Task
from ccs.texts import pools, score
from ccs.texts.textspan import textspan

WRITER = Head(3, 2)
NAMES = {"one": ("first name",), "two": ("second name",)}


@pytest.fixture(scope="module")
def evidence(tiny_folder, random_images):
    """Evidence of a model whose head WRITER writes strongly.

    The groups are the halves of its outputs along their main direction. Prompts and the names of the groups
    lie along this direction.
    """
    model = ccs.load(str(tiny_folder))
    d = model.encoder.width // 4
    with torch.no_grad():
        block = model.clip.visual.transformer.resblocks[WRITER.layer]
        block.attn.out_proj.weight[:, WRITER.head * d : (WRITER.head + 1) * d] *= 5
    images = random_images(32)
    written = model.contributions(images, HeadSet([WRITER])).direct[:, 0]
    _, _, directions = np.linalg.svd(written - written.mean(0), full_matrices=False)
    middle = model.embed_images(images).mean(0)
    along = directions[0] - (directions[0] @ middle) / (middle @ middle) * middle  # no mean score
    along /= np.linalg.norm(along)
    groups = np.where(written @ along > np.median(written @ along), "one", "two")
    rng = np.random.default_rng(0)
    signs = np.array([1, -1, 1, -1, 1, -1])
    noise = rng.standard_normal((6, len(along))) / 20
    prompts = signs[:, None] * along + noise - (noise @ along)[:, None] * along
    name_vectors = {"first name": along, "second name": -along}
    embed_other_texts = model.embed_texts

    def embed_texts(texts):
        rows = zip(texts, embed_other_texts(list(texts)), strict=True)
        return np.stack([name_vectors.get(text, row) for text, row in rows])

    model.embed_texts = embed_texts
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    controls = {"controls": model.trunk(images[:12]), "labels": np.arange(12) % 3}
    controls["class_weights"] = rng.standard_normal((3, len(along)))
    task = Task(people=model.trunk(images), groups=groups, prompts=prompts, k=8, **controls)
    pool = pools.make_pool("own", [(f"text {i}", ("Women", "Colors")[i % 2]) for i in range(12)])
    moments = ccs.collect_moments(model, [images])
    scores = {head: score.HeadScore(i % 4, "Colors") for i, head in enumerate(model.heads)}
    spans = textspan(moments, pool.texts, model.embed_texts(pool.texts), 3)
    reading = Reading(moments=moments, pool=pool, spans=spans, scores=scores)
    return Evidence(model=model, task=task, names=NAMES, read=lambda: reading)
