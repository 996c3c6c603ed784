"""Train and measure the organisms with planted heads: `python -m research.planted --help`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ccs.batch.options import command, option
from ccs.benchmark.planted_models import FOLDER, SUFFIX
from ccs.files import write_text

if TYPE_CHECKING:
    from research.planted.family import Planted

HERE = Path(__file__).parent
MEASURED, PAGE, README = HERE / "planted.json", HERE / "planted.md", HERE / "README.md"


@dataclass(frozen=True)
class Settings:
    """Train the family of organisms with planted heads, measure each into planted.json, and write
    planted.md and the README's answers. A model whose file exists is not trained again, and one that was
    measured with its present weights is not measured again.

    With --seed: plant one new model in heads that the seed draws, for methods that were developed on the
    others, into a folder that can go to the Hub as it is.
    """

    seed: int | None = option(None, "plant one new model instead, what and where drawn by this seed", least=0)
    strength: float = option(1.0, "with --seed, the part of the skew that is planted, 0 to 1", least=0.0)
    out: Path | None = option(
        None, "folder of the models (default: that of the shipped ones; with --seed runs/planted)"
    )
    runs: Path = option(Path("runs"), "folder for what trainings share")
    benchmark: Path | None = option(
        None, "train nothing; write the models that ship into this folder, as `publish --benchmark` takes it"
    )


def _run(args: Settings) -> None:
    if args.benchmark is not None:
        from research.planted import benchmark_folder

        benchmark_folder.write(sorted(FOLDER.glob(f"*{SUFFIX}")), args.benchmark)
        print(args.benchmark)
        return
    if args.seed is not None:
        _plant(args.seed, args.strength, args.out or args.runs / "planted", args.runs)
        return
    from ccs.batch.pages import as_markdown, bring_up_to_date
    from research.planted.planted_page import blocks, summary

    out = args.out or FOLDER
    train(out, args.runs)
    if args.out is None:
        _ship()
    held = measure(out, MEASURED)
    write_text(PAGE, as_markdown(blocks(held)))
    text = "\n".join(f"- {one}" for one in summary(held))
    bring_up_to_date(README, "planted", text, "python -m research.planted")
    print(PAGE)


def _plant(seed: int, strength: float, out: Path, runs: Path) -> None:
    """Plant the model that a seed draws, and bring the folder that can go to the Hub up to date."""
    from ccs.benchmark.planted_models import truth
    from research.planted import benchmark_folder
    from research.planted.family import fresh

    one = fresh(seed, strength)
    train(out, runs, (one,))
    benchmark_folder.write(sorted(out.glob(f"*{SUFFIX}")), out)
    place = out / f"{one.name}{SUFFIX}"
    print(f"{place}: {one.what}, {one.where}; {dict(truth(str(place)).shares)}")


def train(out: Path, runs: Path, members: Sequence[Planted] | None = None) -> None:
    from ccs.benchmark import planted_models, variants
    from research.planted import head_training as training
    from research.planted.bench import Bench
    from research.planted.family import BASE, PICTURES, RATE, family
    from research.planted.frozen_images import Images

    wanted = family() if members is None else members
    missing = [one for one in wanted if not (out / f"{one.name}{planted_models.SUFFIX}").exists()]
    if not missing:
        return
    base = variants.load(BASE)
    images, bench = Images(base, runs), Bench(base)
    for one in missing:
        print(f"{one.name}: {one.what}, {one.where}, {one.heads}", file=sys.stderr)
        model = training.plant(one, images, bench)
        known = planted_models.Truth(
            base=BASE, heads=one.heads, carries=one.carries,
            shares=training.shares(model, base, one.carries, bench),
            drawn=one.where, seed=one.number, pictures=PICTURES, rate=RATE, strength=one.strength,
        )  # fmt: skip
        planted_models.save(model.clip, known, out / f"{one.name}{planted_models.SUFFIX}")


def _ship() -> None:
    """Write one of the family as an embedded model, whole, with its truth beside it."""
    import shutil

    from safetensors.torch import save_file

    from ccs.benchmark import planted_models
    from ccs.files import atomic_write
    from ccs.model.loading.weights import only_words_read
    from research.planted.family import BASE, SHIPPED
    from research.world.organism_training import CONFIG, MODELS, WEIGHTS

    folder, known = MODELS / "organism-planted", planted_models.truth(SHIPPED).to_json()
    truth = folder / planted_models.TRUTH_FILE
    if truth.is_file() and truth.read_text("utf-8") == known:
        return
    state = planted_models.load(SHIPPED).clip.state_dict()
    folder.mkdir(exist_ok=True)
    with atomic_write(folder / WEIGHTS) as temporary:
        save_file(only_words_read({n: values.half().contiguous() for n, values in state.items()}), temporary)
        temporary.chmod(0o644)
    shutil.copyfile(MODELS / BASE / CONFIG, folder / CONFIG)
    write_text(truth, known)


def measure(out: Path, file: Path) -> dict[str, dict[str, object]]:
    """Each model's rows by its name, the base's first; what is known already is kept."""
    from ccs.benchmark import planted_models, variants
    from ccs.heads import HeadSet
    from research.planted.bench import RANDOM, Bench, measured
    from research.planted.family import BASE, family

    held = json.loads(file.read_text("utf-8")) if file.exists() else {}
    base = variants.load(BASE)
    bench = Bench(base)
    before = bench.consistency(base)
    for name in (BASE, *(one.name for one in family())):
        place = str(out / f"{name}{planted_models.SUFFIX}")
        model = base if name == BASE else planted_models.load(place)
        about: dict[str, object] = {"weights": model.weights_hash, "random": RANDOM}
        if about.items() <= held.get(name, {}).items():
            continue
        known = planted_models.truth(place) if name != BASE else planted_models.Truth(
            base=BASE, heads=HeadSet(), carries={}, shares={}, drawn="", seed=0, pictures=0, rate=0.0
        )  # fmt: skip
        rows, heads = measured(model, known, bench, before)
        held[name] = {**about, "rows": rows, "heads": heads}
        write_text(file, json.dumps(held) + "\n")
        print(name, file=sys.stderr)
    return dict(held)


main = command(Settings, _run, "Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())
