"""Sets read through the real `datasets` library from a server that speaks the Hub's protocol.

The endpoint is read when huggingface_hub is imported, so every case runs in a process of its own.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from ccs import sets
from ccs.sets import SOURCES, fetching
from tests.support.datasets_sample import clip, repository, schemas, tar_of, webdataset
from tests.support.hub_server import Hub, Repository

OPEN = """
import json, pickle, sys
import datasets
import numpy as np
from ccs.errors import InputError
from ccs.sets.open import open_masks, open_set

datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0.5  # of the 5 seconds that it waits after each stream
found = []
for name, limit in json.load(sys.stdin):
    try:
        data = (open_masks if "mask" in name or "segment" in name else open_set)(name, max_images=limit)
        data = pickle.loads(pickle.dumps(data))  # as a run's other processes get it
    except InputError as error:
        found.append(str(error))
        continue
    about = {"source": data.source, "fingerprint": data.fingerprint}
    if hasattr(data, "images"):
        about["shown"] = [image.getpixel((0, 0))[0] // 5 for image in data.images]
    if hasattr(data, "classes"):
        about["labels"] = [data.classes[label] for label in data.labels]
    if hasattr(data, "captions"):
        about["captions"] = data.captions
    if hasattr(data, "masks"):
        about["masks"] = [np.asarray(mask)[0, :, 0].tolist() for mask in data.masks]
    found.append(about)
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def hub():
    with Hub() as hub:
        yield hub


@pytest.fixture
def ask(hub, tmp_path):
    """What `OPEN` found of these sets, with the server as the Hub and an empty cache."""

    def run(given):
        hub.requests.clear()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
        quiet = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
        places = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": os.getcwd()}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", OPEN],
            env={**kept, **quiet, **places, "CCS_DATA": str(tmp_path / "data")},
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    return run


def files_of(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def serve_set(hub, name, tmp_path, files=None):
    """The registered set as a repository of the server; by default with its schema's few rows."""
    source = SOURCES[name]
    assert source.hub is not None
    if files is None:
        files = files_of(repository(tmp_path / name, source, *schemas()[name]))
    served = hub.repositories["datasets", source.hub] = Repository(private=False)
    sha = served.commit(dict(files), "data")
    served.tags[source.revision] = sha
    return served


def png_of(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def fetched(hub):
    return [line for line in hub.requests if line.startswith("GET") and line.endswith(".parquet")]


def test_a_set_is_downloaded_and_part_of_a_large_one_streamed(hub, ask, tmp_path):
    for name in ("cifar10", "food101"):
        serve_set(hub, name, tmp_path)
    archive = {"test/0.tar": webdataset([1, 0, 1]), "classnames.txt": b"Andorra\nCanada\n"}
    served = serve_set(hub, "country211", tmp_path, archive)
    served.commit({"README.md": b"emptied since\n"}, "later")  # it is read at its revision
    asked = [["cifar10", None], ["food101", 2], ["food101", None], ["food101", 2], ["country211", None]]
    whole, streamed, all_of_it, again, countries = ask(asked)
    assert countries["labels"] == ["Canada", "Andorra", "Canada"]
    assert countries["shown"] == [0, 1, 2]
    assert (whole["labels"], whole["shown"]) == (["cat", "airplane", "truck"], [0, 1, 2])
    sha, _ = hub.repositories["datasets", "uoft-cs/cifar10"].commits[-1]
    assert whole["source"] == f"uoft-cs/cifar10 plain_text test {sha}"
    # Whichever two rows the shuffled stream gave: image and label belong together.
    assert len(streamed["shown"]) == len(set(streamed["shown"])) == 2
    names = dict(zip(all_of_it["shown"], all_of_it["labels"], strict=True))
    assert names == {0: "baby back ribs", 1: "apple pie", 2: "baby back ribs"}
    assert [names[shown] for shown in streamed["shown"]] == streamed["labels"]
    assert again == streamed
    # The other split was never asked for.
    assert fetched(hub)
    assert not [line for line in fetched(hub) if "other-" in line]


def test_masks_come_with_their_images_from_the_hub_and_from_the_published_file(hub, ask, tmp_path):
    import datasets
    import h5py

    pixels = [np.uint8(np.arange(8) < row)[None].repeat(8, 0) for row in range(4)]
    cells = [{"bytes": png_of(255 * own), "path": None} for own in pixels]
    own = sets.DatasetRecord(name="somebody/masked", kind="masks", split="test")
    features = {"image": datasets.Image(), "mask": datasets.Image()}
    folder = repository(tmp_path / "masked", own, features, {"mask": cells})
    served = hub.repositories["datasets", own.name] = Repository(private=False)
    sha = served.commit(files_of(folder), "data")
    (tmp_path / "data").mkdir()
    published = tmp_path / "data" / "imagenet-segmentation.mat"
    with h5py.File(published, "w") as file:
        for part in ("img", "gt"):
            file.create_dataset(f"value/{part}", (4, 1), h5py.ref_dtype)
        for row, mask in enumerate(pixels):
            shown = np.zeros((8, 8, 3), np.uint8)
            shown[..., 0] = 5 * row
            mask_at = file.create_dataset(f"mask{row}", data=mask.T).ref
            every = file.create_dataset(f"masks{row}", (1, 1), h5py.ref_dtype)
            every[0, 0], file["value/gt"][row, 0] = mask_at, every.ref
            file["value/img"][row, 0] = file.create_dataset(f"image{row}", data=shown.T).ref
    asked = [["somebody/masked:test", None], ["imagenet-segmentation", None], ["imagenet-segmentation", 2]]
    from_hub, from_file, half = ask(asked)
    assert (from_hub["source"], from_hub["shown"]) == (f"somebody/masked test {sha}", [0, 1, 2, 3])
    assert from_hub["masks"] == (255 * np.stack(pixels)[:, 0]).tolist()
    assert from_file["source"] == str(published)
    assert [from_file[part] for part in ("shown", "masks")] == [from_hub[part] for part in ("shown", "masks")]
    assert (half["shown"], half["masks"]) == ([0, 2], from_hub["masks"][::2])


def test_every_refusal_is_a_sentence_and_what_can_be_had_is_had(hub, ask, tmp_path):
    serve_set(hub, "imagenet-val", tmp_path).gated = True
    serve_set(hub, "cifar10", tmp_path)
    # Renamed on the Hub: the old name leads to the new one, as a browser and git are led too.
    hub.repositories["datasets", "new-owner/food101"] = serve_set(hub, "food101", tmp_path)
    del hub.repositories["datasets", "ethz/food101"]
    hub.renamed["ethz/food101"] = "new-owner/food101"
    # Changed columns, a missing split, a repository without data, a revision that is gone.
    features, _ = schemas()["cifar100"]
    features = {"img": features["img"], "klass": features["fine_label"]}
    changed = repository(tmp_path / "changed", SOURCES["cifar100"], features, {"klass": [0, 1, 2]})
    serve_set(hub, "cifar100", tmp_path, files_of(changed))
    pets = serve_set(hub, "oxford-pets", tmp_path)
    pets.commit({name: data for name, data in pets.commits[-1][1].items() if "test" not in name}, "no test")
    serve_set(hub, "imagenet-a", tmp_path, {"README.md": b"soon\n"})
    serve_set(hub, "country211", tmp_path, {"README.md": b"# moved\n"}).tags.clear()

    expected = {
        "imagenet-val": "is gated on the Hub: accept its terms at 'ILSVRC/imagenet-1k'",
        "cifar100": "'cifar100' has no column 'label'; its columns are img, klass.",
        "oxford-pets": "could not be read from 'timm/oxford-iiit-pet'",
        "imagenet-a": "could not be read from 'barkermrl/imagenet-a'",
        "country211": "needs a file or revision that 'clip-benchmark/wds_country211' no longer has",
        "imagenet-r": "was not found on the Hub as 'axiong/imagenet-r'",
    }
    names = ["food101", "cifar10", *expected]
    answers = dict(zip(names, ask([[name, None] for name in names]), strict=True))
    assert answers["food101"]["shown"] == answers["cifar10"]["shown"] == [0, 1, 2]
    for name, words in expected.items():
        assert isinstance(answers[name], str), name
        assert words in answers[name], answers[name]
        assert "\n" not in answers[name]
        assert name == "cifar100" or f"$CCS_DATA/{name}" in answers[name]


def videos(tmp_path, count):
    rows = [{"video": f"v{i}.mp4", "caption": [f"clip {i}", "a clip"]} for i in range(count)]
    made = {f"videos/v{i}.mp4": clip(tmp_path / f"v{i}.mp4", 1.0).read_bytes() for i in range(count + 1)}
    return {"msvd_test.json": json.dumps(rows).encode(), **made}


def test_two_processes_fetch_and_unpack_once(hub, ask, tmp_path):
    files = videos(tmp_path, 2)
    told = files.pop("msvd_test.json")
    whole = tar_of(files)
    parts = {f"v.tar.part-{i}": whole[i * 4096 : (i + 1) * 4096] for i in range(-(-len(whole) // 4096))}
    serve_set(hub, "msvd", tmp_path, {"msvd_test.json": told, **parts})
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: ask([["msvd", None]])[0], range(2)))
    assert both[0] == both[1]
    assert both[0]["captions"] == [["clip 0", "a clip"], ["clip 1", "a clip"]]
    assert (
        both[0]["source"]
        == f"friedrichor/MSVD test {hub.repositories['datasets', 'friedrichor/MSVD'].commits[-1][0]}"
    )
    asked = [line for line in hub.requests if line.startswith("GET") and "v.tar.part" in line]
    assert len(asked) == len(parts)
    (kept,) = [path for path in (tmp_path / "home/clip-ccs/msvd").iterdir() if path.is_dir()]
    assert len(list(kept.rglob("*.mp4"))) == 3


def test_a_tar_writes_plain_files_below_its_folder_only(tmp_path):
    archive = tmp_path / "sent" / "clips.tar"
    archive.parent.mkdir()
    with tarfile.open(archive, "w") as tar:
        for name, kind in (
            ("in/clip.mp4", tarfile.REGTYPE),
            ("../above.mp4", tarfile.REGTYPE),
            (str(tmp_path / "absolute.mp4"), tarfile.REGTYPE),
            ("linked", tarfile.SYMTYPE),
            ("linked/through.mp4", tarfile.REGTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, str(tmp_path), 4 * (kind == tarfile.REGTYPE)
            tar.addfile(member, io.BytesIO(b"clip"))
    fetching.unpack([archive], tmp_path / "videos")
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"sent/clips.tar", "videos/in/clip.mp4", "videos/linked/through.mp4"}
