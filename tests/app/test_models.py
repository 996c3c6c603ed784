"""The list of models, slow downloads, and the start and stop of the app."""

import os
import re
import sys
import time

import pytest
import yaml

from ccs import paper
from ccs.app import jobs, page, session
from ccs.app.services.model_cache import LIVE_MODELS
from ccs.model.loading.sources import find_model, known_encoder
from tests.support.app_fixtures import make_sibling_app, open_screen, render_screen, submit_form
from tests.support.processes import ROOT, start_app


def test_model_list_has_computed_then_live_models(app):
    new_app = make_sibling_app(app, app.collection)
    computed, live = ("organism", "organism-control"), ("organism-planted", "photo", *LIVE_MODELS)
    assert new_app.models == (*computed, *live)
    screen = open_screen(new_app, {"model": "ViT-B-32/openai"})
    html = page.regions(screen, complete=False)
    # Without tables, the grid shows the paper's results before any download.
    assert html["left"].count('class="cell') == 48
    assert len(re.findall('class="cell[^"]* published', html["left"])) == 25
    submit_form(screen, "heads/ablate", ablate=str(screen.records.presets["high CCS"]))
    assert screen.state.ablate == paper.head_sets("ViT-B-32/openai")["high"]


def test_live_models_exist_and_space_preloads_weights():
    import open_clip

    repositories = {name: open_clip.get_pretrained_cfg(*name.split("/"))["hf_hub"] for name in LIVE_MODELS}
    assert all(repositories.values())
    assert all(len(known_encoder(find_model(name)).heads) >= 48 for name in repositories)
    weights = f"{repositories['ViT-B-32/openai'].rstrip('/')} open_clip_model.safetensors"
    front = (ROOT / "README.md").read_text("utf-8").split("---")[1]
    assert yaml.safe_load(front)["preload_from_hub"] == [weights]


def test_slow_download_does_not_block_other_models(app, hub, tiny_folder):
    hub.put("models", "user/tiny", tiny_folder)
    new_app = session.App(app.collection, places=[name := "hf-hub:user/tiny"])
    screen = open_screen(new_app, {"tab": "classify", "model": "organism"})
    hub.faults["resolve/main/open_clip_model"] = lambda _: time.sleep(1)
    submit_form(screen, "model", model=name)

    class CanceledAtFirstRegion(jobs.Job):
        def tell(self, share, doing):
            if self.regions:
                raise jobs.Canceled

    with pytest.raises(jobs.Canceled):
        page.work(screen, job := CanceledAtFirstRegion("", dict))
    assert f"Loading {name}" in job.regions["main"]
    new_app.model_cache.keep("organism", app.model_cache.get("organism").load())
    submit_form(screen, "model", model="organism")
    assert "probability" in render_screen(screen)[0]["main"]
    assert len(new_app.model_cache.get(name).load().heads) == 16  # the download continued


PROGRAM = """
import sys
from ccs import results
from ccs.app import __main__ as entry, server
from ccs.app.controls import open_screen
from ccs.app.page import regions
from ccs.app.session import App, Session

app = App(results.load(None))
for tab in ("start", "bias"):
    assert "judge" in regions(open_screen(app, Session(), {"tab": tab}))["main"]
assert "torch" not in sys.modules
import torch

def work(*_):
    while True:
        torch.rand(500, 500) @ torch.rand(500, 500)

entry.warm = work
raise SystemExit(entry.main([]))
"""


def test_app_opens_without_pytorch_and_stops_during_its_work(tmp_path):
    """Python's normal shutdown during PyTorch's work would end with abort()."""
    env = os.environ | {"CCS_MODEL": "organism", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with start_app(env, (sys.executable, "-u", "-c", PROGRAM)) as (_, output):
        assert "Opens on organism." in output
