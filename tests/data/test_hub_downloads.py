"""Datasets downloaded through the `datasets` library from a local server with the Hub's protocol.

huggingface_hub reads the endpoint when it is imported, so each test opens datasets in a new process.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import datasets as hf
import pytest

from ccs.data import SOURCES
from tests.support.datasets_sample import (
    image_cells,
    parquet_bytes,
    tar_bytes,
    webdataset_bytes,
    write_repository,
    write_video,
)
from tests.support.hub_server import Hub, Repository, refuse_request

SCRIPT = """
import json, pickle, sys
from ccs.errors import InputError
from ccs.data.open import open_dataset
from tests.support.datasets_sample import allow_any_size, read_numbers

allow_any_size()
answers = []
for name, max_images in json.load(sys.stdin):
    try:
        # pickled as for the other processes of a run
        data = pickle.loads(pickle.dumps(open_dataset(name, max_images=max_images)))
    except InputError as error:
        answers.append(str(error))
        continue
    answer = {"source": data.source, "fingerprint": data.fingerprint}
    if hasattr(data, "captions"):
        answers.append(answer | {"captions": data.captions})
    else:
        labels = [data.classes[label] for label in data.labels]
        answers.append(answer | {"numbers": read_numbers(data), "labels": labels})
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def hub():
    with Hub() as hub:
        yield hub


def open_in_process(hub, folder, requests, **environment):
    """Opens datasets, given by name and maximum of images, in a new process with its caches in a folder.

    Returns what `SCRIPT` answers: source, fingerprint, and content of each dataset, or the error message.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
    quiet = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
    caches = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home"), "CCS_DATA": str(folder / "data")}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={**inherited, **quiet, **caches, "PYTHONPATH": os.getcwd(), **environment},
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


def read_files(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def serve_dataset(hub, name, tmp_path, files=None):
    """Serves a registered dataset at its revision; without `files`, the few rows of its schema."""
    source = SOURCES[name]
    if files is None:
        files = read_files(write_repository(tmp_path / name, source))
    served = hub.repositories["datasets", source.hub] = Repository(private=False)
    served.tags[source.revision] = served.commit(dict(files), "data")
    return served


UNAVAILABLE = {
    "imagenet-val": "is gated on the Hub: accept its terms at 'ILSVRC/imagenet-1k'",
    "cifar100": "'cifar100' has no column 'label'; its columns are klass.",
    "imagenet-a": "could not be read from 'barkermrl/imagenet-a'",
    "fairface-1.25": "needs a file or revision that 'HuggingFaceM4/FairFace' no longer has",
    "oxford-pets-first-word": "was not found on the Hub as 'pcuenq/oxford-pets'",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the served files and of the caches of `answers`."""
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def answers(hub, folder):
    """The answers of one process by (name, maximum of images), each a list in order of its requests."""
    serve_dataset(hub, "cifar10", folder)
    # A renamed repository: the Hub redirects from the old name.
    hub.repositories["datasets", "new-owner/food101"] = serve_dataset(hub, "food101", folder)
    del hub.repositories["datasets", "ethz/food101"]
    hub.faults["/ethz/food101"] = lambda request: refuse_request(
        307, "moved", Location=request.environ["RAW_URI"].replace("ethz", "new-owner", 1)
    )
    archive = {"test/0.tar": webdataset_bytes([1, 0, 1]), "classnames.txt": b"Andorra\nCanada\n"}
    serve_dataset(hub, "country211", folder, archive).commit({"README.md": b"emptied\n"}, "newer")
    # A gated dataset, another column, no data, and no such revision; oxford-pets has no repository.
    serve_dataset(hub, "imagenet-val", folder, {"data/validation-0.parquet": b"gated"}).gated = True
    features = {"img": hf.Image(), "klass": hf.ClassLabel(names=["a", "b", "c"])}
    changed = write_repository(folder / "changed", SOURCES["cifar100"], features, {"klass": [0, 1, 2]})
    serve_dataset(hub, "cifar100", folder, read_files(changed))
    serve_dataset(hub, "imagenet-a", folder, {"README.md": b"soon\n"})
    serve_dataset(hub, "fairface-1.25", folder, {"README.md": b"# moved\n"}).tags.clear()
    requests = [("cifar10", None), ("food101", 2), ("food101", None), ("food101", 2), ("country211", None)]
    photos = parquet_bytes(image_cells(4), label=["a", "b"] * 2)
    files = {"data/test.parquet": photos, "data/train.parquet": photos, "README.md": b"never downloaded"}
    hub.put("datasets", "user/photos", files)
    requests += [(name, None) for name in ("user/photos", *UNAVAILABLE)]
    by_request = {}
    for request, answer in zip(requests, open_in_process(hub, folder, requests), strict=True):
        by_request.setdefault(request, []).append(answer)
    return by_request


def commit_of(hub, name):
    return hub.repositories["datasets", name].commits[-1].sha


def test_whole_datasets_are_downloaded_and_samples_streamed(hub, answers):
    (cifar,), (food,) = answers["cifar10", None], answers["food101", None]
    assert (cifar["labels"], cifar["numbers"]) == (["cat", "airplane", "truck"], [0, 1, 2])
    assert cifar["source"] == f"uoft-cs/cifar10 plain_text {commit_of(hub, 'uoft-cs/cifar10')} (split test)"
    sample, second_sample = answers["food101", 2]
    assert len(sample["numbers"]) == len(set(sample["numbers"])) == 2
    label_by_number = dict(zip(food["numbers"], food["labels"], strict=True))
    assert label_by_number == {0: "baby back ribs", 1: "apple pie", 2: "baby back ribs"}
    assert [label_by_number[number] for number in sample["numbers"]] == sample["labels"]
    assert second_sample == sample
    (countries,) = answers["country211", None]
    assert (countries["labels"], countries["numbers"]) == (["Canada", "Andorra", "Canada"], [0, 1, 2])
    downloads = [line for line in hub.requests if line.startswith("GET") and line.endswith(".parquet")]
    assert downloads
    assert not [line for line in downloads if "other-" in line]  # of the split that isn't read


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_unavailable_dataset_has_a_clear_error(answers, name):
    (answer,) = answers[name, None]
    assert UNAVAILABLE[name] in answer
    assert "\n" not in answer
    assert name == "cifar100" or f"$CCS_DATA/{name}" in answer


def test_downloaded_dataset_opens_offline(hub, folder, answers):
    requests = [["user/photos", None], ["user/photos:train", None]]
    offline, missing_split = open_in_process(hub, folder, requests, HF_HUB_OFFLINE="1")
    assert answers["user/photos", None] == [offline]
    assert "has no split 'train'; it has test" in missing_split


def test_two_processes_join_an_archive_of_videos_once(hub, tmp_path):
    entries = [{"video": f"v{i}.mp4", "caption": [f"clip {i}", "a clip"]} for i in range(2)]
    video = write_video(tmp_path / "v.mp4", 1.0).read_bytes()
    archive = tar_bytes({f"videos/v{i}.mp4": video for i in range(3)})
    parts = {f"v.tar.part-{i}": archive[i * 4096 : (i + 1) * 4096] for i in range(-(-len(archive) // 4096))}
    serve_dataset(hub, "msvd", tmp_path, {"msvd_test.json": json.dumps(entries).encode(), **parts})
    with ThreadPoolExecutor(2) as pool:
        (first,), (second,) = pool.map(lambda _: open_in_process(hub, tmp_path, [["msvd", None]]), range(2))
    assert first == second
    assert first["captions"] == [["clip 0", "a clip"], ["clip 1", "a clip"]]
    assert first["source"] == f"friedrichor/MSVD {commit_of(hub, 'friedrichor/MSVD')}"
    downloads = [line for line in hub.requests if line.startswith("GET") and "v.tar.part" in line]
    assert len(downloads) == len(parts)
    (joined,) = (tmp_path / "home/clip-ccs/msvd").rglob("v.tar")
    assert joined.read_bytes() == archive
