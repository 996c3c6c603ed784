"""Train organism-first on the synthetic world. All other models start from its lower layers and text encoder.

Loss: open_clip's symmetric cross-entropy (Radford et al. 2021), plus the heads' training targets in phase 2.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from open_clip.transformer import PatchDropout
from safetensors.torch import save_file
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.heads import Head
from ccs.synthetic import Scene, caption, draw, scene
from research.model_files import only_words_read
from research.muon import Muon
from research.training_state import load_state, save_state
from research.world.forward_pass import image_embeddings, pixels, text_embeddings
from research.world.head_lessons import CONCEPTS, Lessons, concept_texts, taught, value_of, variance
from research.world.lineups import LINEUP, lineup

MODEL_CFG: dict[str, Any] = {
    "embed_dim": 160,
    "vision_cfg": {
        "image_size": 72,
        "patch_size": 12,
        "width": 192,
        "layers": 8,
        "head_width": 32,
        "mlp_ratio": 2.0,
    },
    "text_cfg": {"context_length": 44, "vocab_size": 49408, "width": 160, "heads": 5, "layers": 4},
}
PREPROCESS_CFG = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "shortest"}
TRAINING_SEEDS = 1_000_000  # scenes below this seed are reserved for evaluation
WARMUP = 20_000  # images, or a fifth of a shorter training
MODELS = Path(__file__).parents[2] / "ccs" / "bundled"
WEIGHTS, CONFIG = "open_clip_model.safetensors", "open_clip_config.json"


@dataclass(frozen=True)
class Settings:
    """Settings for training organism-first.

    Attributes:
        seed: Random seed.
        shared: Number of images in phase 1.
        own: Number of images in phase 2.
        batch_size: Images per step.
        rate: Peak learning rate of Muon, for the matrices inside the encoders.
        small_rate: Peak learning rate of AdamW, for all other weights.
        weight_decay: Weight decay of Muon.
        patch_dropout: Share of patches dropped in phase 1 (Li et al. 2023).
    """

    seed: int = 0
    shared: int = 614_400
    own: int = 204_800
    batch_size: int = 256
    rate: float = 0.02
    small_rate: float = 1.5e-3
    weight_decay: float = 0.05
    patch_dropout: float = 0.3


class SceneImages(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Scene `start + i` as (uint8 image [s, s, 3], tokens [context], values for the training targets).

    In phase 2, which has `lessons`, every second block of LINEUP seeds is replaced by the line-up of the
    block's first seed.
    """

    def __init__(self, start: int, n: int, lessons: Lessons | None = None) -> None:
        self.start, self.n, self.lessons = start, n, lessons
        self.tokenize = tokenizer()
        self.size = MODEL_CFG["vision_cfg"]["image_size"]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        s = self.scene(self.start + i)
        values = torch.tensor(self.lessons.values(s) if self.lessons else [], dtype=torch.long)
        return torch.from_numpy(np.array(draw(s, self.size))), self.tokenize(caption(s))[0], values

    def scene(self, seed: int) -> Scene:
        """Return the scene of a seed: a face of a line-up, or an independent scene."""
        place = seed % (2 * LINEUP) - LINEUP
        if self.lessons and place >= 0:
            return lineup(seed - place)[place]
        return scene(seed)


def tokenizer() -> open_clip.SimpleTokenizer:
    """Return the model's tokenizer without its slow cleaning of text encodings."""
    tokenize = open_clip.SimpleTokenizer(context_length=MODEL_CFG["text_cfg"]["context_length"])
    tokenize.clean_fn = str.lower  # captions are plain ASCII
    return tokenize


def fast_to_train(model: open_clip.CLIP) -> open_clip.CLIP:
    """Return the model with open_clip's custom attention blocks.

    Parameters, their names, and outputs equal those of the default blocks, whose MultiheadAttention copies
    more tensors.
    """
    vision, text = ({**MODEL_CFG[key], "block_type": "custom"} for key in ("vision_cfg", "text_cfg"))
    same = open_clip.CLIP(MODEL_CFG["embed_dim"], vision, text)
    same.load_state_dict(model.state_dict())
    return same


COUNTERS = ("seen", "usual", "words_seen")


class Trainer:
    """A model, its optimizers, and the number of images seen."""

    def __init__(self, settings: Settings, folder: Path, device: str) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.folder, self.device = settings, folder, device
        self.model = fast_to_train(open_clip.CLIP(**MODEL_CFG)).to(device).train()
        parameters = dict(self.model.named_parameters())
        inner = {name for name, p in parameters.items() if p.ndim == 2 and "resblocks" in name}
        self.muon = Muon(
            (parameters[name] for name in sorted(inner)), settings.rate, 0.95, settings.weight_decay
        )
        others = [p for name, p in parameters.items() if name not in inner]
        self.adam = torch.optim.AdamW(
            others, lr=settings.small_rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0, fused=True
        )
        self.seen, self.usual = 0, 0.0
        self.words_seen = torch.zeros(MODEL_CFG["text_cfg"]["vocab_size"], dtype=torch.bool)

    def pace(self) -> float:
        """Return the factor of the peak rates: a linear warm-up, 1, then linear to zero in phase 2."""
        s = self.settings
        left = (s.shared + s.own - self.seen) / s.own if self.seen > s.shared else 1.0
        warmup = min(WARMUP, (s.shared + s.own) // 5)
        return min(1.0, (self.seen + s.batch_size) / warmup) * max(left, 0.0)

    def train_until(self, total: int, checkpoint: Path, workers: int, lessons: Lessons | None = None) -> None:
        """Train until `total` images are seen, with a checkpoint and a log line every 80 batches.

        Args:
            total: Number of images.
            checkpoint: File of the checkpoint.
            workers: Number of processes that draw images.
            lessons: Training targets of the heads, in phase 2.
        """
        s = self.settings
        start = TRAINING_SEEDS * (1 + s.seed * 100) + self.seen
        data = SceneImages(start, total - self.seen, lessons)
        loader = DataLoader(data, s.batch_size, num_workers=workers, drop_last=True)
        bar = tqdm(total=total, initial=self.seen, unit=" images", mininterval=10)
        started, since = time.monotonic(), self.seen
        for images, tokens, values in loader:
            self.words_seen[tokens.unique()] = True
            for optimizer, peak in ((self.muon, s.rate), (self.adam, s.small_rate)):
                optimizer.param_groups[0]["lr"] = peak * self.pace()
            if lessons:
                lessons.refresh(self.model, data.tokenize)
            loss, missed = self._losses(images, tokens, values, lessons)
            self.model.zero_grad()
            torch.autograd.backward(loss + missed)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.muon.step()
            self.adam.step()
            with torch.no_grad():
                self.model.logit_scale.clamp_(0, float(np.log(100)))
            self.seen += len(tokens)
            bar.update(len(tokens))
            bar.set_postfix(loss=f"{loss.item():.3f}", lessons=f"{missed.item():.3f}", refresh=False)
            if not torch.isfinite(loss + missed):
                raise InputError("Training diverged (the loss is not finite).")
            if self.seen % (80 * s.batch_size) < s.batch_size:
                speed = (self.seen - since) / (time.monotonic() - started)
                self._log(loss.item(), missed.item(), speed)
                save_state(self, checkpoint, COUNTERS)
        bar.close()
        save_state(self, checkpoint, COUNTERS)

    def _losses(
        self, images: torch.Tensor, tokens: torch.Tensor, values: torch.Tensor, lessons: Lessons | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the contrastive loss, and the loss of the heads' targets (0 without targets)."""
        heads = tuple(lessons.heads) if lessons else ()
        with torch.autocast(self.device, torch.bfloat16):
            image_units, written = image_embeddings(self.model, pixels(images.to(self.device)), heads)
            read = text_embeddings(self.model, tokens.to(self.device))
        loss = open_clip.ClipLoss()(image_units, read, self.model.logit_scale.exp())
        missed = lessons.loss(written, values.to(self.device)) if lessons else torch.zeros_like(loss)
        return loss, missed

    @torch.no_grad()
    def usual_variance(self, heads: Iterable[Head]) -> float:
        """Return the heads' mean variance over 512 held-out scenes (`head_lessons.variance`)."""
        images = np.stack([np.asarray(draw(scene(seed))) for seed in range(890_000, 890_512)])
        image_pixels = pixels(torch.from_numpy(images).to(self.device))
        return variance(image_embeddings(self.model, image_pixels, tuple(heads))[1])

    def _log(self, loss: float, missed: float, speed: float) -> None:
        path = self.folder / "log.csv"
        fresh = not path.exists()
        reached = accuracies(self.model, self.device)
        with path.open("a", newline="", encoding="utf-8") as f:
            out = csv.writer(f)
            if fresh:
                out.writerow(["images", "loss", "lessons", *reached, "images_per_second"])
            out.writerow(
                [
                    self.seen,
                    f"{loss:.4f}",
                    f"{missed:.4f}",
                    *(f"{share:.3f}" for share in reached.values()),
                    f"{speed:.1f}",
                ]
            )
        accuracy_text = ", ".join(f"{concept} {share:.0%}" for concept, share in reached.items())
        tqdm.write(
            f"{self.seen}: loss {loss:.3f} + {missed:.3f}, {accuracy_text}, {speed:.0f} images/s",
            file=sys.stderr,
        )


def write_model(
    folder: Path,
    model: open_clip.CLIP,
    words_seen: torch.Tensor,
    config: dict[str, Any],
    preprocess: dict[str, Any],
    notes: dict[str, Any],
) -> None:
    """Write a folder in open_clip's format, in float16, without the embeddings of tokens unseen in training.

    Args:
        folder: Folder to write.
        model: The open_clip module.
        words_seen: Whether each token of the vocabulary was seen in training [vocabulary].
        config: Configuration of the model.
        preprocess: Configuration of the image preprocessing.
        notes: Facts about the training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items() if k != "attn_mask"}
    state["token_embedding.weight"][~words_seen] = 0.0
    half = {k: (v.half() if v.is_floating_point() else v).contiguous() for k, v in state.items()}
    with atomic_write(folder / WEIGHTS) as temporary:
        save_file(only_words_read(half), temporary)
        temporary.chmod(0o644)
    described = {"model_cfg": config, "preprocess_cfg": preprocess}
    (folder / CONFIG).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
    (folder / "training.json").write_text(json.dumps(notes, indent=2) + "\n", "utf-8")


@torch.no_grad()
def accuracies(model: open_clip.CLIP, device: str) -> dict[str, float]:
    """Compute zero-shot accuracy by concept on 768 held-out scenes, for the log.

    Args:
        model: The open_clip module.
        device: Device of its weights.
    """
    model.eval()
    held_out = [scene(seed) for seed in range(900_000, 900_768)]
    images = torch.from_numpy(np.stack([np.asarray(draw(s)) for s in held_out]))
    image_units = image_embeddings(model, pixels(images).to(device))[0]
    tokenize, accuracy_of = tokenizer(), {}
    for concept in CONCEPTS:
        texts = concept_texts(concept)
        values = [value_of(concept, s) for s in held_out]
        rows = [i for i, value in enumerate(values) if value]
        text = text_embeddings(model, tokenize(list(texts.values())).to(device))
        chosen = (image_units[rows] @ text.T).argmax(1).tolist()
        right = [values[row] == list(texts)[i] for row, i in zip(rows, chosen, strict=True)]
        accuracy_of[concept] = float(np.mean(right))
    model.train()
    return accuracy_of


def train(settings: Settings, runs: Path, out: Path, workers: int = 1) -> None:
    """Run both phases, or continue from the checkpoints, and write the model.

    Phase 1 trains on independent scenes at a constant rate. In phase 2 half of the images are line-ups, heads
    have training targets, and the rate falls to zero.

    Args:
        settings: Settings of the training.
        runs: Folder for checkpoints.
        out: Folder of the model.
        workers: Number of processes that draw images.
    """
    s, device = settings, "cuda" if torch.cuda.is_available() else "cpu"
    shared_folder, own_folder = runs / f"shared-{s.seed}", runs / f"first-{s.seed}"
    shared_end, own_end = shared_folder / f"shared-{s.shared}.pt", own_folder / "last.pt"
    for folder in (shared_folder, own_folder):
        folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(s, shared_folder, device)
    if own_end.exists():
        load_state(trainer, own_end, COUNTERS)
    elif shared_end.exists():
        load_state(trainer, shared_end, COUNTERS)
    else:
        latest = shared_folder / "last.pt"
        if latest.exists():
            load_state(trainer, latest, COUNTERS)
        trainer.model.visual.patch_dropout = PatchDropout(s.patch_dropout)
        trainer.train_until(s.shared, latest, workers)
        save_state(trainer, shared_end, COUNTERS)
        trainer.model.visual.patch_dropout = torch.nn.Identity()
    trainer.folder = own_folder
    if not trainer.usual:
        trainer.usual = trainer.usual_variance(taught())
    trainer.train_until(s.shared + s.own, own_end, workers, Lessons(trainer.usual))
    notes = {**asdict(s), "pictures": trainer.seen, "torch": torch.__version__}
    write_model(out, trainer.model, trainer.words_seen, MODEL_CFG, PREPROCESS_CFG, notes)
    logs = [
        p.read_text("utf-8").splitlines()
        for p in (shared_folder / "log.csv", own_folder / "log.csv")
        if p.exists()
    ]
    if logs:
        (out / "training_log.csv").write_text(
            "\n".join(logs[0] + [row for log in logs[1:] for row in log[1:]]) + "\n", "utf-8"
        )
