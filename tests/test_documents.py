"""Every command of README and docs runs: as it stands there, on a small model and a few images.

What a reader would fill in (a folder, a repository) is filled in, names of real CLIPs become a tiny random
model, and options that make a run small are added. The Hub and the language models are local servers that
speak their protocols. A command without a runner fails a test of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from batch.compute.settings import parse
from ccs.results import PRECOMPUTED
from ccs.world.sets import image_set
from tests.support.app_process import started
from tests.support.hub_server import Hub
from tests.support.llm_providers import serve_all
from tests.support.llm_server import verdicts
from tests.support.results_sample import write_model

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
OTHERS = ("pip", "git", "ollama", "export", "for", "done", "hf")  # not this project's commands
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SMALL = ("--max-images", "12", "--workers", "0")
SMALL_SETS = ("--set", "world/digits", "--eval-images", "12")


@dataclass(frozen=True)
class Command:
    """A command of a document, as words, and the environment variables that it sets."""

    document: str
    settings: Mapping[str, str]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: {shlex.join(self.words)}"


def commands() -> list[Command]:
    """The commands in all fenced blocks of shell, each once."""
    found: dict[str, Command] = {}
    fenced = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    for path in DOCUMENTS:
        blocks = fenced.findall(path.read_text("utf-8"))
        shell = "".join(block for language, block in blocks if language in ("", "sh", "bash"))
        for line in shell.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            settings = {}
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                name, _, value = words.pop(0).partition("=")
                settings[name] = value
            if words and words[0] not in OTHERS:
                found.setdefault(shlex.join(words), Command(path.name, settings, tuple(words)))
    return list(found.values())


COMMANDS = commands()


def of(*start: str) -> list[Command]:
    """The commands that begin with these words, with or without `./run` before them."""
    size = len(start)
    return [one for one in COMMANDS if start in (one.words[:size], one.words[1 : size + 1])]


COMPUTE = of("python", "-m", "batch.compute")
REPORT = of("python", "-m", "batch.report")
SEARCH = of("python", "-m", "batch.search")
OTHERS_HERE = ("annotate", "export", "localize", "publish")
OTHER_MODULES = [one for name in OTHERS_HERE for one in of("python", "-m", f"batch.{name}")]
APP = [*of("python", "app.py"), *of("./run", "app")]
DEMO, TEST = of("./run", "demo"), of("./run", "test")


def arguments(command: Command) -> list[str]:
    """The words after the module's name."""
    return list(command.words[command.words.index("-m") + 2 :])


def main(module: str, argv: list[str]) -> int:
    """A module's own `main`, in this process; --help ends in SystemExit."""
    found = importlib.import_module(module)
    if not hasattr(found, "main"):
        found = importlib.import_module(f"{module}.__main__")
    try:
        code: int = found.main(argv)
    except SystemExit as ended:
        return int(ended.code or 0)
    return code


@pytest.fixture
def here(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with what the documents name: images, a parquet file of them, a model's folder."""
    import datasets as hf

    folder = tmp_path / "DIR"
    folder.mkdir()
    for number, image in enumerate(image_set(12).images):
        image.save(folder / f"{number}.png")
    rows = hf.Dataset.from_dict({"image": [str(path) for path in sorted(folder.iterdir())]})
    rows.cast_column("image", hf.Image()).to_parquet(tmp_path / "DIR.parquet")
    (tmp_path / "path/to").mkdir(parents=True)
    (tmp_path / "path/to/open_clip_folder").symlink_to(tiny_folder)
    for name in ("cifar10", "cifar10-jpeg"):  # in the folder `data`, as docs/datasets.md has them
        for number, label in enumerate(CIFAR10):
            place = tmp_path / "data" / name / "test" / label
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (number * 20, 0, 0)).save(place / f"{number}.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def label_or_accept(user: str, schema: Mapping[str, Any]) -> str:
    """A language model's answer: the concept is Colors, and every text fits it."""
    if "concept" in schema["required"]:
        return json.dumps({"reason": "so", "concept": "Colors"})
    return verdicts(dict.fromkeys(schema["required"], True))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The three providers' SDKs speak to local servers; the address of one that speaks OpenAI's protocol."""
    with serve_all(label_or_accept) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield environment["OPENAI_BASE_URL"]


@pytest.mark.parametrize("command", COMPUTE, ids=str)
def test_compute(command: Command, here: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = "path/to/open_clip_folder"
    filled = {"ViT-B-32/openai": [tiny], "...": ["--model", tiny]}
    argv = [
        word.replace("http://localhost:11434/v1", server)
        for given in arguments(command)
        for word in filled.get(given, [given])
    ]
    for option, value in (("--out", "results"), ("--images", "DIR"), ("--k", "2")):
        argv += () if option in argv else (option, value)
    argv += SMALL if {"--set", "--suite"} & set(argv) else (*SMALL, *SMALL_SETS)
    for name, value in command.settings.items():
        monkeypatch.setenv(name, value)
    if "paper" in argv:  # six CLIPs and thirteen data sets: here the command line is read, and no more
        assert len(parse(argv).models) == 6
        return
    assert main("batch.compute", argv) == 0
    assert any((here / "results").glob("*/scores.parquet")) != ("--dry-run" in argv)


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub's own uploads
@pytest.mark.parametrize("command", [*REPORT, *SEARCH, *OTHER_MODULES], ids=str)
def test_the_other_command_lines(
    command: Command, here: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(PRECOMPUTED / "organism", here / "results" / "organism")
    shutil.rmtree(here / "DIR")  # export writes to a new folder
    filled = {"$model": "organism", "$attribute": "skin tone", "USER/NAME": "user/name"}
    argv = [filled.get(word, word) for word in arguments(command)]
    if command in SEARCH and "--help" not in argv:
        argv += ["--max-images", "60", "--max-heads", "1", "--screen", "1"]
    if command in (*REPORT, *SEARCH) and not {"--results", "--help"} & set(argv):
        argv += ["--results", "results"]
    argv += ["--no-static"] if command in REPORT else []
    assert main(command.words[command.words.index("-m") + 1], argv) == 0
    assert capsys.readouterr().out


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository with an environment in which everything is installed: this one."""
    folder = tmp_path / "clone"
    (folder / ".venv").mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in (".venv", ".git", "results"):
            (folder / path.name).symlink_to(path)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (folder / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    with (ROOT / "pyproject.toml").open() as file:
        stamp = subprocess.run(["cksum"], stdin=file, stdout=subprocess.PIPE, check=True).stdout
    (folder / ".venv" / ".installed").write_bytes(stamp)
    return folder


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub's own uploads
@pytest.mark.parametrize("command", APP, ids=str)
def test_the_app(command: Command, clone: Path, hub: Hub, tmp_path: Path) -> None:
    write_model(clone / "results", "organism")
    words = [str(clone / ".venv/bin/python") if word == "python" else word for word in command.words]
    settings = {name: value.replace("USER/NAME", "user/name") for name, value in command.settings.items()}
    if "CCS_RESULTS" in settings:
        assert main("batch.publish", ["--repo", "user/name", "--results", str(clone / "results")]) == 0
    settings |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    with started(os.environ | settings, words, clone) as (_, said):
        pass
    source = "the Hub" if "CCS_RESULTS" in settings else "results" if "--results" in words else "precomputed"
    assert source in next(line for line in said.splitlines() if line.startswith("Results: "))


@pytest.mark.parametrize("command", DEMO, ids=str)
def test_demo_computes_and_opens(command: Command, clone: Path) -> None:
    with started(os.environ, [*command.words, *SMALL, "--suite", "none"], clone):
        assert (clone / "results" / "organism" / "scores.parquet").is_file()


def test_the_test_command_is_what_ci_runs() -> None:
    (command,) = TEST
    assert shlex.join(command.words) in (ROOT / ".ci" / "run").read_text("utf-8")


def test_every_command_has_a_runner() -> None:
    groups = (COMPUTE, REPORT, SEARCH, OTHER_MODULES, APP, DEMO, TEST)
    run = {str(command) for group in groups for command in group}
    elsewhere = ("torchrun", "accelerate")  # test_processes runs torchrun; accelerate's lines need GPUs
    assert not [str(one) for one in COMMANDS if str(one) not in run and one.words[0] not in elsewhere]
    assert all(groups)
