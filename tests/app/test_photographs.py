"""A model that has seen photographs: real faces and pictures from the Hub, or a word that it has none."""

import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image

from ccs.app.services import images
from ccs.app.views import VIEWS
from ccs.data import SOURCES
from ccs.errors import InputError
from tests.support.app_page import bare_app, check, finished, opened
from tests.support.datasets_sample import as_parquet, cells, saved
from tests.support.fairface_sample import RECORD, put_faces
from tests.support.hub_server import Hub

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")


def noise(seed):
    """A picture of its own for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), np.uint8)
    return saved(Image.fromarray(pixels).resize((40, 40)))


@pytest.fixture(scope="module")
def fetched(tmp_path_factory, tiny_folder):
    """With FairFace's labels and photographs of noise on the Hub: a screen on Bias, and the answers."""
    home = tmp_path_factory.mktemp("home")
    pictures = as_parquet(cells(300, image=noise), rows=100)
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setattr(constants, "HF_HOME", str(home))
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(images, "MOST", 28)
        patch.setitem(SOURCES, RECORD.name, RECORD)
        put_faces(hub, noise)
        hub.put("datasets", "bitmind/open-image-v7-256", {"data/train-00000-of-00001.parquet": pictures})
        screen = opened(bare_app(tiny_folder, home), {"model": "tiny", "ablate": "L5.H1", "tab": "bias"})
        yield screen, *finished(screen)


def render_screen(app, **query):
    """A screen at a link, and its regions, after all its work."""
    screen = opened(app, {"model": "tiny", **query})
    html, _ = finished(screen)
    check("".join(html.values()))
    return html


def test_bias_opens_on_real_faces(fetched):
    _, page_regions, doings = fetched
    assert any("Fetching fairface-600" in doing for doing in doings)
    assert any("embeds 600 images" in doing for doing in doings)
    check(page := page_regions["main"])
    assert "MaxSkew@60" in page
    assert "HuggingFaceM4/FairFace 1.25 validation" in page
    assert "CC BY 4.0" in page
    assert ">race (seven)</option>" in page


@pytest.mark.usefixtures("hub")
def test_a_hub_that_does_not_answer_is_told_and_an_upload_is_offered(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path))
    app = bare_app(tiny_folder, tmp_path)
    page = render_screen(app, tab="bias")
    assert "was not found on the Hub" in page["main"]
    assert 'form="gallery"' in page["main"]
    assert "drawn" not in page["main"]
    screen = opened(app, {"model": "tiny", "tab": "bias"})
    with pytest.raises(InputError, match="was not found on the Hub"):
        VIEWS["bias"].program(screen)
    assert "You can rank your own faces" in render_screen(app, tab="start")["main"]
    assert "was not found on the Hub" in render_screen(app, tab="heads")["main"]


def test_heads_and_start_show_photographs(fetched):
    app = fetched[0].app
    page = render_screen(app, tab="heads")
    assert "open-image-v7-256" in page["main"]
    page = render_screen(app, tab="start")
    assert "FairFace" in page["main"]
