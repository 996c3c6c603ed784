"""A model that has seen photographs: real faces and pictures from the Hub, or a word that it has none."""

import random

import pytest
from huggingface_hub import constants
from PIL import Image

from ccs import data, errors
from ccs.app.services import images
from ccs.app.views import VIEWS
from tests.support.app_fixtures import check_html, make_empty_app, open_screen, render_screen
from tests.support.datasets_sample import encode_image, image_cells, parquet_bytes
from tests.support.fairface_sample import RECORD, serve_fairface
from tests.support.hub_server import Hub

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")


def noise(seed):
    """A picture of its own for each seed."""
    return encode_image(Image.frombytes("RGB", (12, 12), random.Random(seed).randbytes(432)).resize((40, 40)))


@pytest.fixture(scope="module")
def fetched(tmp_path_factory, tiny_folder):
    """With FairFace's labels and photographs of noise on the Hub."""
    home = tmp_path_factory.mktemp("home")
    pictures = parquet_bytes(image_cells(300, image=noise), rows=100)
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setattr(constants, "HF_HOME", str(home))
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(images, "PART_IMAGES", 28)
        patch.setitem(data.SOURCES, RECORD.name, RECORD)
        serve_fairface(hub, noise)
        hub.put("datasets", "bitmind/open-image-v7-256", {"data/train-00000-of-00001.parquet": pictures})
        yield make_empty_app(tiny_folder, home)


def render(app, **query):
    """What a screen at a link shows after all its work."""
    html, doings = render_screen(open_screen(app, {"model": "tiny", **query}))
    check_html("".join(html.values()))
    return html["main"], doings


def test_bias_heads_and_start_open_on_photographs(fetched):
    page, doings = render(fetched, tab="bias", ablate="L5.H1")
    assert any("Fetching fairface-600" in doing for doing in doings)
    assert any("embeds 600 images" in doing for doing in doings)
    for words in ("MaxSkew@60", "FairFace 1.25", "validation)", "CC BY 4.0", "race (seven)</opt"):
        assert words in page
    assert "open-image-v7-256" in render(fetched, tab="heads")[0]
    assert "FairFace" in render(fetched, tab="start")[0]


@pytest.mark.usefixtures("hub")
def test_a_hub_that_does_not_answer_is_told_and_an_upload_is_offered(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path))
    app = make_empty_app(tiny_folder, tmp_path)
    page, _ = render(app, tab="bias")
    assert "was not found on the Hub" in page
    assert 'form="gallery"' in page
    assert "drawn" not in page
    with pytest.raises(errors.InputError, match="was not found on the Hub"):
        VIEWS["bias"].program(open_screen(app, {"model": "tiny", "tab": "bias"}))
    assert "You can rank your own faces" in render(app, tab="start")[0]
    assert "was not found on the Hub" in render(app, tab="heads")[0]
