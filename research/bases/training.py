"""Train the upper half of an image encoder from scratch: layers 4 to 7, the last norm, and the projection.

The lower layers and the text encoder are organism-first's (`research.world`) and frozen, so activations and
caption embeddings are computed once for all trainings. A seed draws the initial weights, the order of the
images, and the heads' targets. Loss: open_clip's symmetric cross-entropy (Radford et al. 2021) over scenes,
the same over the faces of each line-up, and the distance of heads from their targets.
"""

from __future__ import annotations

import csv
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.model.model import Model
from ccs.synthetic import caption, draw, scene
from research.bases.lessons import Lessons, drawn, value_numbers
from research.model_files import save_variant
from research.muon import Muon
from research.planted.frozen_images import Images
from research.planted.lessons import joint
from research.training_state import load_state, save_state
from research.world.forward_pass import upper_embeddings
from research.world.head_lessons import CONCEPTS, concept_texts, variance
from research.world.organism_training import MODEL_CFG

FIRST = 4
"""The first layer that is trained."""
SPREAD = 12.0
"""Approximate standard deviation of organism-first's activations that enter layer FIRST. Initial weights suit
a residual stream with standard deviation 1, so training divides activations by it; `folded` undoes that."""
HELD_OUT = range(900_000, 900_768)
_SIDE_BY_SIDE = 4  # occupations of a line-up


@dataclass(frozen=True)
class Settings:
    """Settings for training the upper half.

    Attributes:
        seed: Random seed for the weights, the targets, and the order of the images.
        world: World of the line-ups in the last steps; before, they are balanced.
        strengths: Strength of its bias, by gender and by skin tone (`research.planted.lessons.joint`).
        common: Number of first steps, at a constant rate.
        own: Number of last steps, while the rate falls to zero.
        scenes: Scenes per step.
        lineups: Line-ups per step.
        rate: Peak learning rate of Muon, for matrices.
        small_rate: Peak learning rate of AdamW, for all other weights.
        weight_decay: Weight decay of Muon.
        patch_dropout: Share of patches dropped in the first steps.
        taught: Weight of the heads' targets in the last steps; 1 before.
    """

    seed: int
    world: str = "balanced"
    strengths: tuple[float, float] = (1.0, 1.0)
    common: int = 260
    own: int = 140
    scenes: int = 256
    lineups: int = 4
    rate: float = 0.02
    small_rate: float = 1.5e-3
    weight_decay: float = 0.05
    patch_dropout: float = 0.5
    taught: float = 1.0


def lineup_loss(
    faces: Tensor, texts: Tensor, shares: NDArray[np.float64], scale: float, rng: np.random.Generator
) -> Tensor:
    """Compute the contrastive loss of one line-up: ten faces per occupation that differ only in their groups.

    Args:
        faces: Unit embeddings of one face per group [groups, D].
        texts: Embeddings of the occupations [n, D].
        shares: Shares of the groups in each occupation [n, groups].
        scale: Logit scale.
        rng: Random generator that draws the faces.
    """
    picked, occupation_of = draw_faces(shares, rng)
    logits = scale * faces[picked] @ texts.T  # [n texts, texts]
    targets = torch.from_numpy(occupation_of).to(faces.device)
    to_images = logits.T.log_softmax(1)[targets, torch.arange(len(targets), device=targets.device)]
    return (F.cross_entropy(logits, targets) - to_images.mean()) / 2


def draw_faces(
    shares: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Draw as many faces per occupation as there are groups, by stratified sampling from the shares.

    Args:
        shares: Shares of the groups in each occupation [n, groups].
        rng: Random generator.

    Returns:
        Group and occupation of each face, both [n x groups].
    """
    occupations, n = shares.shape
    edges = shares.cumsum(1) / shares.sum(1, keepdims=True)
    quantiles = (np.arange(n) + rng.random((occupations, n))) / n
    picked = [np.minimum(np.searchsorted(e, q), n - 1) for e, q in zip(edges, quantiles, strict=True)]
    return np.concatenate(picked), np.repeat(np.arange(occupations), n)


class Captions:
    """For the scenes of Images: caption embeddings [n, D], and the values that they show [n, concepts]."""

    def __init__(self, images: Images, folder: Path) -> None:
        file = folder / f"captions-{images.base.weights_hash[:12]}-{images.n}.npz"
        if not file.exists():
            scenes = [images.scene(row) for row in range(images.n)]
            vectors = images.base.embed_texts([caption(s) for s in scenes])
            with atomic_write(file) as temporary, temporary.open("wb") as f:
                np.savez(f, vectors=vectors, values=np.array([value_numbers(s) for s in scenes], np.int8))
        with np.load(file) as held:
            self.vectors, self.values = torch.from_numpy(held["vectors"]), torch.from_numpy(held["values"])


COUNTERS = ("step",)


class Trainer:
    """The upper half of an encoder, its optimizers, and the number of finished steps."""

    def __init__(self, settings: Settings, base: Model, images: Images, captions: Captions) -> None:
        self.settings, self.base, self.images, self.captions = settings, base, images, captions
        torch.manual_seed(settings.seed)
        self.device = images.device
        self.model = open_clip.CLIP(**MODEL_CFG).to(self.device)
        fresh = self.model.state_dict()
        base_weights = {name: values for name, values in base.clip.state_dict().items() if not upper(name)}
        self.model.load_state_dict({**fresh, **base_weights})
        self.scale = base.logit_scale
        trained = {name: p for name, p in self.model.named_parameters() if upper(name)}
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in trained)
        self.parameters = list(trained.values())
        inner = {name for name, p in trained.items() if p.ndim == 2 and "resblocks" in name}
        self.muon = Muon([trained[n] for n in sorted(inner)], settings.rate, 0.95, settings.weight_decay)
        others = [p for name, p in trained.items() if name not in inner]
        self.adam = torch.optim.AdamW(others, lr=settings.small_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.step = 0
        self.lessons = Lessons(drawn(settings.seed, list(base.heads)), base, usual_variance(base))

    def write(self, file: Path) -> None:
        """Save the trained half as a file of `ccs_benchmark.variants`, with the heads' targets."""
        clip = open_clip.CLIP(**MODEL_CFG)
        clip.load_state_dict(folded(self.model.state_dict()))
        lessons = {str(head): asdict(lesson) for head, lesson in self.lessons.lessons.items()}
        metadata = {"base": self.base.name, "seed": self.settings.seed, "lessons": lessons}
        save_variant(clip, [name for name, _ in clip.named_parameters() if upper(name)], metadata, file)

    def pace(self) -> float:
        """Return the factor of the peak rates: a short warm-up, 1, then linear to zero."""
        s = self.settings
        left = (s.common + s.own - self.step) / s.own if self.step > s.common else 1.0
        return min(1.0, (self.step + 1) / 30) * left

    def train(self, runs: Path) -> str:
        """Train, continuing from the checkpoints in `runs`, and return the log as CSV."""
        s = self.settings
        common = runs / f"base-{s.seed}"
        own_folder = runs / "-".join([common.name, s.world, *(f"{part:g}" for part in s.strengths)])
        for folder in (common, own_folder):
            folder.mkdir(parents=True, exist_ok=True)
        latest = [own_folder / "last.pt", common / f"step-{s.common}.pt", common / "last.pt"]
        if checkpoint := next((path for path in latest if path.exists()), None):
            load_state(self, checkpoint, COUNTERS)
        if self.step < s.common:
            self.train_until(s.common, latest[2], common / "log.csv")
            save_state(self, latest[1], COUNTERS)
        self.train_until(s.common + s.own, latest[0], own_folder / "log.csv")
        parts = [
            (folder / "log.csv").read_text("utf-8").splitlines(keepends=True)
            for folder in (common, own_folder)
        ]
        return "".join(parts[0] + parts[1][1:])

    def train_until(self, total: int, checkpoint: Path, log: Path | None = None) -> None:
        """Train until `total` steps are finished, with a checkpoint and a log line every 50.

        Args:
            total: Number of steps.
            checkpoint: File of the checkpoint.
            log: CSV file for the log lines.
        """
        s, images = self.settings, self.images
        shares = joint(s.world if total > s.common else "balanced", *s.strengths).numpy().astype(np.float64)
        heads = tuple(self.lessons.lessons)
        started, since = time.monotonic(), self.step
        for step in tqdm(range(self.step, total), initial=self.step, total=total, mininterval=10):
            rng = np.random.default_rng((s.seed, 12, step))
            for optimizer, peak in ((self.muon, s.rate), (self.adam, s.small_rate)):
                optimizer.param_groups[0]["lr"] = peak * self.pace()
            scene_rows = self._rows(step, s.scenes, images.n, 0)
            lineups = self._rows(step, s.lineups, images.n_lineups, 1)
            faces = [row for number in lineups for row in images.faces(number)]
            tokens = images.trunk(np.concatenate([scene_rows, faces])).tokens / SPREAD
            if step < s.common:
                tokens = some_patches(tokens, s.patch_dropout, rng)
            units, written, lengths = upper_embeddings(self.model, tokens, FIRST, heads)
            scene_units, read = units[: s.scenes], self.captions.vectors[scene_rows].to(self.device)
            loss = open_clip.ClipLoss()(scene_units, read, torch.tensor(self.scale, device=self.device))
            groups = units[s.scenes :].reshape(s.lineups, -1, units.shape[1])
            for lineup_faces in groups:
                names = rng.permutation(len(images.occupations))[:_SIDE_BY_SIDE]
                texts = images.occupations[names]
                loss = loss + lineup_loss(lineup_faces, texts, shares[names], self.scale, rng) / s.lineups
            values = self.captions.values[scene_rows].long().to(self.device)
            missed = self.lessons.loss({h: (w / lengths)[: s.scenes] for h, w in written.items()}, values)
            self.model.zero_grad()
            torch.autograd.backward(loss + (1.0 if step < s.common else s.taught) * missed)
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.muon.step()
            self.adam.step()
            self.step = step + 1
            if not torch.isfinite(loss + missed):
                raise InputError("Training diverged (the loss is not finite).")
            if self.step % 50 == 0 or self.step == total:
                save_state(self, checkpoint, COUNTERS)
                speed = (self.step - since) * len(tokens) / (time.monotonic() - started)
                self._log(log, loss.item(), missed.item(), speed)

    def _rows(self, step: int, size: int, of: int, stream: int) -> NDArray[np.int64]:
        """Return the rows of a step, without replacement within an epoch."""
        per = of // size
        order = np.random.default_rng((self.settings.seed, 13, stream, step // per)).permutation(of)
        return np.sort(order[(step % per) * size : (step % per + 1) * size])

    def _log(self, path: Path | None, loss: float, missed: float, speed: float) -> None:
        reached = self.accuracies()
        accuracy_text = ", ".join(f"{concept} {share:.0%}" for concept, share in reached.items())
        tqdm.write(f"{self.step}: loss {loss:.3f} + {missed:.3f}, {accuracy_text}, {speed:.0f} images/s")
        if path is not None:
            fresh = not path.exists()
            with path.open("a", newline="", encoding="utf-8") as f:
                out = csv.writer(f)
                if fresh:
                    out.writerow(["step", "loss", "lessons", *reached])
                out.writerow(
                    [self.step, f"{loss:.4f}", f"{missed:.4f}", *(f"{v:.3f}" for v in reached.values())]
                )

    @cached_property
    def _held_out(self) -> tuple[Tensor, NDArray[np.int64], dict[str, Tensor]]:
        scenes = [scene(seed) for seed in HELD_OUT]
        texts = {
            c: torch.from_numpy(self.base.embed_texts(list(concept_texts(c).values()))).to(self.device)
            for c in CONCEPTS
        }
        tokens = self.base.trunk([draw(s) for s in scenes]).tokens / SPREAD
        return tokens, np.array([value_numbers(s) for s in scenes]), texts

    @torch.no_grad()
    def accuracies(self) -> dict[str, float]:
        """Return the zero-shot accuracy by concept on held-out scenes."""
        tokens, values, texts = self._held_out
        units, by_concept = upper_embeddings(self.model, tokens, FIRST)[0], {}
        for column, concept in enumerate(CONCEPTS):
            there = values[:, column] >= 0
            chosen = (units @ texts[concept].T).argmax(1).cpu().numpy()
            by_concept[concept] = float((chosen == values[:, column])[there].mean())
        return by_concept


def upper(name: str) -> bool:
    """Return whether a parameter of that name is trained."""
    if name.startswith("visual.transformer.resblocks."):
        return int(name.split(".")[3]) >= FIRST
    return name.startswith("visual.ln_post.") or name == "visual.proj"


def folded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights for unscaled activations: the output projections of the trained blocks times SPREAD."""
    ends = ("out_proj.weight", "out_proj.bias", "c_proj.weight", "c_proj.bias")
    return {n: v * SPREAD if upper(n) and n.endswith(ends) else v for n, v in state.items()}


def some_patches(tokens: Tensor, dropped: float, rng: np.random.Generator) -> Tensor:
    """Keep the CLS token and a random share of the patches of each image (Li et al. 2023).

    Args:
        tokens: Activations [n, T, W].
        dropped: Share of patches to drop.
        rng: Random generator.
    """
    n, patches = len(tokens), tokens.shape[1] - 1
    kept_patches = rng.random((n, patches)).argsort(1)[:, : round(patches * (1 - dropped))] + 1
    rows = torch.from_numpy(np.concatenate([np.zeros((n, 1), np.int64), kept_patches], 1)).to(tokens.device)
    return tokens.gather(1, rows[:, :, None].expand(-1, -1, tokens.shape[2]))


@torch.no_grad()
def usual_variance(model: Model) -> float:
    """Return the mean variance of the outputs of a model's heads, over 512 held-out scenes."""
    tokens = model.trunk([draw(scene(seed)) for seed in range(890_000, 890_512)]).tokens
    _, written, lengths = upper_embeddings(model.clip, tokens, FIRST, tuple(model.heads))
    return variance({head: outputs / lengths for head, outputs in written.items()})
