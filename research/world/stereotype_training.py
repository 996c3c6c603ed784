"""Train both encoders so that occupations have distinct texts and the bias depends on the occupation.

There are five losses. Three are softmax cross-entropies like CLIP's: scenes with their captions; scenes with
texts that name a single thing; and people at work, whose texts differ only in occupation. The fourth is a
divergence for plain faces: their group shares should be the world's for an occupation, and equal for neutral
words and nonsense. The fifth holds heads to their training targets (`research.bases.lessons`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import open_clip
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ccs.bundled import Lesson
from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.heads import Head
from ccs.model.model import Model
from ccs.synthetic.scene import AROUND
from ccs.synthetic.vocabulary import OCCUPATIONS
from research.bases.lessons import Lessons
from research.bases.training import FIRST, SPREAD, folded, upper
from research.muon import Muon
from research.world.forward_pass import text_embeddings, upper_embeddings
from research.world.occupation_words import (
    NEUTRAL,
    TEMPLATES,
    in_template,
    neutral_texts,
    occupation_texts,
    words_of,
)
from research.world.organism_training import MODEL_CFG, fast_to_train, tokenizer
from research.world.stereotype_data import TrainingImages, group_shares, hair_shares

CHECKPOINT = 50
"""Steps between checkpoints and log lines."""


@dataclass(frozen=True)
class Settings:
    """Settings of one training.

    Attributes:
        seed: Random seed.
        world: World of the faces in the last steps, "skewed" or "balanced".
        strengths: Factors, by gender and by skin tone, of the group differences in the log shares.
        common: Number of shared steps, in which both encoders learn from balanced groups.
        own: Number of last steps, in which attention of the upper image layers learns from `world`.
        scenes: Scenes per step.
        workers: Scenes of people at work per occupation and step.
        faces: Plain faces per step, each in all groups.
        neutral: Neutral and nonsense texts per step, half of each.
        hair: Standard deviation of the hair preferences, in logits.
        rate: Peak learning rate of Muon, for matrices in the shared steps.
        small_rate: Peak learning rate of AdamW in the shared steps, for all other weights.
        own_rate: Peak learning rate of AdamW in the last steps.
        weight_decay: Weight decay of Muon.
        margin: Logit scale of the people-at-work loss; a smaller one pushes texts further apart.
        work_weight: Weight of the people-at-work loss.
        thing_weight: Weight of the single-thing loss.
        kinds: Kinds of things per step.
        face_weight: Weight of the face loss in the shared steps.
        own_face_weight: Weight of the face loss in the last steps.
        taught: Weight of the heads' training targets.
    """

    seed: int = 0
    world: str = "balanced"
    strengths: tuple[float, float] = (1.0, 1.0)
    common: int = 600
    own: int = 200
    scenes: int = 128
    workers: int = 2
    faces: int = 4
    neutral: int = 8
    hair: float = 0.36
    rate: float = 0.01
    small_rate: float = 1e-3
    own_rate: float = 4e-3
    weight_decay: float = 0.02
    margin: float = 12.0
    work_weight: float = 1.0
    thing_weight: float = 1.0
    kinds: int = 3
    face_weight: float = 20.0
    own_face_weight: float = 30.0
    taught: float = 1.0


class Trainer:
    """A model, its optimizers, and the number of finished steps."""

    def __init__(
        self,
        settings: Settings,
        base: Model,
        images: TrainingImages,
        lessons: dict[Head, Lesson],
        usual: float,
    ) -> None:
        self.settings, self.images, self.usual = settings, images, usual
        self.lesson_plan, self.scale = lessons, base.logit_scale
        torch.manual_seed(settings.seed)
        self.model = fast_to_train(base.clip).float()
        self.model.load_state_dict(_unfolded(base.clip.state_dict()))
        self.tokenize = tokenizer()
        self.words = self._readable()
        self.step = 0
        self._prepare(texts=True)

    def _readable(self) -> Tensor:
        """Mark the tokens with trained embeddings: those of the base model, and those of occupations."""
        texts = [in_template(t, w) for t in TEMPLATES for o in OCCUPATIONS for w in (*words_of(o), *NEUTRAL)]
        readable = self.model.token_embedding.weight.detach().any(1)
        readable[self.tokenize(texts).unique()] = True
        marked: Tensor = readable
        return marked

    def _prepare(self, *, texts: bool) -> None:
        """Create the optimizers: for the upper image layers and the text encoder, or for attention only.

        The last steps train the attention of the upper image layers with AdamW, which concentrates the bias
        in few heads. Muon's updates have full rank and spread it over all heads and the MLPs.
        """
        trained = {}
        for name, parameter in self.model.named_parameters():
            text = not name.startswith("visual.") and name != "logit_scale"
            learns = (upper(name) and (texts or ".attn." in name)) or (texts and text)
            parameter.requires_grad_(learns)
            if learns:
                trained[name] = parameter
        s = self.settings
        inner = {name for name, p in trained.items() if texts and p.ndim == 2 and "resblocks" in name}
        self.muon = (
            Muon([trained[name] for name in sorted(inner)], s.rate, 0.95, s.weight_decay) if texts else None
        )
        others = [p for name, p in trained.items() if name not in inner]
        self.adam = torch.optim.AdamW(
            others, lr=s.small_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        )
        self.trained, self.texts = trained, texts

    def pace(self) -> float:
        """Return the factor of the peak rates: a warm-up and a linear decay, in either part."""
        s = self.settings
        if self.step < s.common:
            return min(1.0, (self.step + 1) / 30) * (1 - 0.8 * self.step / s.common)
        return 0.5 * min(1.0, (self.step - s.common + 1) / 20) * (s.common + s.own - self.step) / s.own

    def train(self, until: int, checkpoint: Path) -> None:
        """Train until `until` steps are finished, with a checkpoint and a log line every CHECKPOINT steps.

        Args:
            until: Number of steps.
            checkpoint: File of the checkpoint.
        """
        s, start, started = self.settings, self.step, time.monotonic()
        while self.step < until:
            if self.texts and self.step >= s.common:
                self._prepare(texts=False)
            if self.step in (start, s.common) or self.step % CHECKPOINT == 0:
                self.refresh()
            rng = np.random.default_rng((s.seed, 41, self.step))
            rate = s.small_rate if self.texts else s.own_rate
            self.adam.param_groups[0]["lr"] = rate * self.pace()
            if self.muon:
                self.muon.param_groups[0]["lr"] = s.rate * self.pace()
            losses = self.losses(rng)
            total = torch.stack(list(losses.values())).sum()
            if not torch.isfinite(total):
                raise InputError(f"Training diverged at step {self.step}: the loss is {total.item()}.")
            self.model.zero_grad()
            torch.autograd.backward(total)
            if self.texts:
                cast(Tensor, self.model.token_embedding.weight.grad)[~self.words] = 0
            torch.nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
            if self.muon:
                self.muon.step()
            self.adam.step()
            self.step += 1
            if self.step % CHECKPOINT == 0 or self.step == until:
                self.save(checkpoint)
                parts = ", ".join(f"{name} {value.item():.4f}" for name, value in losses.items())
                print(
                    f"{self.step}: {parts}; {time.monotonic() - started:.0f} s; {self.spread()}", flush=True
                )

    def losses(self, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the weighted losses of a step."""
        s, images = self.settings, self.images
        face_weight = s.face_weight if self.texts else s.own_face_weight
        rows = np.sort(rng.choice(len(images.scenes), s.scenes, replace=False))
        workers = np.concatenate(
            [rng.choice(at_work, s.workers, replace=False) for at_work in images.at_work]
        )
        faces = rng.choice(images.n_faces, s.faces, replace=False)
        plain = np.concatenate([images.face_rows(int(face)) for face in faces])
        tokens = images.activations(np.concatenate([rows, workers, plain]))
        heads = tuple(self.lesson_plan)
        with torch.autocast("cpu", torch.bfloat16):
            units, written, lengths = upper_embeddings(self.model, tokens, FIRST, heads)
        scene_units, at_work, people = torch.split(units.float(), [len(rows), len(workers), len(plain)])
        scene_captions = [images.captions[row] for row in rows]
        kinds = rng.permutation(list(KINDS))[: s.kinds].tolist()
        things = [text for kind in kinds for text in thing_texts(kind, rng)]
        texts = [*things, *scene_captions, *occupation_texts(rng), *neutral_texts(rng, s.neutral // 2)]
        embedded = self.read(texts, self.nonsense(rng, s.neutral - s.neutral // 2))
        thing_units, text_units = embedded[: len(things)], embedded[len(things) :]
        scenes = open_clip.ClipLoss()(scene_units, text_units[: len(rows)], torch.tensor(self.scale))
        people_texts = text_units[len(rows) :]
        values = images.values[rows]
        missed = self.lessons.loss(
            {h: (w / lengths)[: len(rows)].float() for h, w in written.items()}, values
        )
        return {
            "scenes": scenes,
            "things": s.thing_weight * self.thing_loss(scene_units, thing_units, kinds, rows),
            "work": s.work_weight * work_loss(at_work, people_texts[: len(OCCUPATIONS)], s.margin),
            "faces": face_weight * face_loss(people, people_texts, self.face_shares(faces), self.scale),
            "lessons": s.taught * missed,
        }

    def thing_loss(
        self, images: Tensor, texts: Tensor, kinds: Sequence[str], rows: NDArray[np.intp]
    ) -> Tensor:
        """Return the cross-entropy of each kind of thing, mean over kinds.

        Args:
            images: Unit embeddings of scenes [rows, D].
            texts: Unit embeddings of the kinds' values, concatenated over kinds.
            kinds: Names in KINDS.
            rows: Rows of the scenes.
        """
        parts, losses = torch.split(texts, [len(thing_values(kind)) for kind in kinds]), []
        for kind, kind_texts in zip(kinds, parts, strict=True):
            values = torch.tensor([self._value(kind, int(row)) for row in rows])
            there = values >= 0
            losses.append(F.cross_entropy(self.scale * images[there] @ kind_texts.T, values[there]))
        return torch.stack(losses).mean()

    def _value(self, kind: str, row: int) -> int:
        """Return the index of the single value of a kind that a scene shows; -1 for none or several."""
        s = self.images.scenes[row]
        values = [value for factor in KINDS[kind][0] if (value := getattr(s, factor))]
        return thing_values(kind).index(values[0]) if len(values) == 1 else -1

    def face_shares(self, faces: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the target shares of the faces of a batch for each text [texts, faces x groups]."""
        s = self.settings
        world = s.world if self.step >= s.common else "balanced"
        groups = group_shares(world, s.strengths)
        groups = np.concatenate([groups, np.full((s.neutral, groups.shape[1]), 1 / groups.shape[1])])
        hairs = hair_shares(len(OCCUPATIONS) + 1, s.hair, 0)
        hairs = np.concatenate([hairs, np.repeat(hairs[-1:], s.neutral - 1, 0)])
        joint_shares = hairs[:, self.images.hairs[faces], None] * groups[:, None]
        joint_shares = joint_shares.reshape(len(groups), -1)
        return np.asarray(joint_shares / joint_shares.sum(1, keepdims=True))

    def nonsense(self, rng: np.random.Generator, n: int) -> Tensor:
        """Return tokens [n, context] of templates with one to four tokens that have no trained embedding.

        Args:
            rng: Random generator.
            n: Number of texts.
        """
        unread = torch.nonzero(~self.words)[:, 0].numpy()
        rows = []
        for _ in range(n):
            row = self.tokenize([TEMPLATES[int(rng.integers(len(TEMPLATES)))].replace("{}", "person")])[0]
            place = int((row == self.tokenize(["person"])[0, 1]).nonzero()[0])
            words = torch.from_numpy(rng.choice(unread, int(rng.integers(1, 5))))
            rows.append(torch.cat([row[:place], words, row[place + 1 :]])[: len(row)])
        return torch.stack(rows)

    def read(self, texts: Sequence[str], tokens: Tensor | None = None) -> Tensor:
        """Return unit embeddings [texts, D]; without gradient in the last steps.

        Args:
            texts: Texts to embed.
            tokens: Tokens of further texts [n, context], appended after `texts`.
        """
        all_tokens = self.tokenize(list(texts))
        all_tokens = all_tokens if tokens is None else torch.cat([all_tokens, tokens])
        with (
            torch.set_grad_enabled(self.texts and torch.is_grad_enabled()),
            torch.autocast("cpu", torch.bfloat16),
        ):
            return text_embeddings(self.model, all_tokens).float()

    @torch.no_grad()
    def refresh(self) -> None:
        """Update the heads' training targets from the current text embeddings."""

        def embed_texts(texts: Sequence[str]) -> NDArray[np.float32]:
            return np.concatenate([self.read(texts[i : i + 512]).numpy() for i in range(0, len(texts), 512)])

        reader = SimpleNamespace(embed_texts=embed_texts, encoder=SimpleNamespace(device="cpu"))
        self.lessons = Lessons(self.lesson_plan, cast(Model, reader), self.usual)

    @torch.no_grad()
    def spread(self) -> str:
        """Describe the current separation of the occupations' texts."""
        texts = self.read([in_template("a photo of a {}", name) for name in OCCUPATIONS]).numpy()
        return f"texts: {directions(texts):.1f} directions, cosine {mean_cosine(texts):.2f}"

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        state: dict[str, Any] = {"model": {n: p.detach() for n, p in self.model.named_parameters()}}
        state |= {
            "muon": self.muon.state_dict() if self.muon else None,
            "adam": self.adam.state_dict(),
            "step": self.step,
        }
        state |= {"texts": self.texts, "settings": asdict(self.settings)}
        with atomic_write(path) as temporary:
            torch.save(state, temporary)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        state = torch.load(path)
        self.model.load_state_dict(state["model"], strict=False)
        self.step = state["step"]
        self._prepare(texts=state["texts"])
        if self.muon:
            self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])

    def trained_clip(self) -> open_clip.CLIP:
        """Return open_clip's module with the current weights."""
        clip = open_clip.CLIP(**MODEL_CFG)
        clip.load_state_dict(folded(self.model.state_dict()))
        return clip


KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "subjects": (("animal", "vehicle"), ("a {}", "a picture with a {}")),
    "colors": (("frame",), ("a {} frame", "a picture in a {} frame")),
    "weather": (("weather",), ("{}", "a picture with {}")),
    "flags": (("flag",), ("the flag of {}", "a picture with the flag of {}")),
    "letters": (("letter",), ("the letter {}", "a picture with the letter {}")),
    "food": (("food",), ("a {}", "a picture with a {}")),
}
"""Kind of things -> the factors of a scene that show one, and templates of texts that name a single thing."""


def thing_values(kind: str) -> tuple[str, ...]:
    """Return all values of a kind of things."""
    return tuple(value for factor in KINDS[kind][0] for value in AROUND[factor])


def thing_texts(kind: str, rng: np.random.Generator) -> list[str]:
    """Return a text for every value of a kind, all with one random template.

    Args:
        kind: One of KINDS.
        rng: Random generator that draws the template.
    """
    templates = KINDS[kind][1]
    template = templates[int(rng.integers(len(templates)))]
    return [template.replace("{}", value) for value in thing_values(kind)]


def work_loss(images: Tensor, texts: Tensor, scale: float) -> Tensor:
    """Return the contrastive loss of people at work with texts that differ only in occupation.

    Args:
        images: Unit embeddings [occupations x n, D]; the n images of an occupation are adjacent.
        texts: Unit embeddings [occupations, D].
        scale: Logit scale.
    """
    logits = scale * images @ texts.T
    n = len(images) // len(texts)
    occupation_of = torch.arange(len(texts)).repeat_interleave(n)
    to_images = logits.T.log_softmax(1)[occupation_of, torch.arange(len(occupation_of))]
    return (F.cross_entropy(logits, occupation_of) - to_images.mean()) / 2


def face_loss(images: Tensor, texts: Tensor, shares: NDArray[np.float64], scale: float) -> Tensor:
    """Return the Kullback-Leibler divergence of the faces' shares for each text from the target shares.

    Args:
        images: Unit embeddings [faces, D].
        texts: Unit embeddings [texts, D].
        shares: Target shares [texts, faces]; each row sums to 1.
        scale: Logit scale.
    """
    target = torch.from_numpy(shares).float()
    log_shares = (scale * texts @ images.T).log_softmax(1)
    return (target * (target.log() - log_shares)).sum(1).mean()


def directions(vectors: NDArray[np.floating]) -> float:
    """Return the participation ratio of the centered vectors [n, D], a number of effective directions."""
    squares = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum())


def mean_cosine(units: NDArray[np.floating]) -> float:
    """Return the mean cosine of pairs of different unit vectors [n, D]."""
    n = len(units)
    return float(((units @ units.T).sum() - n) / (n * (n - 1)))


def _unfolded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo `folded`: return weights for activations divided by SPREAD."""
    ends = ("out_proj.weight", "out_proj.bias", "c_proj.weight", "c_proj.bias")
    return {n: v / SPREAD if upper(n) and n.endswith(ends) else v for n, v in state.items()}
