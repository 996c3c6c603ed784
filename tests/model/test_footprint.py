"""The memory that a model takes, known before its weights are read."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoint import write_clip

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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_more_is_taken_than_is_said(tmp_path):
    """Weights of one byte a value become four; a process of its own tells what it took."""
    model = write_clip(tmp_path, text={"hidden_size": 320})
    weights = tmp_path / "model.safetensors"
    save_file({name: values.to(torch.float8_e4m3fn) for name, values in load_file(weights).items()}, weights)
    output = subprocess.check_output([sys.executable, "-c", LOADING, str(tmp_path)])
    estimate, taken = map(int, output.split())
    assert 4 * sum(values.numel() for values in model.state_dict().values()) < taken < estimate + 2**25
