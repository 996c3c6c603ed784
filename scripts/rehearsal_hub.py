"""The whole study on a local Hub: every set in its real schema with a few rows, six models by their names.

The models have the architectures' real layers and heads with random weights, and 4 x 4 patches instead of 49
to 256. With `narrow` they are narrower too: eight numbers per head, and hardly any text encoder.
"""

from __future__ import annotations

import functools
import json
import mmap
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ccs.files import sha256
from tests.support.hub_server import Hub, Repository
from tests.support.llm_server import verdicts

CONCEPTS = ("Locations", "Objects", "Animals", "Colors", "People")
_PATCHES = 4
_MOMENT_IMAGES = 24


def answer(user: str, schema: Mapping[str, Any]) -> str:
    """A language model's answer, which depends on what is asked alone: so that the judges agree and heads of
    every level come out.
    """
    kind = zlib.crc32(user.encode())
    if "concept" in schema["required"]:
        return json.dumps({"reason": "so", "concept": CONCEPTS[kind % len(CONCEPTS)]})
    names = schema["required"]
    whole = len(names)  # so that of 48 heads some are high by both of their questions, and some low
    accepted = (whole, whole, whole, 3, 3, 1, 0, 0)[kind % 8]
    return verdicts({name: place < accepted for place, name in enumerate(names)})


def less(draws: int, data: Path, *, small: bool) -> None:
    """Resample less often, draw fewer random sets, and ask about three occupations: of a handful of images
    there is nothing to learn. Some texts in the folder `data` stand for the reference pool.

    small: single heads are switched off on two sets alone.
    """
    from ccs import paper
    from ccs.batch import compute
    from ccs.batch.compute import measure, run
    from ccs.metrics import bias, retrieval
    from ccs.texts import pools

    pools.REFERENCE_SHA256 = sha256(_pool(data / pools.REFERENCE_FILE, 40 if small else 200))
    compute._FEW_RANDOM_SETS = 2
    measure.DRAWS = draws
    bias.Measuring = functools.partial(bias.Measuring, draws=draws)  # type: ignore[misc, assignment]
    retrieval.measure = functools.partial(retrieval.measure, draws=draws)
    paper.occupations = lambda: ("judge", "chef", "nurse")  # type: ignore[assignment]
    if small:
        run._singles_on = lambda data: data.name in ("cifar10", "fairface-1.25")


# Sets ---------------------------------------------------------------------------------------------------


def serve_sets(hub: Hub, folder: Path, data: Path) -> None:
    """Serve every registered set as its repository; the one that is on no Hub goes into the folder `data`."""
    from ccs.data import SOURCES
    from tests.support.datasets_sample import repository, schemas, webdataset

    known = schemas()
    wanted = {n: one for n, one in SOURCES.items() if one.measured or n == "imagenet-val"}
    for name, record in wanted.items():
        here = folder / name
        like = name if name in known else name.removesuffix("-joined").removesuffix("-gender")
        if record.kind == "videos":
            _videos(here, record.annotations)
        elif name == "country211":
            (here / "test").mkdir(parents=True, exist_ok=True)
            (here / "test" / "0.tar").write_bytes(webdataset([1, 0, 1]))
            (here / "classnames.txt").write_text("Andorra\nCanada\n")
        elif name == "cifar10-jpeg":
            repository(data / name, SOURCES["cifar10"], *known["cifar10"])
            continue
        else:
            features, rows = known[like]
            rows = {"label": [0] * _MOMENT_IMAGES} if name == "imagenet-val" else rows
            if like == "socialcounterfactuals":  # K is at most half of what an occupation ranks
                rows = {column: list(cells) * 4 for column, cells in rows.items()}
            repository(here, record, features, rows)
        assert record.hub is not None
        served = hub.repositories.setdefault(("datasets", record.hub), Repository(private=False))
        files = _files(here)
        if served.commits:  # another configuration of a repository that is there
            earlier = served.commits[-1][1]
            files = {**earlier, **files, "README.md": _both(earlier["README.md"], files["README.md"])}
        sha = served.commit(files, "data")
        served.tags[record.revision] = sha


def _both(one: bytes, other: bytes) -> bytes:
    """The card of a repository with the configurations of two cards."""
    start = b"---\nconfigs:\n"
    return one if one == other else one.removesuffix(b"---\n") + other.removeprefix(start)


def _videos(folder: Path, annotations: str) -> None:
    """Three videos in an archive beside their captions; the third cannot be read."""
    from tests.support.datasets_sample import clip

    rows = [{"video": f"video{i}.mp4", "video_id": f"video{i}", "caption": f"clip {i}"} for i in range(3)]
    for row in rows[:2]:
        clip(folder / "unpacked" / row["video"], seconds=1.0)
    (folder / "unpacked" / rows[2]["video"]).write_bytes(b"nothing of the kind")
    shutil.make_archive(str(folder / "videos"), "zip", folder / "unpacked")
    shutil.rmtree(folder / "unpacked")
    (folder / annotations).write_text(json.dumps(rows))


def _files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# Models -------------------------------------------------------------------------------------------------


def serve_models(hub: Hub, folder: Path, names: Sequence[str], *, narrow: bool) -> None:
    """Put the architectures' small forms into open_clip's registry, and random weights on the Hub.

    Weights are of half precision and stay on disk.
    """
    import open_clip
    import torch
    from safetensors.torch import save_file

    configs = folder / "architectures"
    configs.mkdir(parents=True, exist_ok=True)
    for architecture in {name.partition("/")[0] for name in names}:
        config = _smaller(open_clip.get_model_config(architecture), narrow)
        (configs / f"{architecture}.json").write_text(json.dumps(config))
    open_clip.add_model_config(configs)
    for seed, name in enumerate(names):
        architecture, _, tag = name.partition("/")
        known = open_clip.get_pretrained_cfg(architecture, tag)
        path = folder / name.replace("/", "--") / "open_clip_model.safetensors"
        if not path.exists():
            path.parent.mkdir()
            torch.manual_seed(seed)
            clip = open_clip.create_model(architecture, force_quick_gelu=known.get("quick_gelu", False))
            save_file({key: values.half().contiguous() for key, values in clip.state_dict().items()}, path)
        with path.open("rb") as file:
            weights: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        served = Repository(private=False)
        served.commit({path.name: weights}, "weights")
        hub.repositories["models", str(known["hf_hub"]).rstrip("/")] = served


def _smaller(config: Mapping[str, Any], narrow: bool) -> dict[str, Any]:
    vision, text = dict(config["vision_cfg"]), dict(config["text_cfg"])
    vision["image_size"] = _PATCHES * vision["patch_size"]
    if not narrow:
        return {**config, "vision_cfg": vision}
    vision |= {"width": vision["width"] // 8, "head_width": vision.get("head_width", 64) // 8}
    text |= {"width": 32, "heads": 2, "layers": 2}
    return {**config, "embed_dim": 32, "vision_cfg": vision, "text_cfg": text}


def _pool(path: Path, most: int) -> Path:
    """Some of the photographs' texts, evenly spaced, one per line and without concepts."""
    from ccs.texts.pools import load_pool

    texts = load_pool("photographs").texts
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts[:: len(texts) // most]))
    return path
