"""A local Hub for a rehearsal of the paper's study: all datasets with a few rows, and six models.

The models have their architectures' layers and heads, random weights, and 4 x 4 patches in place of 49 to
256. With `narrow`, they have 8 dimensions per head and a tiny text encoder.
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
from tests.support.llm_server import encode_verdicts

CONCEPTS = ("Locations", "Objects", "Animals", "Colors", "People")
_PATCHES = 4
_MOMENT_IMAGES = 24


def answer(user: str, schema: Mapping[str, Any]) -> str:
    """Answer as an LLM judge. Answers depend only on the question, so judges agree and heads have all levels.

    Args:
        user: The question.
        schema: JSON schema of the answer.
    """
    kind = zlib.crc32(user.encode())
    if "concept" in schema["required"]:
        return json.dumps({"reason": "so", "concept": CONCEPTS[kind % len(CONCEPTS)]})
    names = schema["required"]
    count = len(names)
    accepted = (count, count, count, 3, 3, 1, 0, 0)[kind % 8]  # gives high and low heads among 48
    return encode_verdicts({name: place < accepted for place, name in enumerate(names)})


def reduce_work(draws: int, data: Path, *, small: bool) -> None:
    """Return reduce resampling, random sets, occupations, and the text pool.

    Args:
        draws: Number of resamples.
        data: Folder for the reduced reference pool.
        small: Ablate single heads on two datasets only.
    """
    from ccs import paper
    from ccs.batch import compute
    from ccs.batch.compute import ablations, measure
    from ccs.metrics import bias, retrieval
    from ccs.texts import pools

    pools.REFERENCE_SHA256 = sha256(_pool(data / pools.REFERENCE_FILE, 40 if small else 200))
    compute._FEW_RANDOM_SETS = 2
    measure.DRAWS = draws
    bias.Measuring = functools.partial(bias.Measuring, draws=draws)  # type: ignore[misc, assignment]
    retrieval.measure_recall = functools.partial(retrieval.measure_recall, draws=draws)
    paper.occupations = lambda: ("judge", "chef", "nurse")  # type: ignore[assignment]
    if small:
        ablations.ablates_single_heads = lambda data: data.name in ("cifar10", "fairface-1.25")


# Sets ---------------------------------------------------------------------------------------------------


def serve_datasets(hub: Hub, folder: Path, data: Path) -> None:
    """Serve every registered dataset; the one without a Hub id goes into the folder `data`.

    Args:
        hub: The mock Hub, which receives the repositories.
        folder: Folder in which the repositories are made.
        data: The folder of datasets on disk.
    """
    from ccs.data import SOURCES
    from tests.support.datasets_sample import (
        allow_any_size,
        dataset_schemas,
        webdataset_bytes,
        write_repository,
    )

    allow_any_size()
    known = dataset_schemas() | _further_schemas()
    wanted = {n: record for n, record in SOURCES.items() if not record.sample}
    for name, record in wanted.items():
        here = folder / name
        like = name if name in known else name.removesuffix("-joined").removesuffix("-gender")
        if record.kind == "videos":
            _videos(here, record.annotations)
        elif name == "country211":
            (here / "test").mkdir(parents=True, exist_ok=True)
            (here / "test" / "0.tar").write_bytes(webdataset_bytes([1, 0, 1]))
            (here / "classnames.txt").write_text("Andorra\nCanada\n")
        elif name == "cifar10-jpeg":
            write_repository(data / name, SOURCES["cifar10"], *known["cifar10"])
            continue
        else:
            features, rows = known[like]
            rows = {"label": [0] * _MOMENT_IMAGES} if name == "imagenet-val" else rows
            if record.kind == "bias":  # K is at most half of each pool, and each half of it has every group
                rows = {column: list(cells) * 12 for column, cells in rows.items()}
            write_repository(here, record, features, rows)
        assert record.hub is not None
        served = hub.repositories.setdefault(("datasets", record.hub), Repository(private=False))
        files = _files(here)
        if served.commits:  # another configuration of an existing repository
            earlier = served.commits[-1][1]
            files = {**earlier, **files, "README.md": _merge_cards(earlier["README.md"], files["README.md"])}
        sha = served.commit(files, "data")
        served.tags[record.revision] = sha


def _further_schemas() -> dict[str, Any]:
    """Return the schemas that no test reads, as `schemas` returns others."""
    import datasets as hf

    image, text = hf.Image(), hf.Value("string")
    pets = hf.ClassLabel(names=["abyssinian", "american_bulldog", "american_pit_bull_terrier", "pug"])
    pets_features = {"image": image, "label": pets, "image_id": text}
    birds = ["n01531178", "n01498041", "n01531178"]
    bird_names = ["goldfinch", "stingray", "goldfinch"]
    tench = hf.ClassLabel(names=["tench", "goldfish"])
    return {
        "oxford-pets": (pets_features, {"label": [0, 1, 2], "image_id": ["a_1", "b_1", "c_1"]}),
        "imagenet-r": (
            {"image": image, "wnid": text, "class_name": text},
            {"wnid": birds, "class_name": bird_names},
        ),
        "imagenet-val": ({"image": image, "label": tench}, {"label": [0, 1, 1]}),
    }


def _merge_cards(first: bytes, second: bytes) -> bytes:
    """Merge the configurations of two cards."""
    start = b"---\nconfigs:\n"
    return first if first == second else first.removesuffix(b"---\n") + second.removeprefix(start)


def _videos(folder: Path, annotations: str) -> None:
    """Write three videos in an archive and their captions. The third is unreadable."""
    from tests.support.datasets_sample import write_video

    rows = [{"video": f"video{i}.mp4", "video_id": f"video{i}", "caption": f"clip {i}"} for i in range(3)]
    for row in rows[:2]:
        write_video(folder / "unpacked" / row["video"], seconds=1.0)
    (folder / "unpacked" / rows[2]["video"]).write_bytes(b"no video")
    shutil.make_archive(str(folder / "videos"), "zip", folder / "unpacked")
    shutil.rmtree(folder / "unpacked")
    (folder / annotations).write_text(json.dumps(rows))


def _files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# Models -------------------------------------------------------------------------------------------------


def serve_models(hub: Hub, folder: Path, names: Sequence[str], *, narrow: bool) -> None:
    """Register small versions of the architectures, and serve random weights in half precision.

    Args:
        hub: The local Hub.
        folder: Folder for configurations and weights.
        names: Names of the models.
        narrow: Reduce the width, too.
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


def _pool(path: Path, max_texts: int) -> Path:
    """Write evenly spaced texts of the pool `photographs`, one per line."""
    from ccs.texts.pools import load_pool

    texts = load_pool("photographs").texts
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts[:: len(texts) // max_texts]))
    return path
