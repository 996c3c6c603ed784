"""Time of a training step of the embedded model, in open_clip's custom and in its default blocks.

`python -m benchmarks.training` lets the two take turns, so that other work slows both alike, and writes the
median seconds to benchmarks/results/training.json. The first phase drops patches, the second does not.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable

import open_clip
import torch
from open_clip.transformer import PatchDropout
from torch.utils.data import default_collate

from batch.train_organism import MODEL_CFG, SceneImages, Settings, fast_to_train, pixels
from benchmarks.common import keep, timed

STEPS = 8


def stepper(model: open_clip.CLIP, pictures: torch.Tensor, tokens: torch.Tensor) -> Callable[[], None]:
    """One step of training on these pictures, the same work each time."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        open_clip.ClipLoss()(*model(pixels(pictures), tokens)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main() -> None:
    torch.manual_seed(0)
    batch = SceneImages("balanced", 2_000_000, Settings.batch_size)
    pictures, tokens = default_collate([batch[i] for i in range(len(batch))])
    found: dict[str, float] = {}
    for phase, dropout in (("first phase", Settings.patch_dropout), ("second phase", 0.0)):
        models = {"default": open_clip.CLIP(**MODEL_CFG)}
        models["custom"] = fast_to_train(models["default"])
        steps, seconds = {}, {name: list[float]() for name in models}
        for name, model in models.items():
            if dropout:
                model.visual.patch_dropout = PatchDropout(dropout)
            steps[name] = stepper(model.train(), pictures, tokens)
            steps[name]()
        for _ in range(STEPS):
            for name, step in steps.items():
                seconds[name].append(timed(step))
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        found |= {f"{phase}, {name}: seconds": median for name, median in medians.items()}
        found[f"{phase}, custom / default"] = medians["custom"] / medians["default"]
    for name, value in found.items():
        print(f"  {name:40s} {value:8.3f}")
    setting = {"batch": len(batch), "processors": os.cpu_count(), "torch": torch.__version__}
    keep("training", setting | found)


if __name__ == "__main__":
    main()
