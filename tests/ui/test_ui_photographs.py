"""A model that has seen photographs: real faces and pictures from the Hub, or a word that it has none."""

import io

import numpy as np
import pytest
from PIL import Image

from ccs import results
from ccs.heads import HeadSet
from ccs.measures.accuracy import class_weights
from ccs.measures.skew import max_skew
from ccs.sets.strangers import listed_rows
from ccs.ui.clicks import act, regions
from ccs.ui.links import open_link
from ccs.ui.service import galleries
from ccs.ui.session import App
from ccs.ui.state import State
from ccs.ui.views.bias_query import BiasQuery, embedded
from tests.sets.test_photographs import parquet
from tests.support import fairface_sample
from tests.support.fairface_sample import PATH, RECORD
from tests.support.tiny_model import write_tiny_model
from tests.support.ui_page import check

# fsspec leaves its event loop to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")


def noise(seed):
    """A picture of its own for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).resize((40, 40)).save(data := io.BytesIO(), "PNG")
    return data.getvalue()


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    folder, none = write_tiny_model(tmp_path / "tiny"), tmp_path / "none"
    none.mkdir()
    return App(results.load(none), tmp_path, given=[str(folder)], first=str(folder))


@pytest.fixture
def photographs(hub):
    """On the Hub: FairFace's labels, and photographs, of noise."""
    labels = fairface_sample.labels_as_listed()
    hub.put("datasets", "HuggingFaceM4/FairFace", {PATH: fairface_sample.parquet(labels, noise)})
    images = parquet([{"bytes": noise(i), "path": None} for i in range(300)], rows=100)
    hub.put("datasets", "bitmind/open-image-v7-256", {"data/train-00000-of-00001.parquet": images})


def shown(app, **query):
    """A session at a link after all its work, its regions, and what was said meanwhile."""
    screen = open_link(app, {"model": "tiny", "off": "none", **query})
    said, regions = [], dict[str, str]()
    for _, html in act(app, screen.session, {"do": "poll"}):
        said.append(html.get("status", ""))
        regions |= html
    for html in regions.values():
        check(html)
    return screen, regions, said


@pytest.mark.usefixtures("photographs")
def test_bias_opens_on_real_faces_with_their_source(app):
    screen, page, said = shown(app, tab="bias", off="L5.H1")
    assert any("Fetching FairFace" in html for html in said)
    assert any("looks at 600 faces" in html for html in said)
    assert "HuggingFaceM4/FairFace 1.25 validation" in page["main"]
    assert "CC BY 4.0" in page["main"]
    for name in ("gender", "race", "race (seven)", "age"):
        assert f">{name}</option>" in page["main"]
    assert "drawn" not in page["main"]
    # Against the model, the listed rows' pictures and the plain formula.
    query, model = BiasQuery.of(app, screen.state), app.model_cache.get("tiny")
    images = [Image.open(io.BytesIO(noise(row))) for row in listed_rows(RECORD)]
    texts = class_weights(model, query.occupations, query.gallery.templates)
    groups = query.gallery.groups["gender"]
    pool = {name: int((groups == name).sum()) for name in set(groups)}
    scores = texts @ model.embed_images(images, HeadSet.parse("L5.H1")).T
    slow = [max_skew([groups[i] for i in np.argsort(-row)], pool, query.k) for row in scores]
    found = embedded(app, model, query, screen.state.off)
    np.testing.assert_allclose(query.measure(*found[1:], texts, 1.0)[1].max_skew.values, slow, atol=1e-9)


@pytest.mark.usefixtures("photographs")
def test_the_first_faces_are_shown_while_the_others_are_looked_at(app, monkeypatch):
    monkeypatch.setattr(galleries, "MOST", 28)
    screen = open_link(app, {"model": "tiny", "off": "L5.H1", "tab": "bias"})
    pages = [html["main"] for _, html in act(app, screen.session, {"do": "poll"}) if "main" in html]
    first = next(html for html in pages if 'data-name="by-occupation"' in html)
    assert "MaxSkew@3" in first
    assert "MaxSkew@60" in pages[-1]
    model = app.model_cache.get("tiny")
    whole = BiasQuery.of(app, State(model="tiny"))
    part = whole.first(80)
    assert (part.k, part.most_k, len(part.gallery.images)) == (8, 40, 80)
    counts = np.unique(part.gallery.groups["race (seven)"], return_counts=True)[1]
    assert set(counts) <= {10, 11, 12, 13}  # balanced, like the whole
    assert app.galleries.part(model, RECORD.name) is None  # the whole is there


def test_a_hub_that_does_not_answer_is_told_and_an_upload_is_offered(app, hub):
    hub.repositories.clear()
    _, page, _ = shown(app, tab="bias")
    assert "was not found on the Hub" in page["main"]
    assert "data-gallery" in page["main"]
    assert "drawn" not in page["main"]
    _, page, _ = shown(app, tab="start")
    assert "Faces of your own can be ranked" in page["main"]
    _, page, _ = shown(app, tab="heads")
    assert "was not found on the Hub" in page["main"]
    assert "Where it looks" in page["main"]


@pytest.mark.usefixtures("photographs")
def test_heads_and_start_show_photographs(app):
    _, page, _ = shown(app, tab="heads")
    assert page["main"].count("Open Images V7") == 2
    assert "by this head alone" in page["main"]
    assert "drawn" not in page["main"].lower()
    assert "drawn" not in page["left"].lower().partition("panel tray")[2]
    screen, page, _ = shown(app, tab="start")
    assert page["main"].count("<h2") == 1 + 3
    assert "FairFace" in page["main"]
    assert regions(screen)["main"] == page["main"]
    assert "All heads are on" in page["strip"]
