"""Edits and ablation of the heads of a SigLIP-style toy model: `python -m research.editing.siglip`.

`--run` first trains the model (20 minutes on one core, resumable) and measures it.

The lower four layers and the text encoder are `organism-first`'s, and fixed. The upper four layers start from
`organism-first`. An attention pool with an MLP reads the tokens, so the embedding isn't linear in the heads'
outputs. The loss is SigLIP's (Zhai et al. 2023, arXiv 2303.15343), on scenes with captions, and on line-ups
of a biased world with the names of occupations.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from open_clip.timm_model import TimmModel
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.batch.pages import markdown_table
from ccs.model.loading.config import timm_vit
from ccs.model.model import Model
from ccs_benchmark import variants
from ccs_benchmark.documents import bring_up_to_date
from research.bases.training import FIRST, Captions, draw_faces
from research.editing import frontiers
from research.editing.document import COLUMNS, DOCS, NAMES
from research.gradient_steps import learn
from research.planted.family import BASE
from research.planted.frozen_images import Images
from research.planted.lessons import joint
from research.world.organism_training import MODEL_CFG

CELLS, RUNS = Path(__file__).with_name("siglip.csv"), Path("runs")
STEPS, RATE, WARMUP = 1_200, 1e-3, 100
SCENES, LINEUPS, OCCUPATIONS = 128, 4, 4
"""Per step: number of scenes and line-ups; per line-up: number of occupations."""
BIAS = -10.0
"""Initial logit bias, as in SigLIP."""
_NAMES = {
    "conv1": "patch_embed.proj",
    "ln_pre": "norm_pre",
    "ln_post": "norm",
    "transformer.resblocks": "blocks",
    "ln_1": "norm1",
    "ln_2": "norm2",
    "attn.in_proj_": "attn.qkv.",
    "out_proj": "proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
    "class_embedding": "cls_token",
    "positional_embedding": "pos_embed",
}
"""open_clip's parts of weight names -> timm's."""


def start_model(base: Model, seed: int = 0) -> Model:
    """Replace a model's CLS read-out by an attention pool with an MLP, in place.

    Args:
        base: `organism-first`, which keeps its blocks and text encoder.
        seed: Random seed for the new weights.
    """
    torch.manual_seed(seed)
    vision, dim = MODEL_CFG["vision_cfg"], MODEL_CFG["embed_dim"]
    visual = TimmModel("vit_tiny_patch16_224", dim, vision["image_size"], pool="", proj="linear")
    visual.trunk = timm_vit(
        vision, pre_norm=True, pool_include_prefix=True, norm_layer=partial(nn.LayerNorm, eps=1e-5)
    )
    weights = {}
    for name, values in base.clip.visual.state_dict().items():
        for old, new in _NAMES.items():
            name = name.replace(old, new)
        weights[name] = values
    target = visual.trunk.state_dict()
    weights = {name: weights[name].reshape(target[name].shape) for name in target if name in weights}
    visual.trunk.load_state_dict(weights, strict=False)
    visual.preprocess_cfg = base.preprocess_config
    base.use_image_encoder(visual)
    base.clip.logit_bias = nn.Parameter(torch.tensor(BIAS), requires_grad=False)
    return base


def upper_units(visual: TimmModel, tokens: Tensor) -> Tensor:
    """Compute unit embeddings [n, D].

    Args:
        visual: The toy model's image encoder.
        tokens: Inputs of layer FIRST [n, T, W].
    """
    for block in visual.trunk.blocks[FIRST:]:
        tokens = block(tokens)
    pooled = visual.trunk.forward_head(visual.trunk.norm(tokens))
    return F.normalize(visual.head(pooled), dim=-1)


def train(runs: Path, seed: int = 0, steps: int = STEPS) -> Model:
    """Train the toy model, or continue from its last checkpoint.

    Args:
        runs: Folder for activations and the checkpoint.
        seed: Random seed for new weights and for the order of images.
        steps: Number of optimizer steps.
    """
    base, model = variants.load(BASE), start_model(variants.load(BASE), seed)
    runs.mkdir(parents=True, exist_ok=True)
    images = Images(base, runs)
    captions = Captions(images, runs).vectors
    shares = joint("skewed").numpy().astype(np.float64)
    trained = [
        name
        for name, _ in model.clip.named_parameters()
        if name.startswith(("visual.trunk.norm.", "visual.trunk.attn_pool.", "visual.head.", "logit_"))
        or (name.startswith("visual.trunk.blocks.") and int(name.split(".")[3]) >= FIRST)
    ]

    def pair_loss(units: Tensor, texts: Tensor, pairs: Tensor) -> Tensor:
        """Compute SigLIP's loss over all pairs of images and texts.

        Args:
            units: Unit embeddings of images [n, d].
            texts: Unit embeddings of texts [texts, d].
            pairs: Whether a text belongs to an image [n, texts].
        """
        logits = model.clip.logit_scale.exp() * units @ texts.T + model.clip.logit_bias
        return -F.logsigmoid(torch.where(pairs, logits, -logits)).sum(1).mean()

    def loss_of(step: int) -> Tensor:
        rng = np.random.default_rng((seed, 18, step))
        scene_rows = np.sort(rng.choice(images.n, SCENES, replace=False))
        picked = rng.choice(images.n_lineups, LINEUPS, replace=False)
        rows = np.concatenate([scene_rows, *(images.faces(int(number)) for number in picked)])
        units = upper_units(model.clip.visual, images.trunk(rows).tokens)
        loss = pair_loss(units[:SCENES], captions[scene_rows], torch.eye(SCENES, dtype=torch.bool))
        for faces in units[SCENES:].reshape(LINEUPS, -1, units.shape[1]):
            occupations = rng.permutation(len(images.occupations))[:OCCUPATIONS]
            drawn, occupation_of = draw_faces(shares[occupations], rng)
            pairs = F.one_hot(torch.from_numpy(occupation_of), OCCUPATIONS).bool()
            texts = images.occupations[occupations]
            loss = loss + pair_loss(faces[drawn], texts, pairs) / LINEUPS
        return loss

    checkpoint = runs / f"siglip-{seed}.pt"
    learn(model, trained, loss_of, "SigLIP toy", steps=steps, rate=RATE, warmup=WARMUP, checkpoint=checkpoint)
    model.name = "SigLIP toy"
    return model


def measure(model: Model) -> pd.DataFrame:
    """Measure ablation, edits, and LEACE on the toy model, for both attributes, on fresh faces."""
    images = frontiers.Images(model)
    cases = [
        frontiers.measure_case(model, images, attribute).assign(attribute=attribute)
        for attribute in frontiers.ATTRIBUTES
    ]
    return pd.concat(cases)


def write_table(cells: pd.DataFrame) -> None:
    """Write the table of docs/edit-heads.md: means over both attributes."""
    means = cells.groupby("condition")[list(COLUMNS)].mean() * [1, 100, 100, 1]
    rows = [
        {"": title}
        | {
            heading: f"{means[column][name]:.{2 if 'skew' in column else 1}f}"
            for column, heading in COLUMNS.items()
        }
        for name, title in NAMES.items()
    ]
    table = markdown_table(pd.DataFrame(rows))
    bring_up_to_date(DOCS / "edit-heads.md", "siglip", table, "python -m research.editing.siglip")


if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        measure(train(RUNS)).to_csv(CELLS, index=False, float_format="%.5f")
    write_table(pd.read_csv(CELLS))
