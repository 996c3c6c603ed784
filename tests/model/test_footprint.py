"""What a model takes before it is fetched, from a local Hub."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ccs
from ccs.errors import InputError
from ccs.model.loading import footprint as module
from ccs.model.loading.footprint import footprint, strangers_footprint
from tests.support.hub_server import Hub, Repository
from tests.support.spoil import says

LARGE = {"width": 512, "head_width": 1, "image_size": 1024, "patch_size": 16, "layers": 4}
WEIGHTS = "open_clip_model.safetensors"


def test_the_size_of_a_listed_model_is_asked_and_nothing_is_fetched(hub: Hub) -> None:
    repository = Repository(False)
    hub.repositories["models", "timm/vit_base_patch32_clip_224.openai"] = repository
    repository.commit({WEIGHTS: bytes(2_000_000), "open_clip_pytorch_model.bin": bytes(3000)}, "made")
    found = footprint("ViT-B-32/openai")
    assert (found.size, found.here) == (2_000_000, False)
    assert found.sentence.startswith("ViT-B-32/openai: 2 MB to fetch, and ")
    assert not [request for request in hub.requests if "resolve" in request]


def test_a_repository_that_a_visitor_names_is_checked(hub: Hub, tiny_folder: Path) -> None:
    config = {"open_clip_config.json": (tiny_folder / "open_clip_config.json").read_bytes()}
    strange = {"open_clip_config.json": b'{"model_cfg": {"evil": 1}}', WEIGHTS: bytes(500)}
    hub.put("models", "user/good", {**config, WEIGHTS: bytes(500)})
    hub.put("models", "user/pickled", {**config, "open_clip_pytorch_model.bin": bytes(500)})
    hub.put("models", "user/gated", {**config, WEIGHTS: bytes(500)})
    hub.put("models", "user/strange", strange)
    hub.put("models", "user/private", {**config, WEIGHTS: bytes(500)})
    hub.repositories["models", "user/gated"].gated = True
    hub.repositories["models", "user/private"].private = True
    assert strangers_footprint("hf-hub:user/good").size == 500
    for name, words in {
        "hf-hub:user/pickled": "holds no safetensors",
        "hf-hub:user/gated": "is gated",
        "hf-hub:user/strange": "there is no 'vision_cfg'",
        "hf-hub:user/private": "there is no such public repository",  # no token is used for strangers
        "hf-hub:user/nothing": "there is no such public repository",
        str(tiny_folder): "There is no model",
    }.items():
        with pytest.raises(InputError, match=words):
            strangers_footprint(name)
    assert not [request for request in hub.requests if WEIGHTS in request]


def test_what_is_at_hand_needs_no_hub(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    found = footprint(str(tiny_folder))
    assert (found.here, found.size) == (True, (tiny_folder / WEIGHTS).stat().st_size)
    assert footprint("organism").here
    assert footprint("ViT-B-32/random").here
    assert footprint("ViT-B-32/openai").size == 0  # whoever loads it is told why


def test_attention_is_counted_before_anything_is_fetched(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few weights may ask for much memory: of each head, tokens by tokens."""
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    large = {f"model_cfg__vision_cfg__{name}": value for name, value in LARGE.items()}
    says("open_clip_config.json", **large)(folder)
    monkeypatch.setattr(module, "free_memory", lambda: 16 * 10**9)
    with pytest.raises(InputError, match=r"tiny needs about 68\.8 GB of memory, .* has 16\.0 GB free"):
        ccs.load(str(folder))
