"""A run, from images to tables; here its settings, of which each is one option of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ccs import paper
from ccs.batch.command_line import TEXT_TOWER, given, option, read_names
from ccs.errors import InputError
from ccs.heads import Intervention, factors
from ccs.judges import JudgeSettings
from ccs.texts.pools import REFERENCE

SUITES = ("world", "paper", "none")
ORGANISMS = ("organism", "organism-control")
_ORGANISM = re.compile(r"organism(-control|-planted)?")
STUDY_K = (5, 7, 9, 11, 13)
"""Texts per head in the study: 5, and in its table 3 the others too."""


_FEW_RANDOM_SETS = 20  # elsewhere than on the drawn world
_QUICK, _FULL = (600, 120, 10), (2000, 400, 200)
"""On the drawn world: images for the moments, images of each set, random sets."""
_DESCRIBED = (
    "text_tower",
    "images",
    "texts",
    "suite",
    "sets",
    "people",
    "attribute",
    "top",
    "template",
    "ablate",
    "classes",
    "occupations",
    "k",
    "further_k",
    "max_images",
    "eval_images",
    "judges",
    "labeler",
    "repaired_examples",
    "random_sets",
    "as_published",
    "precision",
    "layers",
)


def _studied(asked: Sequence[str]) -> tuple[str, ...]:
    known = {name: one.name for one in paper.models() for name in (one.paper_name, one.name)}
    for name in asked:
        if name not in known:
            printed = ", ".join(one.paper_name for one in paper.models())
            raise InputError(f"The study has no model {name!r}; its models are {printed}.")
    return tuple(dict.fromkeys(known[name] for name in asked or known))


def _numbers(text: str) -> tuple[int, ...]:
    found = [int(part) for part in text.split(",") if re.fullmatch(r"\s*\d{1,4}\s*", part, re.ASCII)]
    if len(found) <= text.count(",") or found != sorted(set(found)) or found[0] < 1:
        raise InputError(f"--k is {text[:60]!r}, but must be whole numbers that rise, such as 5 or 5,7,9.")
    return tuple(found)


def _layers(text: str) -> tuple[int, ...] | Literal["all"]:
    if text == "all":
        return "all"
    layers: list[int] = []
    for part in text.split(","):
        if (found := re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part, re.ASCII)) is None:
            raise InputError(f"--layers is {text[:60]!r}, but must be all, or numbers such as 8-11 or 0,5.")
        first, last = int(found[1]), int(found[2] or found[1])
        layers += range(first, last + 1)
    return tuple(sorted(set(layers)))


@dataclass(frozen=True)
class Settings:
    """Score the attention heads of CLIP models, switch them off, measure, and write tables."""

    # None is chosen by the program (`for_model`). ks rise; the first is the main K, which labels, levels and
    # plans without a K in their name belong to.

    study: tuple[str, ...] | None = option(
        None,
        "the whole study: its six models, or those named (ViT-B-32-OpenAI); the other options have the "
        "study's values (ImageNet, --texts reference, --suite paper, --labeler paper, --judges paper, "
        "--as-published) unless given",
        metavar="MODEL",
        nargs="*",
        action="store",
        read=_studied,
    )
    models: tuple[str, ...] = option(
        ORGANISMS,
        "organism, open_clip's NAME/TAG, a folder or hf-hub:USER/NAME; repeatable (default: both organisms)",
        "--model",
        metavar="M",
        read=lambda names: tuple(dict.fromkeys(names)),
    )
    text_tower: str | None = option(None, TEXT_TOWER, metavar="CLIP")
    images: str = option("world", "images for the moments: world, a folder, a parquet file or a Hub id")
    texts: str | None = option(None, "world, photographs, reference (the study's) or a file, one per line")
    suite: str | None = option(
        None, "sets to evaluate on (default: world for the organisms, else none)", choices=SUITES
    )
    sets: tuple[str, ...] = option(
        (),
        "evaluate on this set only: a name, a folder of classes, a zip, a parquet file or a Hub id",
        "--set",
        metavar="S",
    )
    classes: Sequence[str] | None = option(None, 'of --set: a file, or "cat, dog"', read=read_names)
    people: tuple[str, ...] = option(
        (),
        "rank these images of people: the same kinds of source, with columns of groups; repeatable",
        metavar="P",
    )
    attribute: str | None = option(None, "column of groups of --people (default: all)")
    occupations: Sequence[str] | None = option(
        None, 'for --people: a file, or "judge, nurse" (default: the study\'s)', read=read_names
    )
    top: int | None = option(None, "K of --people, the length of the list (default: a tenth)", least=1)
    template: str | None = option(None, 'prompt of --set and --people, such as "a photo of a {}"')
    skip_unreadable: bool = option(False, "go on where more than 1%% of a set's images cannot be read")
    ablate: str = option("", 'also measure with these heads off, such as "L8.H11 L9.H2": the plan `chosen`')
    ks: tuple[int, ...] | None = option(
        None,
        "texts per head; further numbers add plans such as high@7 (default: "
        f"{STUDY_K[0]}; {','.join(map(str, STUDY_K))} with --suite paper or --full)",
        "--k",
        metavar="K,...",
        read=_numbers,
    )
    layers: tuple[int, ...] | Literal["all"] | None = option(
        None, "layers whose heads are scored: `all`, 8-11 or 0,5 (default: the last four)", read=_layers
    )
    full: bool = option(
        False,
        "as much as the tables that ship with the program have: on the drawn world "
        f"{_FULL[0]} images, {_FULL[1]} of each set and {_FULL[2]} random sets "
        f"of heads (else {', '.join(map(str, _QUICK))}), every K of the study",
    )
    max_images: int | None = option(None, "most images for the moments", least=1)
    eval_images: int | None = option(None, "most images of each evaluation set", least=1)
    seed: int = option(0, "seed of all randomness", least=0)
    random_sets: int | None = option(
        None,
        "random sets of heads of each kind, to rank the high heads among (default: "
        f"{_QUICK[2]} or, with --full, {_FULL[2]} on the suite world; "
        f"else {_FEW_RANDOM_SETS})",
        least=1,
    )
    out: Path = option(Path("results"), "folder of results")
    publish: str | None = option(
        None, "at the end put the tables on the Hub as USER/NAME, private if it is new"
    )
    judges: str = option(
        "tags",
        "`tags` (a stand-in), `paper` (its three, or the successors of those that are shut down), "
        "`default` (one of today's models of each provider), or PROVIDER:MODEL,...",
    )
    labeler: str = option("tags", "`tags` (a stand-in), `paper` (GPT-4o, likewise) or PROVIDER:MODEL")
    repaired_examples: bool = option(False, "show the labeler the study's examples without their misprints")
    dry_run: bool = option(
        False,
        "print downloads, requests to language models, dollars, hours and disk, and do nothing",
        "--dry-run",
        "--plan-cost",
    )
    device_like: str | None = option(
        None,
        "with --dry-run: tell the hours on this device instead of the one at hand",
        choices=("h100", "a100", "l4", "cpu"),
    )
    budget: float | None = option(
        None, "most US dollars for language models (default: twice the estimate, or 1)"
    )
    max_tokens: int = option(
        JudgeSettings.max_tokens,
        "longest reply, hidden reasoning included; one that is cut off is asked for once more with twice as "
        "many",
        least=1,
    )
    in_flight: int = option(8, "concurrent requests to each language model", least=1)
    timeout: float = option(120.0, "seconds for one attempt of a request", least=1)
    prices: Path | None = option(
        None, "JSON file of prices of LLMs; it counts before the known prices", metavar="FILE"
    )
    as_published: bool = option(False, "also measure bias with the faults of the study's released code")
    device: str | None = option(None, "cpu, cuda or cuda:N (default: CCS_DEVICE, else cuda if there is one)")
    precision: str = option("fp32", "of the evaluation; moments are fp32", choices=("fp32", "bf16", "fp16"))
    batch_size: int | None = option(None, "images at a time (default: automatic)", least=1)
    workers: int | None = option(None, "processes that decode images (default: automatic)", least=0)
    shard: int | None = option(None, "images per shard, in which work is saved (default: by size)", least=1)
    keep: float = option(1e9, "most bytes of a set's embeddings that are kept", least=0, metavar="BYTES")
    progress: str | None = option(None, "`json`: lines of JSON on stderr in place of bars", choices=("json",))

    def __post_init__(self) -> None:
        if (self.workers or 0) > 64:
            raise InputError(f"--workers is {self.workers}, but must be at most 64.")
        if self.device_like and not self.dry_run:
            raise InputError("--device-like goes with --dry-run, which is not given.")
        for flag, needs in (
            ("classes", "sets"),
            ("occupations", "people"),
            ("attribute", "people"),
            ("top", "people"),
        ):
            if getattr(self, flag) is not None and not getattr(self, needs):
                raise InputError(f"--{flag} goes with --{needs.replace('sets', 'set')}, which is not given.")
        if self.template is not None and not (self.sets or self.people):
            raise InputError("--template goes with --set or --people, of which neither is given.")
        factors(Intervention.parse(self.ablate), "--ablate")

    @property
    def all_ks(self) -> tuple[int, ...]:
        """Every K: how many texts of a head are judged together."""
        return self.ks or STUDY_K[:1]

    @property
    def clip(self) -> str:
        """The CLIP that is loaded: the model, or the one that a language model's image tower is from."""
        return self.text_tower or self.models[0]

    @property
    def k(self) -> int:
        """The main K."""
        return self.all_ks[0]

    def for_model(self, name: str) -> Settings:
        """The settings with what depends on the model chosen: texts, suite, how many texts and images."""
        drawn = self.images == "world"
        home = drawn and _ORGANISM.fullmatch(name) is not None
        suite = self.suite or ("world" if home and not self.people else "none")
        images, eval_images, random_sets = _FULL if self.full else _QUICK
        return replace(
            self,
            models=(name,),
            texts=self.texts or ("world" if home else "photographs"),
            suite=suite,
            ks=self.ks or (STUDY_K if self.full or suite == "paper" else STUDY_K[:1]),
            max_images=self.max_images or (images if drawn else None),
            random_sets=self.random_sets or (random_sets if suite == "world" else _FEW_RANDOM_SETS),
            eval_images=self.eval_images or (eval_images if suite == "world" else None),
        )

    def described(self) -> dict[str, Any]:
        """The settings that change a figure, for the manifest."""
        values = asdict(self) | {"k": self.k, "further_k": self.all_ks[1:]}
        return {name: list(v) if isinstance(v := values[name], tuple) else v for name in _DESCRIBED}


def parse(argv: Sequence[str] | None) -> Settings:
    """The settings of a command line. Raises InputError for a value that is not allowed."""
    asked = given(Settings, argv)
    study = {
        "images": "imagenet",
        "texts": REFERENCE,
        "suite": "paper",
        "labeler": "paper",
        "judges": "paper",
        "as_published": True,
    }
    if "study" in asked:
        asked = {"models": asked["study"]} | study | asked
    return Settings(**asked)
