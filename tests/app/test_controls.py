"""The forms of the app: their effects, the rejection of invalid ones, and heads of the text encoder."""

import re
import shlex
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest

import ccs
import ccs_benchmark
from ccs import HeadSet, InputError, Intervention
from ccs.analysis import carriers, evidence, inputs, mitigate, mitigations
from ccs.app import controls
from ccs.app.page import regions
from ccs.app.views import VIEWS, bias, classify, query
from ccs.cli.command_line import command as subcommand
from ccs.model.editing import fit_edits
from tests.support.app_fixtures import (
    SMALL_GALLERY,
    check_html,
    open_screen,
    read_figure,
    render_screen,
    run_snippet,
    small_gallery,
    submit_form,
)


def test_claim_comes_from_conclusive_search(app):
    claim = app.records("organism").claim
    assert claim.conclusive
    assert app.records("organism").influential_heads == claim.heads
    control = app.records("organism-control").claim
    assert control is None or not control.conclusive


def test_undo_history_is_bounded(app, screen):
    before = screen.state.ablate
    submit_form(screen, "heads/ablate", ablate=str(app.records("organism").presets["Letters"]))
    assert {app.records("organism").head(head).concept for head in screen.state.ablate} == {"Letters"}
    submit_form(screen, "heads/undo")
    assert screen.state.ablate == before
    for _ in range(controls.MAX_HISTORY + 5):
        submit_form(screen, "heads/toggle", head="L4.H0")
    assert len(screen.session.past) == controls.MAX_HISTORY


def test_edited_head_matches_library_and_toggles(app, model, screen):
    screen.change(gallery=SMALL_GALLERY, attribute="skin tone")
    edit = "L6.H1 L7.H2=erase:skin tone"
    assert 'aria-pressed="false">Erase skin tone<' in regions(screen)["left"]
    submit_form(screen, "heads/ablate", ablate=edit)
    assert "1 head off, 1 head edited" in regions(screen)["strip"]
    assert {row["head"]: row["state"] for row in read_figure("heads", screen)}["L7.H2"] == "edited"
    people, heads = small_gallery(), Intervention.parse(edit)
    fitted, _ = fit_edits(model, heads, people.images, people.groups)
    answers, example = classify.measure_answers(screen).rows, classify.shown_example(screen)
    images = [image.pixels for image in screen.images.originals]
    table = ccs.classify(model, images, example.classes, example.templates, ablate=fitted).rows
    assert answers["after"].to_numpy() == pytest.approx(table["after"].to_numpy(), abs=2e-5)
    submit_form(screen, "tab", tab="bias")
    names = ["judge", "artist", "teacher"]
    library = ccs.bias(model, people, names, attribute="skin tone", ablate=edit)
    measured = query.embed_query(screen, query.BiasQuery.from_state(app, screen.state)).measure(screen)
    for metric in query.SHOWN_METRICS:
        actual, expected = (table.of(metric)["after"] for table in (measured, library))
        assert actual.to_dict() == pytest.approx(expected.to_dict(), abs=1e-6)
    submit_form(screen, "heads/toggle", head="L7.H2")
    assert screen.state.ablate == HeadSet.parse("L6.H1")
    submit_form(screen, "heads/change", heads="L7.H2=erase:skin tone")
    assert str(screen.state.ablate) == edit
    submit_form(screen, "heads/change", heads="L7.H2=1")
    assert screen.state.ablate == HeadSet.parse("L6.H1")
    submit_form(screen, "heads/undo")
    assert str(screen.state.ablate) == edit


def test_mitigation_comparison_matches_library(app, model, monkeypatch):
    monkeypatch.setattr(carriers, "STEPS", 5)
    names = ("judge", "artist", "teacher", "nurse")
    names, fields = ("judge", "artist", "teacher", "nurse"), {"gallery": SMALL_GALLERY, "attribute": "gender"}
    screen = open_screen(app, {"tab": "bias", "occupations": "\n".join(names), **fields})
    submit_form(screen, "bias/fairer", budget="2")
    html, _ = render_screen(screen)
    check_html(html["main"])
    people = replace(app.galleries.people(SMALL_GALLERY), occupations=names)
    subject = evidence.Subject(model, people, app.galleries.find("world/subjects"), fresh=True)
    compared = {name: mitigations.METHODS[name] for name in bias.COMPARED_METHODS}
    library = mitigate.mitigate_subject(subject, "gender", compared)
    columns = ["before", "after", "low", "difference_high"]
    displayed = pd.DataFrame(read_figure("fairer", screen))[columns].replace("", "nan").astype(float)
    pd.testing.assert_frame_equal(displayed, library.rows[columns], atol=1e-6)
    options = screen.session.fairer[1].values["comparison"].options
    fitted = [str(options[name].fitted.heads) for name in bias.COMPARED_METHODS]
    assert fitted == [str(library.options[name].fitted.heads) for name in bias.COMPARED_METHODS]
    for command in re.findall('data-copy="(clip-ccs [^"]*)"', html["main"]):
        name, *arguments = shlex.split(unescape(command))[1:]
        settings = subcommand(name).parse(arguments)
        assert settings.model == "organism"
        assert name != "export" or str(Intervention.parse(str(settings.ablate))) in fitted


INVALID_FORMS = [
    ("heads/inspect", {"head": "L7.H0 L7.H1"}, "'L7.H0 L7.H1'"),
    ("model", {"model": "nothing"}, "There is no model 'nothing' here"),
    ("images/example", {"example": "occupations:999"}, "There is no example 'occupations:999'"),
    (
        "bias",
        {"gallery": SMALL_GALLERY, "k": "4000", "attribute": "gender"},
        "K is 4000, but a ranking of 40",
    ),
    ("classify", {"template": "no place"}, "must hold {} once"),
    ("tables/show", {"analysis": "0" * 16}, "have been deleted"),
]


@pytest.mark.parametrize(("path", "fields", "message"), INVALID_FORMS)
def test_invalid_form_is_rejected(app, path, fields, message):
    screen = open_screen(app, {"tab": "classify", "gallery": SMALL_GALLERY})
    with pytest.raises(InputError) as error:
        submit_form(screen, path, **fields)
    assert message in str(error.value)
    assert len(str(error.value)) < 250


def test_planted_heads_are_marked_and_claimed(app):
    heads = ccs_benchmark.truth("organism-planted-04").heads
    claim = app.records("organism-planted").claim
    assert (claim.heads, claim.attribute, claim.held_out) == (heads, "skin tone", None)
    assert ccs.load("organism-planted").weights_hash == ccs_benchmark.load("organism-planted-04").weights_hash
    page = regions(open_screen(app, {"model": "organism-planted", "ablate": "L7.H2 L7.H3", "tab": "heads"}))
    assert f"<b>{heads}</b> (skin tone)" in page["left"]
    assert "Of the 2 heads off, 1 is among them" in page["left"]
    assert len(re.findall(r'class="cell[^"]* planted[ "]', page["left"])) == len(heads) == 3


IMAGE_AND_TEXT_HEADS = "L7.H2 T2.H0 T3.H1"


def test_text_head_ablation_matches_library(app, model):
    screen = open_screen(app, {"tab": "classify", "ablate": "L7.H2"})
    submit_form(screen, "heads/encoder", encoder="T")
    assert [row["head"] for row in read_figure("heads", screen)] == [str(head) for head in model.text_heads]
    for head in ("T3.H1", "T2.H0"):
        submit_form(screen, "heads/toggle", head=head)
    assert screen.state.ablate == HeadSet.parse(IMAGE_AND_TEXT_HEADS)
    measured, example = classify.measure_answers(screen), classify.shown_example(screen)
    images = [image.pixels for image in screen.images.originals]
    displayed_shares = measured.rows[["before", "after"]].to_numpy().reshape(len(images), -1, 2)
    for side, ablate in enumerate(("", IMAGE_AND_TEXT_HEADS)):
        with ccs.ablate(model, HeadSet.parse(ablate)):  # the slow reference
            texts = inputs.embed_names(model, example.classes, example.templates)
            cosines = model.embed_images(images, HeadSet.parse(ablate).of_encoder("L")) @ texts.T
        assert displayed_shares[..., side] == pytest.approx(model.probabilities(cosines), abs=2e-5)
    assert np.abs(displayed_shares[..., 1] - displayed_shares[..., 0]).max() > 1e-3
    after_lines = [line for line in run_snippet(VIEWS["classify"].program(screen)) if "after" in line]
    for row, shares in zip(after_lines, displayed_shares[..., 1], strict=True):
        assert row.split(", ")[0] == f"after {example.classes[shares.argmax()]} {shares.max():.4f}"


def test_head_link_selects_its_encoder_grid(app, model):
    for head, heads in (("T3.H1", model.text_heads), ("L7.H2", model.heads)):
        screen = open_screen(app, {"tab": "heads", "head": head})
        grid = regions(screen)["left"]
        assert [row["head"] for row in read_figure("heads", screen)] == [*map(str, heads)]
        assert 'aria-selected="true"' in grid
    submit_form(screen, "heads/inspect", head="T2.H0")
    assert screen.state.encoder == "T"
