"""Train the weights of chosen heads only."""

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
KEEP = 0.05  # weight of the change on other images, in logits
ENOUGH = 0.3  # smallest gap between groups, in logits, after which training stops


def train(model: Model, images: Images, heads: HeadSet, lesson: Skew, pictures: int) -> None:
    """Train the weights of heads, in place.

    Gradients outside the heads' slices are set to zero, and Adam doesn't change weights without gradient. The
    rate rises linearly over the first images, then falls linearly to zero.

    Args:
        model: The model.
        images: All training images.
        heads: Heads to train.
        lesson: The bias to learn.
        pictures: Number of images to train on.
    """
    head_slices = planted_models.slices(model.clip, heads)
    learned = {name: model.clip.get_parameter(name).requires_grad_() for name in head_slices}
    masks = {name: torch.zeros_like(values) for name, values in learned.items()}
    for name, head_slice in head_slices.items():
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
    """Plant a bias in the heads of a copy of the base model.

    Heads are trained one after the other, each up to its part of the bias; trained together, one late head
    would learn all of it. If the gap is still small, they are trained further together. With kind "apart",
    the heads of each attribute are trained in a separate copy, and their weights are combined.

    Args:
        organism: Description of the model.
        images: All training images.
        bench: Measures the learned gap.
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
    """Train heads further together if the gap of an attribute is below ENOUGH times the strength.

    Args:
        model: The model.
        organism: Its description.
        heads: Heads to train.
        world: World with the bias to learn.
        images: All training images.
        bench: Measures the learned gap.
    """
    gaps = bench.gaps(model)
    if any(
        carriers & heads and gaps[name] < organism.strength * ENOUGH
        for name, carriers in organism.carries.items()
    ):
        lesson = Skew(images, world, organism.strength, KEEP, 1000 * organism.number + 999)
        train(model, images, heads, lesson, 2 * PICTURES)


def put(source: Model, target: Model, heads: HeadSet) -> None:
    """Copy the weights of heads from one model to another.

    Args:
        source: Model to copy from.
        target: Model that changes.
        heads: Heads to copy.
    """
    for name, head_slice in planted_models.slices(source.clip, heads).items():
        values, others = (
            planted_models.by_head(name, m.clip.get_parameter(name).detach()) for m in (target, source)
        )
        values[head_slice] = others[head_slice]


def shares(
    model: Model, base: Model, carried: Mapping[str, HeadSet], bench: Bench
) -> dict[str, dict[Head, float]]:
    """Compute each head's share: the part of the learned gap that is lost with the head's original weights.

    Args:
        model: Model with planted heads.
        base: Its base model.
        carried: Attribute -> its heads.
        bench: Measures the gap.

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
