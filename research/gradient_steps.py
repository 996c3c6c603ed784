"""Train some parameters of a model with AdamW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.model.model import Model

OWN_OF_HEADS = (".attn.in_proj_weight", ".attn.in_proj_bias", ".attn.out_proj.weight")
"""Ends of the names of parameters that belong to single heads (all share the output projection's bias)."""


def parameter_names(model: Model, blocks: str, ends: Sequence[str], first: int = 0) -> list[str]:
    """List the parameters of an encoder's blocks to train.

    Args:
        model: The model.
        blocks: Start of the names of the encoder's blocks.
        ends: Parts of names; a parameter's name has one of them.
        first: First block to train.
    """
    return [
        name
        for name, _ in model.clip.named_parameters()
        if name.startswith(blocks)
        and int(name.removeprefix(blocks).split(".")[0]) >= first
        and any(end in name for end in ends)
    ]


def learn(
    model: Model,
    names: Sequence[str],
    loss_of: Callable[[int], Tensor],
    title: str,
    *,
    steps: int,
    rate: float,
    warmup: int,
    checkpoint: Path | None = None,
) -> Model:
    """Train parameters with AdamW, in place, or continue from the checkpoint.

    The learning rate rises linearly over `warmup` steps and falls linearly to zero.

    Args:
        model: The model.
        names: Names of the parameters.
        loss_of: Returns the loss of a step, given its number.
        title: Title of the progress bar.
        steps: Total number of steps.
        rate: Peak learning rate.
        warmup: Number of warm-up steps.
        checkpoint: File of the checkpoint. Default: none.
    """
    learned = [model.clip.get_parameter(name).requires_grad_() for name in names]
    optimizer, done = torch.optim.AdamW(learned, rate, betas=(0.9, 0.98), weight_decay=0.0), 0
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint)
        model.clip.load_state_dict(state["model"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    bar = tqdm(range(done, steps), title, initial=done, total=steps, mininterval=20)
    for step in bar:
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / warmup) * (1 - step / steps)
        loss = loss_of(step)
        if not torch.isfinite(loss):
            raise InputError(f"Training of {title} diverged (the loss isn't finite).")
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        if checkpoint is not None and ((step + 1) % 250 == 0 or step + 1 == steps):
            saved_values = {name: model.clip.get_parameter(name).detach() for name in names}
            with atomic_write(checkpoint) as temporary:
                torch.save(
                    {"model": saved_values, "optimizer": optimizer.state_dict(), "step": step + 1}, temporary
                )
    for values in learned:
        values.requires_grad_(False)
    return model
