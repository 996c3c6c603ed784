"""The settings of the command `compute`: each field is an option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccs import paper
from ccs.cli import options
from ccs.cli.command_line import Command
from ccs.cli.options import at_least, parse_with, unset
from ccs.errors import InputError
from ccs.heads import Intervention, changes
from ccs.judges import JudgeSettings
from ccs.texts.pools import REFERENCE

ORGANISMS = ("organism", "organism-control")
"""The bundled toy models that are analyzed by default."""
_ORGANISM = re.compile(r"organism(-control|-planted)?")
PAPER_KS = (5, 7, 9, 11, 13)
"""Texts per head in the paper: 5, and in its table 3 the others too."""
_FEW_RANDOM_SETS = 20
"""Random sets of each kind outside the suite `world`."""
_QUICK, _FULL = (600, 120, 10), (2000, 400, 200)
"""Sizes of a run on synthetic data: images for head statistics, images per dataset, and random sets."""
_QUICK_SETS = ("subjects", "occupations", "colors", "letters", "faces")
"""The synthetic sets without --full."""
_NOT_DESCRIBED = {"out", "dry_run", "device_like", "progress", "prices", "budget", "max_tokens"}
_NOT_DESCRIBED |= {"paper", "models", "full", "ks", "device", "seed", "batch_size", "workers", "shard"}
"""Settings that change no result, or that are elsewhere in the manifest."""

Precision = Literal["auto", "fp32", "bf16", "fp16"]


def _numbers(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InputError(f"{text[:60]!r} must be whole numbers or ranges of them, such as 5,7 or 8-11.")
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(numbers))


def _layers(text: str) -> tuple[int, ...] | str:
    return text if text == "all" else _numbers(text)


def _data(name: str, text: str) -> Parameter:
    help_text = options.describe(f"{text}: {options.IMAGES_FROM}; repeatable")
    return Parameter.combine(options.DATA, Parameter(name=name), help_text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Describe and score the attention heads of models, measure ablations, and write tables of results.

    Examples:
        clip-ccs compute
        clip-ccs compute --model ViT-B-32/openai --images DIR --gallery DIR
        clip-ccs compute --paper --dry-run
    """

    # None is a default that depends on the model; `for_model` fills it in.

    paper: Annotated[bool, options.MODEL] = False
    """The paper's study: its six models, ImageNet, texts, datasets, labeler, and judges, if not changed"""
    models: Annotated[tuple[str, ...], options.MODEL, Parameter(name="--model", metavar="STR")] = ORGANISMS
    """Model: bundled name, open_clip's NAME/TAG, folder, or hf-hub:USER/NAME; repeatable"""
    text_encoder: options.TextEncoder = None
    ablate: options.Ablation = ""
    layers: Annotated[
        tuple[int, ...] | Literal["all"] | None,
        options.MODEL,
        parse_with(_layers),
        unset("the last four", "LAYERS"),
    ] = None
    """Layers whose heads are scored: all, 8-11, or 0,5"""
    images: options.Images = "world"
    texts: options.Texts = None
    suite: Annotated[
        Literal["world", "paper", "none"] | None,
        options.DATA,
        unset("world for the bundled toy models, else none"),
    ] = None
    """Group of datasets to measure on"""
    datasets: Annotated[tuple[str, ...], _data("--dataset", "Dataset to measure on in place of a suite")] = ()
    classes: options.Classes = None
    galleries: Annotated[tuple[str, ...], _data("--gallery", "People with groups to rank")] = ()
    split: options.Split = ""
    attribute: Annotated[str | None, options.DATA, unset("all")] = None
    """Column of the groups of people; "gender,race" crosses two"""
    occupations: Annotated[options.Occupations, unset("the paper's", "NAMES")] = None
    template: options.Template = None
    max_images: Annotated[int | None, options.DATA, at_least(1), unset("all")] = None
    """Number of --images, at most"""
    eval_images: Annotated[int | None, options.DATA, at_least(1), unset("all")] = None
    """Number of images of each dataset, at most"""
    skip_unreadable: options.SkipUnreadable = False
    full: Annotated[bool, options.ANALYSIS] = False
    """Size of the bundled results: every K, all synthetic datasets, more images, and more random ablations"""
    ks: Annotated[
        tuple[int, ...] | None,
        options.ANALYSIS,
        Parameter(name="--k"),
        parse_with(_numbers),
        unset("5, or 5,7,9,11,13 with --full, --suite paper, or --paper", "K,..."),
    ] = None
    """Number K of texts per head; larger numbers add ablation sets such as high@7"""
    random_sets: Annotated[int | None, options.ANALYSIS, at_least(1), unset(f"{_FEW_RANDOM_SETS}")] = None
    """Number of random ablations of each kind to rank the high heads among"""
    top: Annotated[options.Top, unset("a tenth of the gallery")] = None
    as_published: Annotated[bool, options.ANALYSIS] = False
    """Also MaxSkew of FairFace by race and retrieval as in the paper's code"""
    judges: Annotated[str, options.JUDGES] = "tags"
    """tags (no LLM), paper (its three LLMs), default (one LLM of each provider), or PROVIDER:MODEL,..."""
    labeler: Annotated[str, options.JUDGES] = "tags"
    """tags (no LLM), paper (GPT-4o, or its successor), or PROVIDER:MODEL"""
    budget: Annotated[float | None, options.JUDGES, at_least(0), unset("twice the estimate, or 1")] = None
    """Largest cost of LLMs in US dollars"""
    max_tokens: Annotated[int, options.JUDGES, at_least(1)] = JudgeSettings.max_tokens
    """Largest length of a reply in tokens, with hidden reasoning"""
    prices: Annotated[Path | None, options.JUDGES] = None
    """JSON file of LLM prices, used before the known prices"""
    out: Annotated[Path, options.OUTPUT, parse_with(options.to_folder)] = Path("results")
    """Folder of results"""
    dry_run: Annotated[bool, options.OUTPUT] = False
    """Print downloads, LLM requests, dollars, hours, and disk space, and compute nothing"""
    device_like: Annotated[Literal["h100", "a100", "l4", "cpu"] | None, options.OUTPUT] = None
    """With --dry-run: the device to estimate hours for"""
    progress: Annotated[Literal["json"] | None, options.OUTPUT] = None
    """Progress as lines of JSON on standard error, in place of bars"""
    device: options.Device = "auto"
    precision: Annotated[Precision, options.MACHINE] = "auto"
    """Precision of evaluations: auto is bf16 on a GPU that passes a check, else fp32; statistics use fp32"""
    seed: Annotated[int, options.MACHINE, at_least(0)] = 0
    """Random seed of ablations, samples, and resampling"""
    batch_size: Annotated[int | None, options.MACHINE, at_least(1), unset("automatic")] = None
    """Images per batch"""
    workers: Annotated[int | None, options.MACHINE, at_least(0), unset("automatic")] = None
    """Number of processes that decode images"""
    shard: Annotated[int | None, options.MACHINE, at_least(1), unset("by the number of images")] = None
    """Images between two saves of a run"""

    def __post_init__(self) -> None:
        if self.device_like and not self.dry_run:
            raise InputError("--device-like requires --dry-run.")
        if self.ks and self.ks[0] < 1:
            raise InputError("--k must be at least 1.")
        people = "--gallery", self.galleries
        requirements = dict.fromkeys(("occupations", "attribute", "top"), people) | {
            "classes": ("--dataset", self.datasets),
            "template": ("--dataset or --gallery", self.datasets or self.galleries),
        }
        for name, (option, sources) in requirements.items():
            if getattr(self, name) is not None and not sources:
                raise InputError(f"--{name} requires {option}.")
        for head, change in changes(Intervention.parse(self.ablate)):
            if change.replacement:
                raise InputError(f"--ablate takes factors such as 0.3, not {head}{change}.")

    @property
    def all_ks(self) -> tuple[int, ...]:
        """All K, the numbers of texts of a head that are judged together, rising."""
        return self.ks or PAPER_KS[:1]

    @property
    def k(self) -> int:
        """The main K, to which labels, levels, and ablation sets without a K in their name belong."""
        return self.all_ks[0]

    @property
    def clip(self) -> str:
        """The CLIP to load: the model itself, or the one that a VLM's image encoder comes from."""
        return self.text_encoder or self.models[0]

    def by_model(self) -> list[Settings]:
        """Return the settings of each model."""
        return [self.for_model(name) for name in dict.fromkeys(self.models)]

    def for_model(self, name: str) -> Settings:
        """Return the settings with the defaults that depend on the model: texts, suite, numbers of images."""
        synthetic = self.images == "world"
        home = synthetic and _ORGANISM.fullmatch(name) is not None
        suite = self.suite or ("world" if home and not self.galleries else "none")
        images, eval_images, random_sets = _FULL if self.full else _QUICK
        return replace(
            self,
            models=(name,),
            texts=self.texts or ("world" if home else "photographs"),
            suite=suite,
            ks=self.ks or (PAPER_KS if self.full or suite == "paper" else PAPER_KS[:1]),
            max_images=self.max_images or (images if synthetic else None),
            random_sets=self.random_sets or (random_sets if suite == "world" else _FEW_RANDOM_SETS),
            eval_images=self.eval_images or (eval_images if suite == "world" else None),
        )

    def evaluation_sets(self) -> tuple[str, ...]:
        """Return the names of the datasets to measure on: those that the user names, or else the suite's."""
        from ccs.data import SOURCES, synthetic  # imports Pillow

        whole = [record for record in SOURCES.values() if not record.sample]
        of_paper = tuple(record.name for record in whole if record.kind != "images")
        of_world = tuple(f"world/{name}" for name in (synthetic.NAMES if self.full else _QUICK_SETS))
        suites = {"world": of_world, "paper": of_paper, "none": ()}
        return self.datasets or suites[self.suite or "none"]

    def described(self) -> dict[str, Any]:
        """Return the settings that change a result, for the manifest."""
        values = asdict(self) | {"k": self.k, "further_k": self.all_ks[1:]}
        names = values.keys() - _NOT_DESCRIBED
        return {name: list(v) if isinstance(v := values[name], tuple) else v for name in sorted(names)}


PAPER: Mapping[str, Any] = {
    "models": tuple(model.name for model in paper.models()),
    "images": "imagenet",
    "texts": REFERENCE,
    "suite": "paper",
    "labeler": "paper",
    "judges": "paper",
    "as_published": True,
}
"""Defaults of the options after `--paper`."""


class Compute(Command[Settings]):
    """The command `compute`, whose options have other defaults after `--paper`."""

    def values(self, argv: Sequence[str]) -> dict[str, Any] | None:
        """Return the values of the options in `argv`, or None after `--help`. Raises InputError."""
        values = super().values(argv)
        return {**PAPER, **values} if values and values.get("paper") else values
