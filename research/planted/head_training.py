"""Training nothing but the slices of chosen heads."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tqdm import tqdm

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.model.model import Model
from ccs_benchmark import planted_models, variants
from research.planted.bench import Bench
from research.planted.family import PICTURES, RATE, Planted
from research.planted.frozen_images import Images
from research.planted.lessons import Skew

WARMUP = 1_000  # images
KEEP = 0.05  # what a logit that other images move costs
ENOUGH = 0.3  # logits


def train(model: Model, images: Images, heads: HeadSet, lesson: Skew, pictures: int) -> None:
    """Train the slices of heads, in place.

    Adam leaves alone what has no gradient, so outside the slices no bit changes. The rate rises linearly over
    the first images, then falls linearly to zero.

    Args:
        model: the model.
        images: all training images.
        heads: those that learn.
        lesson: what they learn.
        pictures: number of images to train on.
    """
    wanted = planted_models.slices(model.clip, heads)
    learned = {name: model.clip.get_parameter(name).requires_grad_() for name in wanted}
    masks = {name: torch.zeros_like(values) for name, values in learned.items()}
    for name, head_slice in wanted.items():
        planted_models.by_head(name, masks[name])[head_slice] = 1
    optimizer = torch.optim.Adam(list(learned.values()), RATE, betas=(0.9, 0.98), eps=1e-8)
    bar = tqdm(total=pictures, unit=" images", mininterval=10)
    for n_seen in range(0, pictures, lesson.size):
        optimizer.param_groups[0]["lr"] = (
            RATE * min(1.0, (n_seen + lesson.size) / WARMUP) * (1 - n_seen / pictures)
        )
        units = model.encoder.with_values(images.trunk(lesson.rows()), lambda _, values: values)
        loss = lesson.loss(units)
        if not torch.isfinite(loss):
            raise InputError(f"Training of {heads} diverged (the loss is not finite).")
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for name, values in learned.items():
            assert values.grad is not None
            values.grad *= masks[name]
        torch.nn.utils.clip_grad_norm_(list(learned.values()), 1.0)
        optimizer.step()
        bar.update(lesson.size)
        bar.set_postfix(loss=f"{loss.item():.3f}")
    bar.close()
    for values in learned.values():
        values.requires_grad_(False)


def plant(organism: Planted, images: Images, bench: Bench) -> Model:
    """Train a model's heads.

    Each learns a bias alone, after those before it and up to its part: together, one late head would take it
    all. If they have learned little by then, they are trained further together. Attributes with heads of
    their own are learned in separate copies and put together.

    Args:
        organism: the description of the model.
        images: all training images.
        bench: measures what was learned.
    """
    planted = variants.load(organism.base, device=images.device)
    for number, (heads, world) in enumerate(organism.lessons):
        model = variants.load(organism.base, device=images.device)
        seed = 1000 * organism.number + 10 * number
        for place, head in enumerate(heads):
            lesson = Skew(images, world, organism.strength * (place + 1) / len(heads), KEEP, seed + place)
            train(model, images, HeadSet([head]), lesson, PICTURES)
        finish(model, organism, heads, world, images, bench)
        put(model, planted, heads)
    return planted


def finish(model: Model, organism: Planted, heads: HeadSet, world: str, images: Images, bench: Bench) -> None:
    """Train heads further together if they tell an attribute's groups less than ENOUGH logits apart.

    Args:
        model: the model.
        organism: its description; ENOUGH is less for a weaker bias.
        heads: those that learn.
        world: whose bias they learn.
        images: all training images.
        bench: measures what was learned.
    """
    gaps = bench.gaps(model)
    if any(
        carriers & heads and gaps[name] < organism.strength * ENOUGH
        for name, carriers in organism.carries.items()
    ):
        lesson = Skew(images, world, organism.strength, KEEP, 1000 * organism.number + 999)
        train(model, images, heads, lesson, 2 * PICTURES)


def put(source: Model, target: Model, heads: HeadSet) -> None:
    """Give heads of one model the weights of another.

    Args:
        source: the model with the weights.
        target: the model that changes.
        heads: the heads.
    """
    for name, head_slice in planted_models.slices(source.clip, heads).items():
        values, others = (
            planted_models.by_head(name, m.clip.get_parameter(name).detach()) for m in (target, source)
        )
        values[head_slice] = others[head_slice]


def shares(
    model: Model, base: Model, carried: Mapping[str, HeadSet], bench: Bench
) -> dict[str, dict[Head, float]]:
    """Compute the share of the gap above the base's that goes if a head has its old weights.

    Args:
        model: with planted heads.
        base: the model that it started from.
        carried: attribute -> its heads.
        bench: measures the gap.

    Returns:
        Attribute -> head -> share.
    """
    whole, before = bench.gaps(model), bench.gaps(base)
    by_attribute: dict[str, dict[Head, float]] = {name: {} for name in carried}
    for head in HeadSet(head for carriers in carried.values() for head in carriers):
        backup, single_head = variants.load(base.name, device=str(base.encoder.device)), HeadSet([head])
        put(model, backup, single_head)
        put(base, model, single_head)
        gaps = bench.gaps(model)
        for name in carried:
            gap = gaps[name]
            by_attribute[name][head] = round((whole[name] - gap) / (whole[name] - before[name]), 3)
        put(backup, model, single_head)
    return by_attribute
