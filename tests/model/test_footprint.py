"""What a model takes before it is fetched, from a local Hub."""

import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import ccs
from ccs.errors import InputError
from ccs.model.loading import footprint as module
from ccs.model.loading.footprint import footprint
from tests.support.checkpoint import write_clip
from tests.support.spoil import part

WEIGHTS = "open_clip_model.safetensors"
LOADING = """
import re, sys
import ccs
from ccs.model.loading.footprint import OVERHEAD, footprint

def held(what):
    return 1024 * int(re.search(rf"{what}:\\s+(\\d+)", open("/proc/self/status").read())[1])

*_, name = sys.argv
ccs.load("organism").embed_texts(["a"])  # what any model needs
said = footprint(name).memory - OVERHEAD
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = held("VmRSS")
ccs.load(name)
print(said, held("VmHWM") - before)
"""


def test_the_size_of_a_listed_model_is_asked_and_nothing_is_fetched(hub):
    files = {WEIGHTS: bytes(2_000_000), "open_clip_pytorch_model.bin": bytes(3000)}
    hub.put("models", "timm/vit_base_patch32_clip_224.openai", files)
    size = footprint("ViT-B-32/openai")
    assert (size.size, size.here) == (2_000_000, False)
    assert not [request for request in hub.requests if "resolve" in request]


def test_what_is_at_hand_needs_no_hub(tiny_folder, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    size = footprint(str(tiny_folder))
    assert (size.here, size.size) == (True, (tiny_folder / WEIGHTS).stat().st_size)
    assert footprint("organism").here
    assert footprint("ViT-B-32/openai").size == 0  # whoever loads it is told why


def test_attention_is_counted_before_anything_is_fetched(tiny_folder, tmp_path, monkeypatch):
    """Few weights may ask for much memory: of each head, tokens by tokens."""
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    vision = part("open_clip_config.json", "model_cfg__vision_cfg")
    vision(width=512, head_width=1, image_size=1024, patch_size=16, layers=4)(folder)
    monkeypatch.setattr(module, "free_memory", lambda: 16 * 10**9)
    with pytest.raises(InputError, match=r"tiny needs about 68\.8 GB of memory, .* has 16\.0 GB free"):
        ccs.load(str(folder))


def test_what_is_measured_is_what_is_read(hub, tmp_path, monkeypatch):
    """A decoy beside the weights, and half of the bytes: four a value are taken, and the file."""
    model = write_clip(tmp_path)
    weights = tmp_path / "model.safetensors"
    save_file({name: value.half() for name, value in load_file(weights).items()}, weights)
    (tmp_path / WEIGHTS).write_bytes(bytes(8))
    hub.put("models", "user/decoy", tmp_path)
    size = footprint("hf-hub:user/decoy")
    values = sum(values.numel() for values in model.state_dict().values())
    assert size.size == weights.stat().st_size
    assert size.memory >= 4 * values + size.size + module.OVERHEAD
    monkeypatch.setattr(module, "free_memory", lambda: size.memory - size.size)
    with pytest.raises(InputError, match="GB of memory, and this machine has"):  # whatever was said before
        ccs.load("hf-hub:user/decoy")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_more_is_taken_than_is_said(tmp_path):
    """Weights of one byte a value become four; a process of its own tells what it took."""
    model = write_clip(tmp_path, text={"hidden_size": 320})
    weights = tmp_path / "model.safetensors"
    save_file({name: values.to(torch.float8_e4m3fn) for name, values in load_file(weights).items()}, weights)
    output = subprocess.check_output([sys.executable, "-c", LOADING, str(tmp_path)])
    estimate, taken = map(int, output.split())
    assert 4 * sum(values.numel() for values in model.state_dict().values()) < taken < estimate + 2**25
