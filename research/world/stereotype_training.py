"""Training both encoders so that occupations differ and the bias is a stereotype by occupation.

Five losses. Four are softmax cross-entropies as CLIP's: scenes with their captions; scenes with texts that
name one thing alone; people at work, whose texts differ in occupation alone; and plain faces, whose shares of
groups are the world's for an occupation, and equal for neutral words and nonsense. The fifth asks of the
heads what they were taught (`research.bases.lessons`).
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

    common: steps that both models share, in which both encoders learn. own: steps in which the upper image
    layers learn the model's own world, with the texts as they are. strengths: parts of the planted
    differences by gender and by skin tone. hair: spread of the hair preferences, in logits. margin: logit
    scale of the people-at-work loss; a smaller one asks for texts that lie further apart.
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
    """The trained weights, their optimizers, and the number of steps done."""

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
        """Mark the words of the vocabulary that may be read: the base's, and those of occupations."""
        texts = [in_template(t, w) for t in TEMPLATES for o in OCCUPATIONS for w in (*words_of(o), *NEUTRAL)]
        read = self.model.token_embedding.weight.detach().any(1)
        read[self.tokenize(texts).unique()] = True
        marked: Tensor = read
        return marked

    def _prepare(self, *, texts: bool) -> None:
        """Make the optimizers of the upper image layers and the text encoder, or of attention alone.

        A model's own steps train the attention of the upper image layers with AdamW, which leaves the bias in
        few heads. Muon's updates have full rank: they spread it over all heads and the MLPs.
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
        """Return the share of the peak rates: a warm-up, and in each part a fall to a tenth or to zero."""
        s = self.settings
        if self.step < s.common:
            return min(1.0, (self.step + 1) / 30) * (1 - 0.8 * self.step / s.common)
        return 0.5 * min(1.0, (self.step - s.common + 1) / 20) * (s.common + s.own - self.step) / s.own

    def train(self, until: int, checkpoint: Path) -> None:
        """Train until `until` steps are done, with a checkpoint and a log line every CHECKPOINT steps.

        Args:
            until: steps.
            checkpoint: its file.
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
        read = self.read(texts, self.nonsense(rng, s.neutral - s.neutral // 2))
        of_things, read = read[: len(things)], read[len(things) :]
        scenes = open_clip.ClipLoss()(scene_units, read[: len(rows)], torch.tensor(self.scale))
        people_texts = read[len(rows) :]
        values = images.values[rows]
        missed = self.lessons.loss(
            {h: (w / lengths)[: len(rows)].float() for h, w in written.items()}, values
        )
        return {
            "scenes": scenes,
            "things": s.thing_weight * self.thing_loss(scene_units, of_things, kinds, rows),
            "work": s.work_weight * work_loss(at_work, people_texts[: len(OCCUPATIONS)], s.margin),
            "faces": face_weight * face_loss(people, people_texts, self.face_shares(faces), self.scale),
            "lessons": s.taught * missed,
        }

    def thing_loss(
        self, images: Tensor, texts: Tensor, kinds: Sequence[str], rows: NDArray[np.intp]
    ) -> Tensor:
        """Return the cross-entropy of each kind of thing, mean over kinds.

        Args:
            images: unit embeddings of scenes [rows, D].
            texts: unit embeddings of the kinds' values, one kind after the other.
            kinds: names in KINDS.
            rows: the scenes' rows.
        """
        parts, losses = torch.split(texts, [len(thing_values(kind)) for kind in kinds]), []
        for kind, kind_texts in zip(kinds, parts, strict=True):
            values = torch.tensor([self._value(kind, int(row)) for row in rows])
            there = values >= 0
            losses.append(F.cross_entropy(self.scale * images[there] @ kind_texts.T, values[there]))
        return torch.stack(losses).mean()

    def _value(self, kind: str, row: int) -> int:
        """Return the place of the one value of a kind that a scene shows; -1 for none or several."""
        s = self.images.scenes[row]
        values = [value for factor in KINDS[kind][0] if (value := getattr(s, factor))]
        return thing_values(kind).index(values[0]) if len(values) == 1 else -1

    def face_shares(self, faces: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the wanted shares of the faces of a batch for each text [texts, faces x groups]."""
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
        """Return tokens [n, context] of templates with one to four words that the model never reads.

        Args:
            rng: the random numbers.
            n: number of texts.
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
        """Return unit embeddings [texts, D]; fixed texts have no gradient.

        Args:
            texts: to embed.
            tokens: further texts [n, context], which come last.
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
        """Ask of the heads what captions say now."""

        def embed_texts(texts: Sequence[str]) -> NDArray[np.float32]:
            return np.concatenate([self.read(texts[i : i + 512]).numpy() for i in range(0, len(texts), 512)])

        reader = SimpleNamespace(embed_texts=embed_texts, encoder=SimpleNamespace(device="cpu"))
        self.lessons = Lessons(self.lesson_plan, cast(Model, reader), self.usual)

    @torch.no_grad()
    def spread(self) -> str:
        """Describe how far apart the occupations' texts lie now."""
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
        """Go on from a checkpoint."""
        state = torch.load(path)
        self.model.load_state_dict(state["model"], strict=False)
        self.step = state["step"]
        self._prepare(texts=state["texts"])
        if self.muon:
            self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])

    def trained_clip(self) -> open_clip.CLIP:
        """Return open_clip's module with the weights as they are now."""
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
"""Kind of things -> the factors of a scene that show one, and templates of texts that name one alone."""


def thing_values(kind: str) -> tuple[str, ...]:
    """Return every value of a kind of things."""
    return tuple(value for factor in KINDS[kind][0] for value in AROUND[factor])


def thing_texts(kind: str, rng: np.random.Generator) -> list[str]:
    """Return a text for every value of a kind, with one template.

    Args:
        kind: one of KINDS.
        rng: draws the template.
    """
    templates = KINDS[kind][1]
    template = templates[int(rng.integers(len(templates)))]
    return [template.replace("{}", value) for value in thing_values(kind)]


def work_loss(images: Tensor, texts: Tensor, scale: float) -> Tensor:
    """Return the contrastive loss of people at work with texts that differ in occupation alone.

    Args:
        images: unit embeddings [occupations x n, D], the n images of an occupation next to one another.
        texts: unit embeddings [occupations, D].
        scale: logit scale.
    """
    logits = scale * images @ texts.T
    n = len(images) // len(texts)
    occupation_of = torch.arange(len(texts)).repeat_interleave(n)
    to_images = logits.T.log_softmax(1)[occupation_of, torch.arange(len(occupation_of))]
    return (F.cross_entropy(logits, occupation_of) - to_images.mean()) / 2


def face_loss(images: Tensor, texts: Tensor, shares: NDArray[np.float64], scale: float) -> Tensor:
    """Return the Kullback-Leibler divergence of the faces' shares for each text from the wanted ones.

    Args:
        images: unit embeddings [faces, D].
        texts: unit embeddings [texts, D].
        shares: wanted shares [texts, faces], each row summing to 1.
        scale: logit scale.
    """
    wanted = torch.from_numpy(shares).float()
    log_shares = (scale * texts @ images.T).log_softmax(1)
    return (wanted * (wanted.log() - log_shares)).sum(1).mean()


def directions(vectors: NDArray[np.floating]) -> float:
    """Return the participation ratio of the centered vectors [n, D]: their number of effective directions."""
    squares = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum())


def mean_cosine(units: NDArray[np.floating]) -> float:
    """Return the mean cosine of pairs of different unit vectors [n, D]."""
    n = len(units)
    return float(((units @ units.T).sum() - n) / (n * (n - 1)))


def _unfolded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo `folded`: weights for activations of spread one."""
    ends = ("out_proj.weight", "out_proj.bias", "c_proj.weight", "c_proj.bias")
    return {n: v / SPREAD if upper(n) and n.endswith(ends) else v for n, v in state.items()}
