"""The cost of a model before it is fetched, from a local Hub, and the models that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ccs
from ccs.errors import InputError
from ccs.model import offer
from ccs.model.offer import look, size_sentence
from tests.support.hub_server import Hub, Repository
from tests.support.spoil import says

LARGE = {"width": 512, "head_width": 1, "image_size": 1024, "patch_size": 16, "layers": 4}
WEIGHTS = "open_clip_model.safetensors"
OPENAI = "timm/vit_base_patch32_clip_224.openai"


def put(hub: Hub, name: str, files: dict[str, bytes], **about: bool) -> None:
    repository = hub.repositories["models", name] = Repository(False, **about)  # type: ignore[arg-type]
    repository.commit(files, "made")


def test_the_size_of_a_listed_model_is_asked_and_nothing_is_fetched(hub: Hub) -> None:
    put(hub, OPENAI, {WEIGHTS: bytes(1000), "open_clip_pytorch_model.bin": bytes(3000)})
    found = look("ViT-B-32/openai")
    assert (found.size, found.here) == (1000, False)
    assert [str(found.heads)[:5], len(found.heads)] == ["L8.H0", 48]
    assert size_sentence("ViT-B-32/openai").startswith(
        "ViT-B-32/openai: 48 heads to switch off, 0 MB to fetch"
    )
    assert not [request for request in hub.requests if "resolve" in request]


def test_a_repository_that_a_visitor_names_is_checked(hub: Hub, tiny_folder: Path) -> None:
    config = {"open_clip_config.json": (tiny_folder / "open_clip_config.json").read_bytes()}
    put(hub, "user/good", {**config, WEIGHTS: bytes(500)})
    put(hub, "user/pickled", {**config, "open_clip_pytorch_model.bin": bytes(500)})
    put(hub, "user/gated", {**config, WEIGHTS: bytes(500)}, gated=True)
    put(hub, "user/strange", {"open_clip_config.json": b'{"model_cfg": {"evil": 1}}', WEIGHTS: bytes(500)})
    hub.repositories["models", "user/private"] = Repository(True)
    hub.repositories["models", "user/private"].commit({**config, WEIGHTS: bytes(500)}, "made")
    found = look("hf-hub:user/good", anonymous=True)
    assert (found.size, len(found.heads)) == (500, 16)
    for name, words in {
        "pickled": "holds no safetensors",
        "gated": "is gated",
        "strange": "there is no 'vision_cfg'",
        "private": "there is no such public repository",  # this machine's token is not used for strangers
        "nothing": "there is no such public repository",
    }.items():
        with pytest.raises(InputError, match=words):
            look(f"hf-hub:user/{name}", anonymous=True)
    assert not [request for request in hub.requests if WEIGHTS in request]


def test_what_is_at_hand_needs_no_hub(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    found = look(str(tiny_folder))
    assert found.here
    assert size_sentence(str(tiny_folder)) == ""
    assert found.size == (tiny_folder / WEIGHTS).stat().st_size
    assert look("organism").here


def test_attention_is_counted_before_anything_is_fetched(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few weights may ask for much memory: of each head, tokens by tokens."""
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    says(
        "open_clip_config.json",
        **{f"model_cfg__vision_cfg__{name}": value for name, value in LARGE.items()},
    )(folder)
    monkeypatch.setattr(offer, "free_memory", lambda: 16 * 10**9)
    assert look(str(folder)).attention == 2 * 4 * 512 * 4097**2
    with pytest.raises(InputError, match=r"tiny needs about 68\.8 GB of memory, .* has 16\.0 GB free"):
        ccs.load(str(folder))
