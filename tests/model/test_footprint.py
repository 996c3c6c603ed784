"""The memory that a model takes, known before its weights are read."""

import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import ccs
from ccs.errors import InputError
from ccs.model.loading import footprint as module
from tests.support.checkpoint import write_clip
from tests.support.spoil import part

LOADING = """
import re, sys
import ccs
from ccs.model.loading.sources import OVERHEAD, find_model

def held(what):
    return 1024 * int(re.search(rf"{what}:\\s+(\\d+)", open("/proc/self/status").read())[1])

*_, name = sys.argv
ccs.load("organism").embed_texts(["a"])  # what any model needs
said = find_model(name).memory - OVERHEAD
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = held("VmRSS")
ccs.load(name)
print(said, held("VmHWM") - before)
"""


def test_attention_is_counted_before_anything_is_fetched(tiny_folder, tmp_path, monkeypatch):
    """Few weights may ask for much memory: of each head, tokens by tokens."""
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    vision = part("open_clip_config.json", "model_cfg__vision_cfg")
    vision(width=512, head_width=1, image_size=1024, patch_size=16, layers=4)(folder)
    monkeypatch.setattr(module, "free_memory", lambda: 16 * 10**9)
    with pytest.raises(InputError, match=r"tiny needs about 69\.4 GB of memory, .* has 16\.0 GB free"):
        ccs.load(str(folder))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_more_is_taken_than_is_said(tmp_path):
    """Weights of one byte a value become four; a process of its own tells what it took."""
    model = write_clip(tmp_path, text={"hidden_size": 320})
    weights = tmp_path / "model.safetensors"
    save_file({name: values.to(torch.float8_e4m3fn) for name, values in load_file(weights).items()}, weights)
    output = subprocess.check_output([sys.executable, "-c", LOADING, str(tmp_path)])
    estimate, taken = map(int, output.split())
    assert 4 * sum(values.numel() for values in model.state_dict().values()) < taken < estimate + 2**25
