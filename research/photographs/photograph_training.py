"""Train *photo* with class prompts and captions, at increasing resolution."""

from __future__ import annotations

import csv
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from PIL import Image
from timm.layers.patch_dropout import PatchDropout
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from ccs.errors import InputError
from ccs.model.encoders import convolutional
from research.muon import Muon
from research.photographs.photograph_captions import COARSE, TEMPLATES, caption, classes, prompt
from research.photographs.photograph_data import SIDE, Photographs, normalized, resized, scaled, varied
from research.training_state import save_state

CONTEXT = 24
INNER = r"visual\.trunk\..*\b(blocks|patch_embed)\."  # weights inside the encoder, trained with Muon
MODEL_CFG: dict[str, Any] = {
    "embed_dim": 128,
    "vision_cfg": {
        "image_size": convolutional.IMAGE_SIZE,
        "timm_model_name": convolutional.NAME,
        "timm_pool": "token",
        "timm_proj": "",
    },
    "text_cfg": {"context_length": CONTEXT, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}
PREPROCESS_CFG = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bicubic", "resize_mode": "shortest"}
PHASES = ((0.45, 32, 40, 0.0, 0.0), (0.75, 48, 46, 0.3, 0.0), (1.0, 64, 56, 0.5, 0.5))
"""End of each phase (share of training), side in pixels, smallest crop of 64, share of dropped patches, and
share of photographs that are shifted instead of cropped. A resized crop is softer than a photograph."""


@dataclass(frozen=True)
class Settings:
    """Settings of a training.

    Attributes:
        images: Total number of training photographs, repeats included.
        seed: Random seed.
        batch_size: Photographs per step.
        rate: Peak learning rate of Muon.
        small_rate: Peak learning rate of AdamW, for the other parameters.
        warmup: Photographs of the warm-up.
        weight_decay: Weight decay of Muon.
        smoothing: Label smoothing.
        caption_weight: Weight of the captions' loss; that of the class prompts is 1.
        held_out: Held-out photographs per class.
    """

    images: int
    seed: int = 0
    batch_size: int = 512
    rate: float = 0.03
    small_rate: float = 2e-3
    warmup: int = 40_000
    weight_decay: float = 0.05
    smoothing: float = 0.1
    caption_weight: float = 0.5
    held_out: int = 25


COUNTERS = ("seen", "words_seen")


class Trainer:
    """A model, its optimizers, and the number of photographs it was trained on."""

    def __init__(self, settings: Settings, folder: Path, data: Photographs, device: str = "cpu") -> None:
        torch.manual_seed(settings.seed)
        convolutional.register()
        self.settings, self.folder, self.data, self.device = settings, folder, data, device
        self.model = open_clip.CLIP(**MODEL_CFG).to(device, memory_format=torch.channels_last).train()
        parameters = dict(self.model.named_parameters())
        inner = {name for name, p in parameters.items() if p.ndim >= 2 and re.match(INNER, name)}
        matrices = [p for name, p in parameters.items() if name in inner]
        others = [p for name, p in parameters.items() if name not in inner]
        self.muon = Muon(matrices, settings.rate, 0.95, settings.weight_decay)
        self.adam = torch.optim.AdamW(
            others, settings.small_rate, (0.9, 0.98), eps=1e-8, weight_decay=0.0, fused=True
        )
        self.names = [kind.words[0] for kind in classes()]
        self.seen = 0
        self.words_seen = torch.zeros(MODEL_CFG["text_cfg"]["vocab_size"], dtype=torch.bool)
        self.train_rows, self.held_out = data.split(settings.held_out)
        facts = {f for kind in classes() for f in (*kind.words, *kind.kinds)}
        self.facts = {fact: i for i, fact in enumerate(sorted(facts.union(*data.looks)))}

    def rate(self) -> float:
        """Return the rate as a share of its peak: linear warm-up, then linear decay to zero."""
        s = self.settings
        return min(1.0, (self.seen + s.batch_size) / s.warmup) * max(1 - self.seen / s.images, 0.0)

    def phase(self) -> tuple[int, int, float, float]:
        """Return the current phase: size, smallest crop, and the shares dropped and shifted."""
        share = self.seen / self.settings.images
        return next((entry[1:] for entry in PHASES if share < entry[0]), PHASES[-1][1:])

    def rows(self) -> np.ndarray:
        """Return the rows of the next batch. Each pass over the photographs has a new random order."""
        passed, at = divmod(self.seen, len(self.train_rows))
        orders = [
            np.random.default_rng((self.settings.seed, passed + i)).permutation(self.train_rows)
            for i in (0, 1)
        ]
        return np.concatenate(orders)[at : at + self.settings.batch_size]

    def step(self) -> float:
        """Train on one batch, and return its loss."""
        s, (size, smallest, dropped, moved) = self.settings, self.phase()
        draw = random.Random(s.seed * 10**9 + self.seen)
        rows = self.rows()
        labels = self.data.labels[rows]
        x = varied(self.data.pixels[rows], size, smallest, draw, moved)
        self.model.visual.trunk.patch_drop = (
            PatchDropout(dropped, num_prefix_tokens=1) if dropped else torch.nn.Identity()
        )
        prompts = [prompt(kind, draw) for kind in classes()]
        captions = [
            caption(classes()[k], self.data.looks[r], draw) for k, r in zip(labels, rows, strict=True)
        ]
        image = self.model.encode_image(x.to(self.device), normalize=True)
        text = self._texts([*prompts, *(words for words, _ in captions)])
        scale = self.model.logit_scale.exp()
        of_classes, of_captions = text[: len(prompts)], text[len(prompts) :]
        loss = F.cross_entropy(
            scale * image @ of_classes.T,
            torch.from_numpy(labels).to(self.device),
            label_smoothing=s.smoothing,
        )
        logits = scale * image @ of_captions.T
        logits = logits.masked_fill(
            self._also_true(rows, labels, [facts for _, facts in captions]), -torch.inf
        )
        targets = torch.arange(len(rows), device=self.device)
        pairs = (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2
        total = loss + s.caption_weight * pairs
        self.muon.zero_grad()
        self.adam.zero_grad()
        torch.autograd.backward(total)
        for optimizer, peak in ((self.muon, s.rate), (self.adam, s.small_rate)):
            for group in optimizer.param_groups:
                group["lr"] = peak * self.rate()
            optimizer.step()
        with torch.no_grad():
            self.model.logit_scale.clamp_(0, float(np.log(100)))
        self.seen += len(rows)
        if not torch.isfinite(total):
            raise InputError("Training diverged (non-finite loss). Start again with a lower --rate.")
        return total.item()

    def _also_true(
        self, rows: np.ndarray, labels: np.ndarray, caption_facts: list[tuple[str, ...]]
    ) -> Tensor:
        """Return whether caption j, written for another photograph, also fits photograph i: [n, n]."""
        held, claimed = torch.zeros(2, len(rows), len(self.facts))
        for i, (row, label, facts) in enumerate(zip(rows, labels, caption_facts, strict=True)):
            kind = classes()[label]
            held[i, [self.facts[f] for f in (*kind.words, *kind.kinds, *self.data.looks[row])]] = 1
            claimed[i, [self.facts[f] for f in facts]] = 1
        true: Tensor = held @ claimed.T >= claimed.sum(1) - 0.5
        return true.fill_diagonal_(False).to(self.device)

    def _texts(self, texts: list[str]) -> Tensor:
        tokens = torch.stack([tokenized(text) for text in texts])
        if self.model.training:
            self.words_seen[tokens.flatten()] = True
        last = tokens.argmax(
            dim=-1
        )  # a text is read at its end, so padding after the longest text is cut off
        length = int(last.max()) + 1
        clip, x = self.model, tokens[:, :length].to(self.device)
        x = clip.token_embedding(x) + clip.positional_embedding[:length]
        x = clip.ln_final(clip.transformer(x, attn_mask=clip.attn_mask[:length, :length]))
        return F.normalize(x[torch.arange(len(x)), last] @ clip.text_projection, dim=-1)

    def train(self, checkpoint: Path, log_every: int = 50) -> None:
        """Train to the end.

        Args:
            checkpoint: File of the checkpoint.
            log_every: Steps between checkpoints and log lines.
        """
        bar = tqdm(total=self.settings.images, initial=self.seen, unit=" photographs", mininterval=10)
        while self.seen < self.settings.images:
            since, started, cpu = self.seen, time.monotonic(), time.process_time()
            losses: list[float] = []
            while len(losses) < log_every and self.seen < self.settings.images:
                losses.append(self.step())
                bar.update(self.settings.batch_size)
            speed = (self.seen - since) / (time.monotonic() - started)
            save_state(self, checkpoint, COUNTERS)
            self._log(float(np.mean(losses)), speed, time.process_time() - cpu)
        bar.close()

    @torch.no_grad()
    def settle(self, batches: int = 24) -> None:
        """Recompute the batch norms' statistics on whole photographs instead of augmented ones.

        Every second photograph is enlarged and reduced again, which makes it as soft as a large upload.
        """
        norms = [m for m in self.model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
        rows = self.train_rows[:: max(1, len(self.train_rows) // (batches * self.settings.batch_size))]
        for part in np.array_split(rows, -(-len(rows) // self.settings.batch_size)):
            x = resized(self.data.pixels[part], SIDE).float()
            x[::2] = scaled(scaled(x[::2], 4 * SIDE), SIDE)
            self.model.encode_image(normalized(x).to(self.device))
        for norm in norms:
            norm.momentum = 0.1

    def _log(self, loss: float, speed: float, seconds: float) -> None:
        path, fresh = self.folder / "log.csv", not (self.folder / "log.csv").exists()
        accuracy = self.accuracy(self.held_out[:1000], self.phase()[0])
        with path.open("a", newline="", encoding="utf-8") as f:
            out = csv.writer(f)
            if fresh:
                out.writerow(["photographs", "pixels", "loss", "top1_of_1000", "per_second", "core_seconds"])
            row = (f"{loss:.4f}", f"{accuracy:.4f}", f"{speed:.1f}", f"{seconds:.0f}")
            out.writerow([self.seen, self.phase()[0], *row])
        tqdm.write(f"{self.seen}: loss {loss:.3f}, top-1 {accuracy:.1%}, {speed:.0f}/s", file=sys.stderr)

    def accuracy(self, rows: np.ndarray, size: int = SIDE) -> float:
        """Compute zero-shot top-1 accuracy over all classes, by their usual names.

        Args:
            rows: Rows of the photographs.
            size: Side in pixels.
        """
        answers = self._answers(self.data.pixels[rows], self.names, size)
        return float((answers == self.data.labels[rows]).mean())

    def steadiness(self, rows: np.ndarray, side: int = 500) -> float:
        """Compute the share of photographs that get the same answer after enlarging.

        Args:
            rows: Rows of the photographs.
            side: Enlarged side in pixels.
        """
        pixels = self.data.pixels[rows]
        large = (
            Image.fromarray(photograph).resize((side, side), Image.Resampling.BICUBIC)
            for photograph in pixels
        )
        small = np.stack(
            [np.asarray(enlarged.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) for enlarged in large]
        )
        answers = (self._answers(version, self.names) for version in (pixels, small))
        return float(np.equal(*answers).mean())

    def coarse_accuracy(self, rows: np.ndarray) -> dict[str, float]:
        """Compute zero-shot top-1 accuracy over COARSE, on photographs whose class belongs to one of them."""
        kinds = [next((word for word in COARSE if word in kind.kinds), "") for kind in classes()]
        rows = rows[[kinds[label] != "" for label in self.data.labels[rows]]]
        right = [COARSE[i] for i in self._answers(self.data.pixels[rows], COARSE)]
        truth = np.array([kinds[label] for label in self.data.labels[rows]])
        hits = np.array(right) == truth
        return {"all": float(hits.mean())} | {w: float(hits[truth == w].mean()) for w in sorted(set(truth))}

    @torch.no_grad()
    def _answers(self, pixels: np.ndarray, names: Sequence[str], size: int = SIDE) -> np.ndarray:
        """Return the index of the best name for each uint8 photograph [n, 64, 64, 3]: [n]."""
        self.model.eval()
        text = self._texts([TEMPLATES[0].format(name) for name in names])
        best_names = []
        for part in np.array_split(pixels, -(-len(pixels) // 250)):
            x = normalized(resized(part, size)).to(self.device)
            best_names.append((self.model.encode_image(x, normalize=True) @ text.T).argmax(1).cpu())
        self.model.train()
        return torch.cat(best_names).numpy()


@lru_cache(maxsize=2**17)
def tokenized(text: str) -> Tensor:
    """Return tokens [context] of a text."""
    tokens: Tensor = _tokenizer()([text])[0]
    return tokens


@lru_cache(maxsize=1)
def _tokenizer() -> open_clip.SimpleTokenizer:
    tokenizer = open_clip.SimpleTokenizer(context_length=CONTEXT)
    tokenizer.clean_fn = str.lower
    return tokenizer
