"""Several trainings: what is kept, and a spread in which the models that ship are marked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from batch.report import document
from ccs import InputError
from research.world import organism_training, repeated_trainings
from research.world.training_spread import over_trainings, training_blocks
from tests.support.report_sample import line


def one(name: str, seed: int, skew: float, high: tuple[str, ...] = ()) -> dict[str, Any]:
    figures = {f"{what} {a}": skew for what in ("MaxSkew", "gap") for a in ("gender", "skin tone")}
    none = figures | {"accuracy": 0.9}
    off = {key: value - 0.1 for key, value in none.items()}
    ccs = {head: 5 if head in high else 2 for head in ("L4.H0", "L5.H1", "L6.H2")}
    return {
        "name": name,
        "seed": seed,
        "shared": 1024,
        "own": 512,
        "weights": "a",
        "ccs": ccs,
        "none": none,
        "high": off,
    }


def test_the_model_that_ships_is_marked_in_the_spread() -> None:
    trained = [one("organism", seed, 0.1 * seed, ("L4.H0",)) for seed in range(1, 5)]
    trained += [one("organism", 0, 0.35, ("L5.H1",)), one("organism-control", 1, 0.1)]
    text = document.as_markdown(training_blocks(trained))
    row = line(text, "MaxSkew gender", "nothing off")
    assert row[2:] == ["0.250 [0.045, 0.455]", "0.350 (3 of 4 below)", "0.100", "–"]
    assert line(text, "accuracy", "change with the high heads off")[2].startswith("-10.0")
    assert "organism: L4.H0 4 of 4, **L5.H1** 0 of 4" in text
    assert training_blocks([one("organism", 0, 0.3)]) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((0.1, 0.12, 0.11), "Rises: accuracy (+11.0, +8.5 to +13.5), MaxSkew gender"),
        ((-0.1, -0.12, -0.11), "Falls: accuracy (-11.0, -13.5 to -8.5), MaxSkew gender"),
        ((0.1, -0.12, 0.01), "Not shown to change: accuracy (-0.3"),
    ],
)
def test_what_holds_over_trainings_turns_round(changes: tuple[float, ...], words: str) -> None:
    trained = [one("organism", seed, 0.5) for seed in range(1, len(changes) + 1)]
    for each, change in zip(trained, changes, strict=True):
        each["high"] = {name: value + change for name, value in each["none"].items()}
    assert f"in 3 shorter trainings of the organism?** {words}" in over_trainings(trained)
    assert over_trainings(trained[:1]) == ""


def test_what_is_trained_and_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while the second model of two is trained, the command goes on with that."""
    asked: list[str] = []
    file, runs = tmp_path / "trainings.json", tmp_path / "runs"

    def train(settings: organism_training.Settings, runs: Path, out: Path, workers: int) -> None:
        asked.append(f"{settings.world} {settings.seed}")
        if len(asked) == 2:
            raise KeyboardInterrupt
        shutil.copytree(organism_training.MODELS / "organism-control", out)

    monkeypatch.setattr(organism_training, "train", train)
    figures = {"ccs": {"L4.H0": 5}, "none": {"a": 1}, "high": {"a": 1}}
    monkeypatch.setattr(repeated_trainings, "measured", lambda model: figures)
    with pytest.raises(KeyboardInterrupt):
        repeated_trainings.train_and_measure(1, runs, file)
    assert [(each["name"], each["seed"]) for each in repeated_trainings.read(file)] == [
        ("organism", 0), ("organism-control", 0), ("organism", 1)
    ]  # fmt: skip
    repeated_trainings.train_and_measure(1, runs, file)
    assert asked == ["skewed 1", "balanced 1", "balanced 1"]
    held = repeated_trainings.read(file)
    assert [(each["name"], each["seed"]) for each in held] == [
        ("organism", 0), ("organism-control", 0), ("organism", 1), ("organism-control", 1)
    ]  # fmt: skip
    monkeypatch.setattr(repeated_trainings, "measured", lambda model: pytest.fail("measured again"))
    repeated_trainings.train_and_measure(1, runs, file)
    assert repeated_trainings.read(file) == held


def test_another_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "trainings.json"
    file.write_text(json.dumps([{"ccs": {}}]))
    with pytest.raises(InputError, match="is not what"):
        repeated_trainings.read(file)
