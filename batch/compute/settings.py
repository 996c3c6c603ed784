"""What a run is asked to do: the settings of batch.compute and their command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ccs import results
from ccs.errors import InputError

STAGES = ("moments", "spans", "labels", "judgments", "evaluation", "heads")
SUITES = ("world", "paper", "none")
ORGANISMS = ("organism", "organism-control")
STUDY_K = (5, 7, 9, 11, 13)
"""Texts a head in the study: 5, and in its table 3 the others too."""
_WORLD_IMAGES = 2000
_EVAL_IMAGES = 400


@dataclass(frozen=True)
class Settings:
    """One run. `images`: `world`, a folder, a parquet file or a Hub data set. `None`: chosen by the program.

    `ks`: texts a head, rising; the first is the main K, see batch/scoring.py for what the further ones give.
    `per_minute`, `in_flight`, `timeout` (seconds), `prices`: of language models, see ccs.judges.settings.
    `max_images`: of those the moments are collected from. `eval_images`: of each evaluation set.
    `seeds`: random plans. `stages`: how far to go, of STAGES. `cache`: bytes of embeddings kept a set.
    """

    models: tuple[str, ...] = ORGANISMS
    images: str = "world"
    texts: str | None = None
    suite: str | None = None
    sets: tuple[str, ...] = ()
    ks: tuple[int, ...] | None = None
    stages: tuple[str, ...] = STAGES
    max_images: int | None = None
    eval_images: int | None = None
    seed: int = 0
    seeds: int = 5
    out: Path = results.PRECOMPUTED
    force: bool = False
    judges: str = "tags"
    labeler: str = "tags"
    dry_run: bool = False
    budget: float | None = None
    refresh: tuple[str, ...] = ()
    per_minute: int | None = None
    in_flight: int = 8
    timeout: float = 120.0
    prices: Path | None = None
    as_published: bool = False
    device: str | None = None
    precision: str = "fp32"
    batch_size: int | None = None
    workers: int | None = None
    shard: int | None = None
    cache: float = 1e9
    plan_cost: bool = False

    def __post_init__(self) -> None:
        for name, value in (("k", min(self.ks or (1,))), ("seeds", self.seeds)):
            if value < 1:
                raise InputError(f"--{name} is {value}, but must be at least 1.")
        if not self.timeout > 0:
            raise InputError(f"--timeout is {self.timeout:g}, but must be above 0 seconds.")
        if list(self.all_ks) != sorted(set(self.all_ks)):
            given = ",".join(str(k) for k in self.all_ks)
            raise InputError(f"--k is {given}, but its numbers must rise; the first is the main one.")
        for name in ("max_images", "eval_images", "batch_size", "shard", "per_minute", "in_flight"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} is {value}, but must be at least 1.")
        if self.seed < 0 or (self.workers or 0) < 0:
            raise InputError(
                f"--seed and --workers must not be negative, but are {self.seed}, {self.workers}."
            )

    @property
    def all_ks(self) -> tuple[int, ...]:
        """Every K: how many texts of a head are judged together."""
        return self.ks or STUDY_K[:1]

    @property
    def k(self) -> int:
        """The main K, which labels, levels and all plans without a K in their name are of."""
        return self.all_ks[0]

    def for_model(self, name: str) -> Settings:
        """The settings with what depends on the model chosen: texts, suite, how many texts and images."""
        organism = name in ORGANISMS
        drawn = self.images == "world"
        suite = self.suite or ("world" if organism and drawn else "none")
        world = suite == "world"
        return replace(
            self,
            models=(name,),
            texts=self.texts or ("world" if organism and drawn else "photographs"),
            suite=suite,
            ks=self.ks or (STUDY_K[:1] if suite == "none" else STUDY_K),
            max_images=self.max_images or (_WORLD_IMAGES if drawn else None),
            eval_images=self.eval_images or (_EVAL_IMAGES if world else None),
        )

    def described(self) -> dict[str, Any]:
        """What of the settings changes a figure, for the manifest."""
        names: tuple[str, ...] = (
            "images",
            "texts",
            "suite",
            "sets",
            "k",
            "further_k",
            "max_images",
            "eval_images",
            "judges",
            "labeler",
        )
        names += ("seeds", "as_published", "precision", "stages")
        values = asdict(self) | {"k": self.k, "further_k": self.all_ks[1:]}
        return {name: list(v) if isinstance(v := values[name], tuple) else v for name in names}


def parser() -> argparse.ArgumentParser:
    """The command line of batch.compute."""
    made = argparse.ArgumentParser(
        prog="python -m batch.compute",
        description="Score the attention heads of CLIP models, switch them off, measure, and write tables.",
    )
    add = made.add_argument
    add("--model", action="append", metavar="M", help="organism, an open_clip NAME/TAG, a folder; "
        "repeatable; `paper`: the six models of the study (default: both organisms)")  # fmt: skip
    add(
        "--images",
        default="world",
        help="what moments are collected from: world, a folder, a parquet file, a Hub id",
    )
    add("--texts", help="pool of texts: world, photographs, or a text file with one text a line")
    add("--suite", choices=SUITES, help="what to evaluate on (default: world for the organisms, else none)")
    add("--set", action="append", default=[], metavar="S", help="evaluate on this set only (repeatable)")
    add("--k", metavar="K,...", help="texts a head; further numbers give plans such as high@7 too (default: "
        f"{','.join(map(str, STUDY_K))} with a suite, else {STUDY_K[0]})")  # fmt: skip
    add("--stages", help=f"how far to go, some of {','.join(STAGES)}; what they need is done too")
    add("--max-images", type=int, help="at most so many images for the moments")
    add("--eval-images", type=int, help="at most so many images of each evaluation set")
    add("--seed", type=int, default=0, help="where randomness begins (default 0)")
    add("--seeds", type=int, default=5, help="random plans (default 5)")
    add("--out", type=Path, default=results.PRECOMPUTED, help="folder of results (default precomputed/)")
    add("--force", action="store_true", help="do finished stages again")
    add("--judges", default="tags", help="`tags` (a stand-in), `default`, or PROVIDER:MODEL,...")
    add("--labeler", default="tags", help="`tags` (a stand-in) or PROVIDER:MODEL")
    add(
        "--dry-run",
        action="store_true",
        help="say what language models would be asked and what it costs, and stop",
    )
    add("--budget", type=float, help="US dollars that language models may cost at most")
    add(
        "--refresh", action="append", default=[], metavar="J", help="ask this judge, or about this head, anew"
    )
    add("--per-minute", type=int, help="requests to each language model a minute (default: no limit)")
    add("--in-flight", type=int, default=8, help="requests to each language model at a time (default 8)")
    add("--timeout", type=float, default=120.0, help="seconds for one try of a request (default 120)")
    add("--prices", type=Path, metavar="FILE", help="prices of language models, over ccs/judges/prices.json")
    add("--as-published", action="store_true", help="also bias with the faults of the study's released code")
    add("--device", help="cpu, cuda or cuda:N (default: what there is)")
    add(
        "--precision",
        choices=("fp32", "bf16", "fp16"),
        default="fp32",
        help="of evaluation; moments stay fp32",
    )
    add("--batch-size", type=int, help="images at a time (default: found automatically)")
    add("--workers", type=int, help="processes that decode images (default: found automatically)")
    add(
        "--shard",
        type=int,
        help="images in a shard, the unit of work that is kept (default: by size)",
    )
    add(
        "--keep",
        type=float,
        default=1e9,
        metavar="BYTES",
        help="keep a set's embeddings for later runs up to this",
    )
    add("--plan-cost", action="store_true", help="say what the run would take, and stop")
    return made


def parse(argv: Sequence[str] | None) -> Settings:
    """The settings of a command line. Raises InputError for a value that is not allowed."""
    args = parser().parse_args(argv)
    stages = tuple(STAGES)
    if args.stages is not None:
        stages = tuple(part.strip() for part in args.stages.split(",") if part.strip())
        for stage in stages:
            if stage not in STAGES:
                raise InputError(f"There is no stage {stage!r}; stages are {', '.join(STAGES)}.")
        if not stages:
            raise InputError(f"--stages names none; stages are {', '.join(STAGES)}.")
    return Settings(
        models=_models(args.model), images=args.images, texts=args.texts, suite=args.suite,
        sets=tuple(args.set), ks=_numbers(args.k), stages=stages, max_images=args.max_images,
        eval_images=args.eval_images, seed=args.seed, seeds=args.seeds, out=args.out, force=args.force,
        judges=args.judges, labeler=args.labeler, dry_run=args.dry_run, budget=args.budget,
        refresh=tuple(args.refresh), per_minute=args.per_minute, in_flight=args.in_flight,
        timeout=args.timeout, prices=args.prices, as_published=args.as_published, device=args.device,
        precision=args.precision, batch_size=args.batch_size, workers=args.workers, shard=args.shard,
        cache=args.keep, plan_cost=args.plan_cost, )  # fmt: skip


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--k is {text!r}, but must be whole numbers, such as 5 or 5,7,9.") from None


def _models(asked: Sequence[str] | None) -> tuple[str, ...]:
    from ccs.paper import figures

    names: list[str] = []
    for name in asked or ORGANISMS:
        names += [model.name for model in figures.models()] if name == "paper" else [name]
    return tuple(dict.fromkeys(names))
