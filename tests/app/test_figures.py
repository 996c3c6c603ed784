"""The views without a browser, and their figures compared with the library and with slow references."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import ccs
from ccs import Head, HeadSet, results
from ccs.analysis import inputs, preference
from ccs.app.html import number
from ccs.app.page import regions
from ccs.app.services.images import extremes
from ccs.app.session import App
from ccs.app.views import VIEWS, base, classify, heads, paradox
from ccs.app.views import bias as bias_view
from ccs.app.views import query as query_view
from ccs.app.views.query import BiasQuery, embed_query
from ccs.metrics.ranking import Ranking, cosines
from ccs.model.maps import heatmap
from tests.support import app_sample
from tests.support.app_fixtures import (
    SMALL_GALLERY,
    check_html,
    make_sibling_app,
    open_screen,
    read_figure,
    run_snippet,
    small_gallery,
)


@pytest.mark.parametrize("tab", ["start", "heads", "classify", "bias", "paradox", "about"])
@pytest.mark.parametrize("ablate", ["", "L4.H5 L7.H5"])
def test_view_renders_valid_html(app, tab, ablate):
    screen = open_screen(app, {"tab": tab, "ablate": ablate, "gallery": SMALL_GALLERY})
    for html in regions(screen).values():
        check_html(html)
        for figure in re.findall(r'<section class="fig.*?</header>(.*?)<summary>', html, re.S):
            assert re.search(r'<p class="meaning">[^<>]*\S.*</p>\s*<details class="what">', figure, re.S)
        assert "nan" not in re.sub(r'data-\w+="[^"]*"|base64,[^"]*', "", html).split()


def test_paradox_averages_differences_over_datasets(app):
    key, tables = ["ablation", "seed", "heads"], app.collection.models["organism"]
    top1 = tables.table("pruning").query("metric == 'top1' and subset == ''")
    skew = tables.table("bias").query("dataset == 'world/faces' and metric == 'MaxSkew mean'")
    skew = skew[skew["attribute"] == "gender"]
    axes = paradox.read_axes(app, "organism", "", "gender")
    assert (axes.gallery, axes.attribute, axes.quality) == ("world/faces", "gender", "")
    single = paradox.read_axes(app, "organism", quality := axes.qualities[0], "gender")
    for points, accuracy in ((axes.points, top1), (single.points, top1[top1["dataset"] == quality])):
        displayed = points[points["model"] == "organism"].fillna({"seed": -1}).set_index(key)
        for column, table in (("accuracy", accuracy), ("MaxSkew", skew)):
            expected = table.fillna({"seed": -1}).groupby(key)["difference"].mean()
            np.testing.assert_allclose(displayed[column], expected[displayed.index])
    page = regions(open_screen(app, {"tab": "paradox", "model": "photo"}))["main"]
    assert "No run has measured photo yet" in page


def test_paradox_means_use_common_datasets():
    rows = [("quick", "subjects", -0.1), ("full", "subjects", -0.2), ("full", "food", -0.6)]
    frame = pd.DataFrame(rows, columns=["model", "dataset", "difference"])
    frame = frame.assign(weights="w", ablation="high", seed=None, heads="L0.H0", n_heads=1)
    means = paradox.mean_of_sets(frame, ["subjects"]).set_index("model")["difference"]
    assert means.to_dict() == {"quick": -0.1, "full": -0.2}
    means = paradox.mean_of_sets(frame, ["subjects", "food"]).set_index("model")["difference"]
    assert means.to_dict() == {"full": pytest.approx(-0.4)}  # "quick" has no result on food


def test_paradox_compares_with_size_matched_random_sets():
    frame = {"model": "m", "ablation": ["high", *["random"] * 40], "seed": [None, *range(40)]}
    rows = pd.DataFrame({**frame, "difference": [-0.5, *np.linspace(-0.2, 0.0, 40)]})
    high, ranked = paradox.contrast(rows, "m")
    assert (high, ranked.value, ranked.rank) == (-0.5, pytest.approx(-0.4), 1)
    assert ranked.p_value <= 0.05
    for inconclusive in (rows[:10], rows.assign(difference=-0.1)):  # 10 sets can't give p < 0.1
        assert not paradox.contrast(inconclusive, "m")[1].p_value <= 0.05
    assert paradox.contrast(rows[:4], "m") is None
    (high, low), _ = paradox.published_changes()  # the means of Tables 5 and 8
    assert high < low < 0


@pytest.mark.parametrize("with_text", [True, False])
@pytest.mark.parametrize("seed", range(4, 8))
def test_extremes_are_ends_of_ranking(with_text, seed):
    """Rank by a text or, without one, by the first principal component, its longer end first."""
    rng = np.random.default_rng(seed)
    direct = rng.normal(size=(40, 6)) * [5, 1, 1, 1, 1, 1]
    text, centered = rng.normal(size=6) if with_text else None, direct - direct.mean(0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    scores = centered @ (vectors[:, values.argmax()] if text is None else text)
    if text is None and scores.max() < -scores.min():
        scores = -scores
    highest, lowest = extremes(direct, text, 4)
    order = np.argsort(-scores).tolist()
    assert [i for i, _ in highest] == order[:4]
    assert [i for i, _ in lowest] == order[::-1][:4]
    np.testing.assert_allclose(highest[0][1], scores[order[0]] / np.std(scores))


def test_bias_ranks_images_within_occupation_pool(app, model):
    pools = np.array(["judge", "poet"] * 20)
    gallery = replace(small_gallery(), name="pools", pools=pools, units=np.arange(40) // 4)
    pools_app = App(app.collection, [gallery])
    pools_app.model_cache = app.model_cache
    query = {"tab": "bias", "gallery": "pools", "occupations": "judge\npoet"}
    screen = open_screen(pools_app, {**query, "row": "1"})
    embedded = embed_query(screen, BiasQuery.from_state(pools_app, screen.state))
    assert embedded.query.most_k == 10
    skews = embedded.measure(screen).of("MaxSkew")["before"]
    library = ccs.bias(model, gallery, ["judge", "poet"], attribute="gender", top=10).of("MaxSkew")["before"]
    assert skews.to_dict() == pytest.approx(library.to_dict(), abs=1e-6)
    assert {*pools[bias_view.first_images(screen, embedded, {}).rows["image"]]} == {"poet"}


def test_bias_view_splits_preference_change(app, model):
    gallery, names, off = small_gallery(), ["judge", "nurse"], HeadSet.parse("L6.H1 L7.H2")
    query = {"tab": "bias", "gallery": SMALL_GALLERY, "attribute": "gender", "occupations": "\n".join(names)}
    screen = open_screen(app, {**query, "ablate": str(off)})
    changes = bias_view.part_changes(embed_query(screen, BiasQuery.from_state(app, screen.state)))
    prompts = inputs.embed_occupations(model, replace(gallery, occupations=tuple(names)))
    task = Ranking(prompts=prompts, groups=gallery.groups["gender"], k=10)
    units = model.embed_images(list(gallery.images), [HeadSet(), off])
    scores = [cosines(prompts, of) for of in units]
    (expected,) = preference.measure_part_changes(scores, task, draws=query_view.DRAWS)
    html = regions(screen)["main"]
    for displayed, reference in ((changes.general, expected.general), (changes.specific, expected.specific)):
        estimate = (displayed.value, displayed.low, displayed.high)
        assert estimate == pytest.approx((reference.value, reference.low, reference.high), abs=1e-4)
        value, low, high = (number(end, 2, sign=True) for end in estimate)
        assert f'</th><td class="num">{value} <span class="ci">({low} to {high})</span>' in html


def test_bias_program_prints_displayed_values(app):
    query = {"tab": "bias", "ablate": "L6.H1 L7.H2=0.3 T2.H0", "gallery": SMALL_GALLERY}
    screen = open_screen(app, {**query, "occupations": "judge\nnurse"})
    code = VIEWS[screen.state.tab].program(screen)
    source = f"ccs.open_gallery({SMALL_GALLERY!r})"
    assert source in code
    rows = run_snippet(code.replace(source, "small"), small=small_gallery())
    measured = embed_query(screen, BiasQuery.from_state(app, screen.state)).measure(screen)
    displayed_rows = measured.rows.itertuples()
    page_values = {(row.occupation, row.metric): (row.before, row.after) for row in displayed_rows}
    for metric in ("MaxSkew", "AUC", "NDKL", "logit gap"):
        first = rows.index(metric) + 3  # after the names of columns and rows
        for name, before, after, _ in map(str.split, rows[first : first + 3]):
            assert (float(before), float(after)) == pytest.approx(page_values[name, metric], abs=6e-5)
    for row in read_figure("groups", screen):
        (line,) = [line.split() for line in rows if line.split()[0] == row["group"]]
        shares = [float(row[name]) for name in ("before", "after", "pool")]
        assert list(map(float, line[1:])) == pytest.approx(shares, abs=6e-5)


def test_maps_match_library(app, model):
    head, off = Head(6, 2), HeadSet.parse("L4.H1 L6.H2")
    screen = open_screen(app, {"head": str(head), "ablate": str(off), "text": "1"})
    records, pixels = app.records("organism").heads, [image.pixels for image in screen.images.originals]
    looks = ccs.attention(model, pixels, str(head), ablate="L4.H1")[:, 0]
    text, firsts = records[head].texts[1].text, [record.texts[0].text for record in records.values()]
    written = ccs.heatmap(model, pixels, [text], str(head), against=firsts, ablate="L4.H1")[:, 0]
    values = heads.attention_maps(screen, records[head]).rows[["attention", "written"]].to_numpy()
    np.testing.assert_allclose(values, np.stack([looks.ravel(), written.ravel()], 1), atol=1e-6)
    screen = open_screen(app, {"tab": "classify", "ablate": str(off)})
    why = classify.explain_answers(screen)
    example = classify.shown_example(screen)
    classes, weights = example.classes, screen.embed_texts(example.classes, example.templates)
    best = np.argsort(-(model.embed_images(pixels) @ weights.T), axis=1)[:, :2]
    for ablate, column in ((HeadSet(), -2), (off, -1)):
        slow = [
            heatmap(model, pixels, weights[[first]] - weights[[second]], ablate=ablate)[i, 0]
            for i, (first, second) in enumerate(best)
        ]
        np.testing.assert_allclose(why.rows.iloc[:, column], np.ravel(slow), atol=1e-6)
    places = [(classes[a], classes[b], *at) for a, b in best for at in np.ndindex(slow[0].shape)]
    assert [*why.rows.iloc[:, 1:5].itertuples(index=False, name=None)] == places


def test_csv_escapes_formulas():
    cells = [["=cmd()", ""], ["-1", None], [-1.5, ""], ["plain, quoted", "x"]]
    figure = base.Figure("x", pd.DataFrame(cells, columns=["a", "b"]), {"model": "@m"}, {})
    assert figure.csv() == "a,b,model\n'=cmd(),,'@m\n'-1,,'@m\n-1.5,,'@m\n\"plain, quoted\",x,'@m\n"


def test_start_shows_held_out_results_of_claim(app, model):
    claim = app.records("organism").claim
    html = regions(open_screen(app, {"tab": "start", "ablate": str(claim.heads)}))["main"].replace("−", "-")
    after, change = claim.held_out.max_skew, claim.held_out.max_skew_change
    assert f"{after.value - change.value:.2f} → {after.value:.2f}" in html
    assert f"{change.value:+.2f}" in html
    assert f"{100 * claim.held_out.accuracy_change.value:+.1f} points" in html
    head, example = classify.find_story(open_screen(app, {}))
    assert app.records("organism").head(head).concept in html
    weights = inputs.embed_names(model, example.classes, example.templates)
    for off in (HeadSet(), HeadSet([head])):
        embedded = model.embed_images([example.images[0].pixels], off)
        assert f"{100 * float(model.probabilities(embedded @ weights.T).max()):.1f}%" in html


def test_csv_rows_include_their_settings(app, model):
    off, people = "L6.H1 L7.H2", " | ".join(small_gallery().templates)
    groups = {"gallery": SMALL_GALLERY, "template": people, "attribute": "skin tone", "occupation": "nurse"}
    groups |= {"ablated heads": off}
    start = groups | {"gallery": "world/faces", "attribute": "gender", "occupation": "judge"}
    query = {"head": "L7.H2", "ablate": off, "occupations": "judge\nnurse", "row": "1"}
    query |= {"gallery": SMALL_GALLERY, "attribute": "skin tone"}
    for tab, name, fields in (
        ("heads", "where-L7.H2", {"ablated heads": "L6.H1", "gallery": "", "template": ""}),
        ("classify", "classify", {"ablated heads": off, "template": " | ".join(app.example("").templates)}),
        ("bias", "groups", groups),
        ("start", "claim", start),
        ("paradox", "paradox", {"gallery": "world/faces", "attribute": "skin tone"}),
    ):
        for row in read_figure(name, open_screen(app, {**query, "tab": tab})):
            weights = app.records(row["model"]).weights if tab == "paradox" else model.weights_hash
            assert None not in (*row, *row.values()), name
            assert {"weights": weights[:16], **fields}.items() <= row.items(), name


PROGRAMS = [(tab, "") for tab in ("heads", "classify", "paradox", "start", "about")]


@pytest.mark.parametrize(("tab", "quality"), [*PROGRAMS, ("paradox", "world/subjects")])
def test_copied_program_runs(app, tab, quality):
    screen = open_screen(app, {"tab": tab, "ablate": "L6.H1 L7.H2", "quality": quality})
    code = VIEWS[tab].program(screen).replace("ccs.open_gallery('world/faces')", "people")
    lines = run_snippet(code, people=app.galleries.people("world/faces"))
    if tab == "paradox":
        points = paradox.read_axes(app, "organism", quality).points
        points = points[points["model"] == "organism"]
        displayed = {(row.ablation, round(row.accuracy + 1e-9, 5)) for row in points.itertuples()}
        cells = [line.split() for line in lines[1:]]
        assert displayed <= {(name, round(float(change) + 1e-9, 5)) for name, _, change, *_ in cells}
    assert lines


def test_views_without_matching_tables_show_notice(app, tmp_path):
    without_tables = make_sibling_app(app, results.load(tmp_path))
    for tab in ("heads", "classify", "bias", "paradox", "about"):
        page = regions(open_screen(without_tables, {"tab": tab, "gallery": SMALL_GALLERY}))
        assert "There are no tables for organism" in page["top"]
        assert page["left"].count('class="cell') == 24
        check_html(page["main"])
    app_sample.write_app_results(tmp_path, "organism", "0" * 64)
    other_weights = make_sibling_app(app, results.load(tmp_path))
    assert "computed from other weights" in regions(open_screen(other_weights, {"tab": "about"}))["top"]
