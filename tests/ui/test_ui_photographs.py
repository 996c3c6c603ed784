"""A model that has seen photographs: real faces and pictures from the Hub, or a word that it has none."""

import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image

from ccs.ui.clicks import act, regions
from ccs.ui.links import open_link
from ccs.ui.service import galleries
from ccs.ui.views.bias_query import BiasQuery
from tests.support import fairface_sample as fairface
from tests.support.datasets_sample import as_parquet, cells, saved
from tests.support.fairface_sample import PATH, RECORD
from tests.support.hub_server import Hub
from tests.support.ui_page import bare_app, check

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")


def noise(seed):
    """A picture of its own for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), np.uint8)
    return saved(Image.fromarray(pixels).resize((40, 40)))


@pytest.fixture(scope="module")
def opened(tmp_path_factory, tiny_folder):
    """With FairFace's labels and photographs of noise on the Hub: a screen on Bias, and the answers."""
    home = tmp_path_factory.mktemp("home")
    images = as_parquet(cells(300, image=noise), rows=100)
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setattr(constants, "HF_HOME", str(home))
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(galleries, "MOST", 28)
        faces = fairface.parquet(fairface.labels_as_listed(), noise)
        hub.put("datasets", "HuggingFaceM4/FairFace", {PATH: faces})
        hub.put("datasets", "bitmind/open-image-v7-256", {"data/train-00000-of-00001.parquet": images})
        screen = open_link(bare_app(tiny_folder, home), {"model": "tiny", "off": "L5.H1", "tab": "bias"})
        yield screen, [html for _, html in act(screen.app, screen.session, {"do": "poll"})]


def shown(app, **query):
    """A screen at a link, and its regions, after all its work."""
    screen = open_link(app, {"model": "tiny", "off": "none", **query})
    list(act(app, screen.session, {"do": "poll"}))
    found = regions(screen)
    check("".join(found.values()))
    return found


def test_bias_opens_on_real_faces_the_first_while_the_others_are_looked_at(opened):
    screen, answers = opened
    app = screen.app
    said = [html.get("status", "") for html in answers]
    assert any("Fetching FairFace" in html for html in said)
    assert any("looks at 600 faces" in html for html in said)
    pages = [html["main"] for html in answers if "main" in html]
    assert "MaxSkew@3" in next(html for html in pages if 'data-name="by-occupation"' in html)
    page = pages[-1]
    check(page)
    assert "MaxSkew@60" in page
    assert "HuggingFaceM4/FairFace 1.25 validation" in page
    assert "CC BY 4.0" in page
    for name in ("gender", "race", "race (seven)", "age"):
        assert f">{name}</option>" in page
    assert "drawn" not in page
    part = BiasQuery.of(app, screen.state).first(80)
    assert (part.k, part.most_k, len(part.gallery.images)) == (8, 40, 80)
    counts = np.unique(part.gallery.groups["race (seven)"], return_counts=True)[1]
    assert set(counts) <= {10, 11, 12, 13}  # balanced, like the whole
    assert app.galleries.part(app.model_cache.get("tiny"), RECORD.name) is None  # the whole is there


@pytest.mark.usefixtures("hub")
def test_a_hub_that_does_not_answer_is_told_and_an_upload_is_offered(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path))
    app = bare_app(tiny_folder, tmp_path)
    page = shown(app, tab="bias")
    assert "was not found on the Hub" in page["main"]
    assert "data-gallery" in page["main"]
    assert "drawn" not in page["main"]
    screen = open_link(app, {"model": "tiny", "off": "none", "tab": "bias"})
    answers = [html for _, html in act(app, screen.session, {"do": "code"})]
    assert "was not found on the Hub" in next(html["top"] for html in answers if "top" in html)
    assert not any("data-code" in html["status"] for html in answers)  # there is no program
    assert "Faces of your own can be ranked" in shown(app, tab="start")["main"]
    page = shown(app, tab="heads")
    assert "was not found on the Hub" in page["main"]
    assert "Where it looks" in page["main"]


def test_heads_and_start_show_photographs(opened):
    app = opened[0].app
    page = shown(app, tab="heads")
    assert page["main"].count("Open Images V7") == 2
    assert "by this head alone" in page["main"]
    assert "drawn" not in page["main"].lower()
    assert "drawn" not in page["left"].lower().partition("panel tray")[2]
    page = shown(app, tab="start")
    assert page["main"].count("<h2") == 1 + 3
    assert "FairFace" in page["main"]
    assert "All heads are on" in page["strip"]
