"""Sets read through the real `datasets` library from a server that speaks the Hub's protocol.

The endpoint is read when huggingface_hub is imported, so every case runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ccs.data import SOURCES
from tests.support.datasets_sample import as_parquet, cells, clip, repository, schemas, tar_of, webdataset
from tests.support.hub_server import Hub, Repository, refuse

OPEN = """
import json, pickle, sys
from ccs.errors import InputError
from ccs.data.open import open_dataset
from tests.support.datasets_sample import allow_any_size

allow_any_size()
answers = []
for name, limit in json.load(sys.stdin):
    try:
        data = open_dataset(name, max_images=limit)
        data = pickle.loads(pickle.dumps(data))  # as a run's other processes get it
    except InputError as error:
        answers.append(str(error))
        continue
    answer = {"source": data.source, "fingerprint": data.fingerprint}
    if hasattr(data, "images"):
        answer["shown"] = [image.getpixel((0, 0))[0] // 5 for image in data.images]
    if hasattr(data, "classes"):
        answer["labels"] = [data.classes[label] for label in data.labels]
    if hasattr(data, "captions"):
        answer["captions"] = data.captions
    answers.append(answer)
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def hub():
    with Hub() as hub:
        yield hub


def ask(hub, folder, requests, **environment):
    """The answers of `OPEN` for these sets, with the server as the Hub and the caches in this folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
    quiet = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
    places = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home"), "CCS_DATA": str(folder / "data")}
    places["PYTHONPATH"] = os.getcwd()
    process_options = {"env": {**inherited, **quiet, **places, **environment}, "input": json.dumps(requests)}
    command = [sys.executable, "-W", "ignore", "-c", OPEN]
    done = subprocess.run(command, **process_options, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


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
    served.tags[source.revision] = served.commit(dict(files), "data")
    return served


REFUSED = {
    "imagenet-val": "is gated on the Hub: accept its terms at 'ILSVRC/imagenet-1k'",
    "cifar100": "'cifar100' has no column 'label'; its columns are klass.",
    "imagenet-a": "could not be read from 'barkermrl/imagenet-a'",
    "fairface-1.25": "needs a file or revision that 'HuggingFaceM4/FairFace' no longer has",
    "oxford-pets-first-word": "was not found on the Hub as 'pcuenq/oxford-pets'",
}


def serve_refused(hub, folder):
    """A gated set, changed columns, a repository without data, a revision that is gone."""
    serve_set(hub, "imagenet-val", folder, {"data/validation-0.parquet": b"gated"}).gated = True
    features, _ = schemas()["cifar100"]
    features = {"img": features["img"], "klass": features["fine_label"]}
    changed = repository(folder / "changed", SOURCES["cifar100"], features, {"klass": [0, 1, 2]})
    serve_set(hub, "cifar100", folder, files_of(changed))
    serve_set(hub, "imagenet-a", folder, {"README.md": b"soon\n"})
    serve_set(hub, "fairface-1.25", folder, {"README.md": b"# moved\n"}).tags.clear()


@pytest.fixture(scope="module")
def served_answers(hub, tmp_path_factory):
    """The answers of one process by (name, limit), in order, and its requests for Parquet files."""
    folder = tmp_path_factory.mktemp("served")
    serve_set(hub, "cifar10", folder)
    # Renamed on the Hub: the old name leads to the new one, as a browser and git are led too.
    hub.repositories["datasets", "new-owner/food101"] = serve_set(hub, "food101", folder)
    del hub.repositories["datasets", "ethz/food101"]
    hub.faults["/ethz/food101"] = lambda request: refuse(
        307, "moved", Location=request.environ["RAW_URI"].replace("ethz", "new-owner", 1)
    )
    archive = {"test/0.tar": webdataset([1, 0, 1]), "classnames.txt": b"Andorra\nCanada\n"}
    served = serve_set(hub, "country211", folder, archive)
    served.commit({"README.md": b"emptied since\n"}, "later")  # it is read at its revision
    serve_refused(hub, folder)
    requests = [("cifar10", None), ("food101", 2), ("food101", None), ("food101", 2), ("country211", None)]
    requests += [(name, None) for name in REFUSED]
    hub.requests.clear()
    answers = ask(hub, folder, requests)
    lines = [line for line in hub.requests if line.startswith("GET") and line.endswith(".parquet")]
    return {
        request: [a for of, a in zip(requests, answers, strict=True) if of == request] for request in requests
    }, lines


def sha_of(hub, name):
    return hub.repositories["datasets", name].commits[-1][0]


def test_a_set_is_downloaded_and_part_of_a_large_one_streamed(hub, served_answers):
    answers, fetched = served_answers
    (whole,), (all_of_it,) = answers["cifar10", None], answers["food101", None]
    assert (whole["labels"], whole["shown"]) == (["cat", "airplane", "truck"], [0, 1, 2])
    assert whole["source"] == f"uoft-cs/cifar10 plain_text {sha_of(hub, 'uoft-cs/cifar10')} (split test)"
    # Whichever two rows the shuffled stream gave: image and label belong together.
    streamed, again = answers["food101", 2]
    assert len(streamed["shown"]) == len(set(streamed["shown"])) == 2
    names = dict(zip(all_of_it["shown"], all_of_it["labels"], strict=True))
    assert names == {0: "baby back ribs", 1: "apple pie", 2: "baby back ribs"}
    assert [names[number] for number in streamed["shown"]] == streamed["labels"]
    assert again == streamed
    (countries,) = answers["country211", None]
    assert (countries["labels"], countries["shown"]) == (["Canada", "Andorra", "Canada"], [0, 1, 2])
    # The other split was never asked for.
    assert fetched
    assert not [line for line in fetched if "other-" in line]


@pytest.mark.parametrize("name", REFUSED)
def test_every_refusal_is_a_sentence(served_answers, name):
    (answer,) = served_answers[0][name, None]
    assert REFUSED[name] in answer
    assert "\n" not in answer
    assert name == "cifar100" or f"$CCS_DATA/{name}" in answer


def test_a_set_downloaded_earlier_is_read_without_a_connection(hub, tmp_path):
    files = {
        f"data/{split}.parquet": as_parquet(cells(4), label=["a", "b"] * 2) for split in ("test", "train")
    }
    hub.put("datasets", "user/photos", {**files, "README.md": b"never downloaded"})
    requests = [["user/photos", None], ["user/photos:train", None]]
    (fetched,) = ask(hub, tmp_path, requests[:1])
    again, missing = ask(hub, tmp_path, requests, HF_HUB_OFFLINE="1")
    assert fetched == again
    assert "has no split 'train'; it has test" in missing


def test_two_processes_read_videos_from_an_archive_in_parts(hub, tmp_path):
    entries = [{"video": f"v{i}.mp4", "caption": [f"clip {i}", "a clip"]} for i in range(2)]
    whole = tar_of({f"videos/v{i}.mp4": clip(tmp_path / f"v{i}.mp4", 1.0).read_bytes() for i in range(3)})
    parts = {f"v.tar.part-{i}": whole[i * 4096 : (i + 1) * 4096] for i in range(-(-len(whole) // 4096))}
    serve_set(hub, "msvd", tmp_path, {"msvd_test.json": json.dumps(entries).encode(), **parts})
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: ask(hub, tmp_path, [["msvd", None]])[0], range(2)))
    assert answers[0] == answers[1]
    assert answers[0]["captions"] == [["clip 0", "a clip"], ["clip 1", "a clip"]]
    assert answers[0]["source"] == f"friedrichor/MSVD {sha_of(hub, 'friedrichor/MSVD')}"
    requested = [line for line in hub.requests if line.startswith("GET") and "v.tar.part" in line]
    assert len(requested) == len(parts)
    (joined,) = (tmp_path / "home/clip-ccs/msvd").rglob("v.tar")
    assert joined.read_bytes() == whole
