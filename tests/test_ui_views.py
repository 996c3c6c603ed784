"""What the views compute and show, without a browser: against the library, and against slow, obvious code."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch
from PIL import Image

import app as entry
import ccs
from ccs import bias as measures
from ccs import results
from ccs.datasets.sets import BiasSet
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.models import Model
from ccs.ui import (
    actions,
    attention,
    bias,
    charts,
    classify,
    core,
    driving,
    left,
    opening,
    plans,
    snippet,
    task,
)
from ccs.ui.api import Endpoints
from ccs.ui.core import App
from ccs.ui.galleries import Galleries
from ccs.ui.interface import actor
from ccs.ui.labelled import open_gallery
from ccs.ui.parts import csv_text
from ccs.ui.pictures import load_example
from ccs.ui.session import Session
from ccs.ui.shelf import Shelf
from ccs.world import sets
from ccs.zeroshot import class_weights
from tests import ui_sample

SMALL = "small/faces"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Model:
    return ccs.load("organism")


def small_gallery(n: int = 40) -> BiasSet:
    whole = sets.bias_set("faces")
    groups = {name: labels[:n] for name, labels in whole.groups.items()}
    drawn = sets.Drawn(whole.images.scenes[:n])  # type: ignore[attr-defined]
    return replace(whole, name=SMALL, images=drawn, groups=groups, k={"gender": 10, "skin tone": 10})


@pytest.fixture(scope="module")
def app(model: Model, tmp_path_factory: pytest.TempPathFactory) -> App:
    folder = tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", model.weights_hash)
    ui_sample.write(folder, "organism-control", "f" * 64, seed=1)
    found = App(results.load(folder), tmp_path_factory.mktemp("uploads"), Galleries([small_gallery()]))
    found.shelf = Shelf()
    found.shelf._models["organism"] = model
    return found


@pytest.fixture
def session(app: App) -> Session:
    return opening.open_link(app, {"tab": "classify", "model": "organism", "off": "L6.H1 L7.H2"})


class Strict(HTMLParser):
    """Raises where an element is closed that was not the last to be opened."""

    VOID = ("br", "img", "input", "path", "line", "rect", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def check(html: str) -> None:
    parser = Strict()
    parser.feed(html)
    assert parser.open == []


# -- exactness ---------------------------------------------------------------------


def test_classify_is_the_softmax_of_scaled_cosines(app: App, session: Session, model: Model) -> None:
    classes, found, moved = classify.measure(session, model)
    example = load_example("")
    images = [picture.image for picture in example.pictures]
    weights = class_weights(model, example.classes, example.templates)
    for off, ours in ((HeadSet(), found.before), (session.state.off, found.after)):
        logits = torch.from_numpy(model.logit_scale * model.embed_images(images, off) @ weights.T)
        np.testing.assert_allclose(ours, logits.softmax(1).numpy(), atol=1e-5)
    assert classes == example.classes
    assert np.abs(found.before - found.after).max() > 1e-4
    assert np.all(moved < 1)


def test_ranks_and_margins() -> None:
    found = classify.Comparison(np.array([[0.2, 0.5, 0.3]]), np.array([[0.4, 0.4, 0.2]]))
    assert found.ranks(False).tolist() == [[3, 1, 2]]
    assert found.ranks(True).tolist() == [[1, 2, 3]]
    np.testing.assert_allclose(found.margin(False), [0.2])
    np.testing.assert_allclose(found.margin(True), [0.0])


@pytest.mark.parametrize("head", [Head(4, 0), Head(6, 5), Head(7, 3)])
def test_attention_is_that_of_torch(model: Model, head: Head) -> None:
    images = [picture.image for picture in load_example("").pictures[:2]]
    captured: dict[int, torch.Tensor] = {}
    blocks = model.clip.visual.transformer.resblocks
    hooks = [
        block.register_forward_pre_hook(lambda _, args, layer=layer: captured.__setitem__(layer, args[0]))
        for layer, block in enumerate(blocks)
    ]
    with torch.no_grad():
        model.clip.encode_image(model.preprocess(images))
        block = blocks[head.layer]
        x = block.ln_1(captured[head.layer])
        _, weights = block.attn(x, x, x, need_weights=True, average_attn_weights=False)
    for hook in hooks:
        hook.remove()
    ours = attention.cls_attention(model.tower, model.trunk(images), head)
    np.testing.assert_allclose(ours, weights[:, head.head, 0].numpy(), atol=1e-5)


def test_attention_sees_heads_that_are_off(model: Model) -> None:
    trunk = model.trunk([load_example("").pictures[0].image])
    plain = attention.cls_attention(model.tower, trunk, Head(7, 0))
    below = attention.cls_attention(model.tower, trunk, Head(7, 0), HeadSet([Head(5, 1)]))
    same = attention.cls_attention(model.tower, trunk, Head(7, 0), HeadSet([Head(7, 1)]))
    assert np.abs(plain - below).max() > 1e-5
    np.testing.assert_array_equal(plain, same)


def test_extremes_are_the_ends_of_the_ranking() -> None:
    rng = np.random.default_rng(0)
    direct, text = rng.normal(size=(30, 8)), rng.normal(size=8)
    found = driving.extremes(direct, text, 4)
    scores = [float((row - direct.mean(0)) @ text) for row in direct]
    order = sorted(range(30), key=lambda i: -scores[i])
    assert [i for i, _ in found.most] == order[:4]
    assert [i for i, _ in found.least] == order[::-1][:4]
    np.testing.assert_allclose(found.most[0][1], scores[order[0]] / np.std(scores))


def test_galleries_agree_with_the_forward_pass(app: App, model: Model) -> None:
    off = HeadSet.parse("L5.H2 L7.H1")
    images = [app.galleries.image(SMALL, i) for i in range(40)]
    np.testing.assert_allclose(app.galleries.base(model, SMALL), model.embed_images(images), atol=1e-5)
    exact = app.galleries.embeddings(model, SMALL, off)
    np.testing.assert_allclose(exact, model.embed_images(images, off), atol=1e-5)
    assert app.galleries.ready(model, SMALL, off)
    assert app.galleries.estimate(model, SMALL, off) is None
    assert list(app.galleries.collect(model, SMALL))[-1] == 1.0
    estimate = app.galleries.estimate(model, SMALL, off)
    direct = model.contributions(images).direct
    slow = model.embed_images(images) - sum(direct[:, h.layer, h.head] for h in off)
    np.testing.assert_allclose(estimate, slow / np.linalg.norm(slow, axis=1, keepdims=True), atol=1e-5)
    assert np.abs(estimate - exact).max() > 1e-4  # an estimate, and not the answer


def test_bias_figures_are_those_of_the_library(app: App, model: Model) -> None:
    session = opening.open_link(
        app, {"tab": "bias", "off": "L6.H1", "gallery": SMALL, "occupations": "judge\npoet"}
    )
    what = bias.asked(app, session)
    assert (what.k, what.attribute, what.occupations) == (10, "gender", ("judge", "poet"))
    rows = class_weights(model, what.occupations, what.gallery.templates)
    images = [app.galleries.image(SMALL, i) for i in range(40)]
    first, second = bias.measure(
        app.galleries.base(model, SMALL),
        app.galleries.embeddings(model, SMALL, session.state.off),
        rows,
        what,
    )
    groups = what.gallery.groups["gender"]
    pool = {group: int((groups == group).sum()) for group in sorted(set(groups))}
    for result, off in ((first, HeadSet()), (second, session.state.off)):
        scores = rows @ model.embed_images(images, off).T
        slow = [measures.max_skew([groups[i] for i in np.argsort(-row)], pool, 10) for row in scores]
        np.testing.assert_allclose(result.max_skew.values, slow, atol=1e-9)


def test_the_snippet_gives_the_same_figures(app: App, session: Session, model: Model) -> None:
    classes, found, _ = classify.measure(session, model)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(snippet.snippet(app, session), "snippet", "exec"), {})
    rows = out.getvalue().splitlines()
    assert len(rows) == 8
    for row, name, shares in zip(
        rows, ["before"] * 4 + ["after"] * 4, [*found.before, *found.after], strict=True
    ):
        best = int(shares.argmax())
        assert row.startswith(f"{name} {classes[best]} {shares[best]:.4f}")


def test_the_snippet_of_bias_gives_the_same_figures(app: App, model: Model) -> None:
    session = opening.open_link(app, {"tab": "bias", "off": "L6.H1", "gallery": SMALL})
    assert "a ccs.datasets.BiasSet" in snippet.snippet(
        app, session
    )  # a gallery of one's own is named, not made up
    code = snippet.snippet(app, opening.open_link(app, {"tab": "bias", "off": "L6.H1"}))
    compile(code, "snippet", "exec")
    assert "sets.bias_set('faces')" in code


# -- what an action does ---------------------------------------------------------------------


def test_the_first_visit_shows_an_effect(app: App) -> None:
    session = opening.open_link(app, {})
    assert session.state.tab == "heads"
    assert session.state.off == app.sheet("organism").level("high")
    assert session.state.head in session.state.off
    # The tables say on which drawn pictures the high heads matter most; a link that says more is obeyed.
    table = app.sheet("organism").table("pruning")
    rows = table[(table["plan"] == "high") & (table["metric"] == "top1")].sort_values("difference")
    assert session.state.example == f"{rows.iloc[0]['dataset'].removeprefix('world/')}:0"
    assert not opening.open_link(app, {"off": "none"}).state.off
    assert opening.open_link(app, {"example": "digits:2"}).state.example == "digits:2"
    again = opening.open_link(app, dict(parse_qsl(session.state.query())))
    assert again.state == session.state


def test_a_link_opens_its_screen_and_names_what_it_cannot(app: App) -> None:
    session = opening.open_link(
        app, {"model": "organism", "off": "L6.H1 L30.H2", "tab": "bias", "example": "nothing:9"}
    )
    assert session.state.off == HeadSet.parse("L6.H1")
    assert any("L30.H2" in notice for notice in session.notices)
    assert any("nothing:9" in notice for notice in session.notices)
    assert opening.open_link(app, {"model": "gone"}).state.model == "organism"


def test_heads_go_off_and_on(app: App, session: Session) -> None:
    start = session.state.off
    actions.update(app, session, "toggle", {"head": "L4.H0"})
    assert session.state.off == start | HeadSet([Head(4, 0)])
    actions.update(app, session, "preset", {"value": "high"})
    assert session.state.off == app.sheet("organism").level("high")
    actions.update(app, session, "undo", {})
    actions.update(app, session, "undo", {})
    assert session.state.off == start
    actions.update(app, session, "redo", {})
    assert Head(4, 0) in session.state.off
    actions.update(app, session, "preset", {"value": "none"})
    assert not session.state.off


def test_random_heads_are_seeded_and_outside_the_high_ones(app: App, session: Session) -> None:
    actions.update(app, session, "random", {"n": "5", "seed": "3"})
    first = session.state.off
    assert len(first) == 5
    assert not first & app.sheet("organism").level("high")
    actions.update(app, session, "random", {"n": "5", "seed": "4"})
    assert session.state.off != first
    actions.update(app, session, "random", {"n": "5", "seed": "3"})
    assert session.state.off == first
    assert len(left.random_heads(app.heads("organism"), 24, 0, app.sheet("organism").level("high"))) == 24


@pytest.mark.parametrize(
    ("do", "fields"),
    [
        ("nothing", {}),
        ("tab", {"value": "admin"}),
        ("model", {"value": "/etc/passwd"}),
        ("off", {"off": "L9.H9"}),
        ("off", {"off": "<b>"}),
        ("toggle", {"head": "L0.H0"}),
        ("preset", {"value": "all"}),
        ("random", {"n": "0", "seed": "0"}),
        ("random", {"n": "1e3", "seed": "0"}),
        ("random", {"n": "٣", "seed": "0"}),
        ("example", {"value": "occupations:999"}),
        ("upload", {"files": []}),
        ("classify", {"classes": "a, b", "template": "no place"}),
        ("classify", {"classes": "x" * 300}),
        ("bias", {"gallery": "none", "k": "5"}),
        ("bias", {"gallery": SMALL, "k": "4000", "attribute": "gender"}),
        ("annotate", {"value": "yes"}),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    app: App, do: str, fields: dict[str, object]
) -> None:
    session = opening.open_link(app, {"tab": "classify", "gallery": SMALL})
    before = session.state
    with pytest.raises(InputError):
        actions.update(app, session, do, fields)
    assert session.state == before


def test_a_bad_upload_is_named_and_the_good_one_kept(app: App, session: Session) -> None:
    good, bad = app.uploads / "good.png", app.uploads / "bad.png"
    Image.new("RGB", (30, 30), "red").save(good)
    bad.write_bytes(b"no picture")
    files = [{"path": str(good), "name": "good.png"}, {"path": str(bad), "name": "<b>bad.png"}]
    actions.update(app, session, "upload", {"files": [*files, {"path": "/etc/passwd", "name": "x"}]})
    assert [p.name for p in session.uploads] == ["good.png"]
    assert len(session.notices) == 2
    assert not good.exists()
    assert not bad.exists()
    assert "<b>bad" not in core.regions(app, session)["top"]
    actions.update(app, session, "remove", {"index": "0"})
    assert session.uploads == ()


def test_typed_html_is_shown_as_text(app: App, session: Session) -> None:
    evil = '<img src=x onerror="alert(1)">'
    actions.update(app, session, "classify", {"classes": f"{evil}\na cat", "template": f"{evil} {{}}"})
    actions.update(app, session, "filter", {"find": evil})
    page = "".join(core.regions(app, session).values())
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page


def test_sessions_do_not_touch_each_other(app: App) -> None:
    one, two = (opening.open_link(app, {"tab": "classify", "off": off}) for off in ("L7.H1", ""))
    alone = core.regions(app, two)["main"]
    core.regions(app, one)
    actions.update(app, one, "preset", {"value": "high"})
    core.regions(app, one)
    two.shown.clear()
    assert core.regions(app, two)["main"] == alone
    assert not two.state.off


def test_the_filter_dims_the_others(app: App, session: Session) -> None:
    actions.update(app, session, "filter", {"concept": "Colors", "level": "", "find": ""})
    html = core.regions(app, session)["left"]
    assert "4 of 24 heads fit" in html
    assert html.count(' dim"') == 20
    actions.update(app, session, "filter", {"concept": "", "level": "unknown", "find": "TEXT 4 of L5.H3"})
    assert "1 of 24 heads fit" in core.regions(app, session)["left"]


# -- every view ---------------------------------------------------------------------


@pytest.mark.parametrize("tab", ["heads", "classify", "bias", "paradox", "judges", "about"])
@pytest.mark.parametrize("off", ["", "L4.H5 L7.H5"])
def test_every_view_is_whole(app: App, tab: str, off: str) -> None:
    query = {
        "tab": tab,
        "off": off,
        "gallery": SMALL,
        "other_head": "L5.H3",
        "other_model": "organism-control",
    }
    session = opening.open_link(app, query)
    for html in core.regions(app, session).values():
        check(html)
        for figure in re.findall(r'<section class="fig.*?</header>(.{0,60})', html, re.S):
            assert '<details class="what">' in figure
        assert "nan" not in re.sub(r'data-\w+="[^"]*"|base64,[^"]*', "", html).split()


@pytest.mark.parametrize("tab", ["heads", "classify", "bias", "paradox", "judges", "about"])
def test_views_without_results(model: Model, tmp_path: Path, tab: str) -> None:
    empty = App(results.load(tmp_path), tmp_path, Galleries([small_gallery()]))
    empty.shelf._models["organism"] = model
    session = opening.open_link(empty, {"tab": tab, "gallery": SMALL})
    page = core.regions(empty, session)
    assert "There are no tables for organism" in page["top"]
    assert page["left"].count('class="cell') == 24
    check(page["main"])


def test_half_written_results_are_left_out_and_named(model: Model, tmp_path: Path) -> None:
    folder = ui_sample.write(tmp_path, "organism", model.weights_hash)
    ui_sample.write(tmp_path, "organism-control", "f" * 64)
    (folder / "scores.parquet").write_bytes((folder / "scores.parquet").read_bytes()[:100])
    broken = App(results.load(tmp_path), tmp_path)
    broken.shelf._models["organism"] = model
    page = core.regions(broken, opening.open_link(broken, {"model": "organism"}))
    assert "scores.parquet" in page["top"]
    assert "There are no tables for organism" in page["top"]


def test_tables_of_other_weights_are_told(app: App, model: Model, tmp_path: Path) -> None:
    ui_sample.write(tmp_path, "organism", "0" * 64)
    other = App(results.load(tmp_path), tmp_path)
    other.shelf._models["organism"] = model
    assert "computed from other weights" in core.regions(other, opening.open_link(other, {}))["top"]
    assert "other weights" not in core.regions(app, opening.open_link(app, {}))["top"]


def test_a_model_that_cannot_be_had_keeps_its_tables(app: App, tmp_path: Path) -> None:
    ui_sample.write(tmp_path, "ViT-B-32/nowhere", "0" * 64)
    found = App(results.load(tmp_path), tmp_path)
    for tab in ("heads", "classify", "bias"):
        page = core.regions(
            found,
            opening.open_link(found, {"model": "ViT-B-32/nowhere", "tab": tab, "gallery": "world/faces"}),
        )
        assert 'class="empty"' in page["main"]
        assert page["left"].count('class="cell') == 24


# -- paradox, judges, charts ---------------------------------------------------------------------


def test_paradox_joins_plans_with_themselves(app: App) -> None:
    quality, fairness = plans.quality_rows(app), plans.fairness_rows(app)
    x, y = "world/subjects||top1", "world/faces|gender|pool|correct"
    found = plans.measured(quality, fairness, x, y)
    assert len(found) == 2 * (2 + 3 + 6)
    pruning = app.sheet("organism").table("pruning")
    bias_rows = app.sheet("organism").table("bias")
    for one in found:
        if one.model != "organism":
            continue
        seed = pruning["seed"].isna() if one.seed is None else pruning["seed"] == one.seed
        row = pruning[(pruning["plan"] == one.plan) & seed & (pruning["dataset"] == "world/subjects")]
        assert one.x == float(row["difference"].item())
        same = bias_rows["heads"] == one.heads
        row = bias_rows[same & (bias_rows["plan"] == one.plan) & (bias_rows["metric"] == "MaxSkew mean")]
        assert one.y in set(row[row["attribute"] == "gender"]["difference"])


def test_published_points_are_the_printed_differences() -> None:
    found = {(one.model, one.plan): one for one in plans.published("gender")}
    one = found["ViT-B-32-OpenAI (published)", "high"]
    assert one.x == pytest.approx(
        (ccs_table("table5", "cifar100/high") - ccs_table("table5", "cifar100/original")) / 100
    )
    assert one.y == pytest.approx(
        (ccs_table("table8", "gender/high") - ccs_table("table8", "gender/original")) / 104
    )
    assert plans.published("skin tone") == []


def ccs_table(key: str, column: str) -> float:
    from ccs import paper

    value = paper.table(key).value("ViT-B-32-OpenAI", column)
    assert value is not None
    return value


def test_a_click_on_a_point_loads_its_heads(app: App) -> None:
    session = opening.open_link(app, {"tab": "paradox"})
    html = core.regions(app, session)["main"]
    model, off = re.findall(r'data-do="plan" data-model="([^"]+)" data-heads="([^"]+)"', html)[-1]
    actions.update(app, session, "plan", {"model": model, "heads": off})
    assert (session.state.model, str(session.state.off)) == (model, off)


def test_annotation_is_blind_and_counts(app: App) -> None:
    session = opening.open_link(app, {"tab": "judges"})
    actions.update(app, session, "begin", {"seed": "1"})
    assert session.task is not None
    panel = core.regions(app, session)["main"].split('data-name="judges"')[0]
    shown = re.sub(r'data-csv="[^"]*"', "", panel).replace(session.task.items[0].text.split(" of ")[1], "")
    assert not re.search(r"L\d\.H\d", shown)
    for pair in session.task.items:
        answer = "yes" if all(v for _, v in pair.verdicts) else "no"
        actions.update(app, session, "annotate", {"value": answer})
    found = task.agreed(session.task)
    assert found is not None
    assert found.cohen_kappa.value == 1.0
    actions.update(app, session, "annotate", {"value": "back"})
    actions.update(app, session, "annotate", {"value": "unsure"})
    again = task.agreed(session.task)
    assert again is not None
    assert again.n == found.n - 1
    check(core.regions(app, session)["main"])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.3, 0.21), (-25, 1.5), (0, 1e-6), (0, 1000)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = charts.ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0])


def test_csv_cells_do_not_run_in_a_spreadsheet() -> None:
    assert (
        csv_text(["a", "b"], [["=cmd()", ""], ["-1", None], [-1.5, ""], ["plain, quoted", "x"]])
        == "a,b\n'=cmd(),\n'-1,\n-1.5,\n\"plain, quoted\",x\n"
    )


# -- endpoints ---------------------------------------------------------------------


def test_endpoints_agree_with_the_views(app: App, model: Model, tmp_path: Path) -> None:
    ends = Endpoints(lambda: app)
    assert ends.models()[0] == "organism"
    table = {row["head"]: row for row in ends.heads()}
    assert len(table) == 24
    assert table["L5.H3"]["ccs"] is None
    card = ends.head("L7.H5")
    assert len(card["texts"]) == 5
    answer = ends.classify(None, off="L6.H1 L7.H2")
    session = opening.open_link(app, {"off": "L6.H1 L7.H2"})
    np.testing.assert_allclose(answer["after"], classify.measure(session, model)[1].after, atol=2e-6)
    file = tmp_path / "a.png"
    load_example("").pictures[0].image.save(file)
    own = ends.classify([str(file)], classes="judge, cook", template="a {}")
    assert (len(own["before"]), own["classes"]) == (1, ["judge", "cook"])
    skew = ends.bias("judge, poet", off="L6.H1", gallery=SMALL)
    assert set(skew["metrics"]) == {"MaxSkew", "MinSkew", "NDKL"}
    for value in (card, answer, skew, ends.paradox(), ends.judges(), ends.about()):
        json.dumps(value, allow_nan=False)
    with pytest.raises(InputError):
        ends.heads("nothing")
    with pytest.raises(InputError):
        ends.classify(None, off="L0.H0")


def test_an_estimate_comes_first_and_is_named(app: App, model: Model) -> None:
    session = opening.open_link(app, {"tab": "bias", "gallery": SMALL, "off": "L4.H2"})
    for _ in app.galleries.collect(model, SMALL):
        pass
    event = SimpleNamespace(_data={"do": "off", "off": "L4.H2 L5.H4"})
    updates = list(actor(lambda: app)(session, event))
    pages = [update[3] for update in updates if isinstance(update[3], str)]
    assert len(pages) == 2
    assert 'data-exact="0"' in pages[0]
    assert "an instant estimate from direct effects" in pages[0]
    assert 'data-exact="1"' in pages[1]
    states = [re.findall('data-state="([a-z]+)"', update[4])[0] for update in updates]
    assert set(states[:-1]) == {"working"}
    assert states[-1] == "done"


def test_a_failure_is_told_and_the_page_goes_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opening.open_link(app, {"tab": "classify"})
    monkeypatch.setattr(classify, "render", lambda *_: 1 / 0)
    *_, last = actor(lambda: app)(session, SimpleNamespace(_data={"do": "off", "off": "L7.H1"}))
    assert "This view cannot be shown" in last[3]
    assert "1 of 24 switched off" in last[2]
    monkeypatch.undo()
    *_, last = actor(lambda: app)(session, SimpleNamespace(_data={"do": "off", "off": ""}))
    assert "before and after agree" in last[3]
    *_, last = actor(lambda: app)(None, SimpleNamespace(_data={"do": "off", "off": ""}))
    assert "idle for long" in last[1]


# -- galleries of one's own ----------------------------------------------------------------------

FACES = Path(__file__).parents[2] / "shared" / "data" / "faces-utk-balanced.parquet"


@pytest.mark.skipif(not FACES.is_file(), reason="the photographs are not here")
def test_a_labelled_file_is_a_gallery() -> None:
    found = open_gallery(str(FACES))
    assert {"gender", "race"} <= set(found.groups)
    assert all(len(labels) == len(found.images) for labels in found.groups.values())
    assert set(found.k.values()) == {len(found.images) // 10}


@pytest.mark.parametrize("spec", ["nothing.parquet", "world/subjects", "no-such-set"])
def test_what_is_no_gallery_is_refused(spec: str) -> None:
    with pytest.raises(InputError):
        open_gallery(spec)


def test_results_that_are_not_there_end_the_program_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CCS_RESULTS", str(tmp_path / "environment"))
    assert entry.main([]) == 2
    assert "environment to load results from" in capsys.readouterr().err
    assert entry.main(["--results", str(tmp_path / "argument")]) == 2
    assert capsys.readouterr().err.startswith("error: There is no folder")


def test_requirements_are_those_of_the_project() -> None:
    root = Path(__file__).parents[1]
    listed = (root / "requirements.txt").read_text("utf-8").split("\n")
    wanted = {line for line in listed if line and not line.startswith("#")}
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert wanted <= set(project)
    assert {re.split(r"[<>=[]", line)[0] for line in wanted} >= {
        "gradio",
        "torch",
        "open_clip_torch",
        "pandas",
    }
