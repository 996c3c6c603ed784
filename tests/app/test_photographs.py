"""A model trained on photographs: the app shows it photographs from the Hub, or a message without them."""

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

# fsspec doesn't close its event loop.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")


def noise_image(seed):
    return encode_image(Image.frombytes("RGB", (12, 12), random.Random(seed).randbytes(432)).resize((40, 40)))


@pytest.fixture(scope="module")
def photograph_app(tmp_path_factory, tiny_folder):
    """Make an app whose Hub serves FairFace's labels and photographs of noise."""
    home = tmp_path_factory.mktemp("home")
    photographs = parquet_bytes(image_cells(300, image=noise_image), rows=100)
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setattr(constants, "HF_HOME", str(home))
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(images, "PART_IMAGES", 28)
        patch.setitem(data.SOURCES, RECORD.name, RECORD)
        serve_fairface(hub, noise_image)
        hub.put("datasets", "bitmind/open-image-v7-256", {"data/train-00000-of-00001.parquet": photographs})
        yield make_empty_app(tiny_folder, home)


def render(app, **query):
    """Render the screen of a link; return its main region and the progress messages."""
    html, messages = render_screen(open_screen(app, {"model": "tiny", **query}))
    check_html("".join(html.values()))
    return html["main"], messages


def test_views_open_on_hub_photographs(photograph_app):
    page, messages = render(photograph_app, tab="bias", ablate="L5.H1")
    assert any("Fetching fairface-600" in message for message in messages)
    assert any("embeds 600 images" in message for message in messages)
    for text in ("MaxSkew@60", "FairFace 1.25", "validation)", "CC BY 4.0", "race (seven)</opt"):
        assert text in page
    assert "open-image-v7-256" in render(photograph_app, tab="heads")[0]
    assert "FairFace" in render(photograph_app, tab="start")[0]


@pytest.mark.usefixtures("hub")
def test_missing_hub_photographs_offer_upload(tiny_folder, tmp_path, monkeypatch):
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
