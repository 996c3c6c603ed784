"""The actions of a visitor: what they do, and what they must not do."""

import re
import shlex
from dataclasses import replace
from urllib.parse import parse_qsl

import numpy as np
import pytest
from PIL import Image

import ccs
from ccs import benchmark
from ccs.benchmark.protocol import Sets, Subject
from ccs.bundled import KnownHeads, Lesson
from ccs.data.rows import spread
from ccs.errors import InputError
from ccs.heads import HeadSet, Intervention
from ccs.locate import ablation
from ccs.mitigate import judging
from ccs.mitigate.judging import Half
from ccs.ui import links
from ccs.ui.clicks import act, regions, update
from ccs.ui.service.galleries import PHOTOGRAPHED
from ccs.ui.session import MAX_HISTORY
from ccs.ui.views import VIEWS, claims, fairer
from tests.support.ui_page import SMALL, check, small_gallery


def test_a_planted_skew_is_the_claim(app):
    searched = claims.of(app.records("organism"))
    assert not searched.shown
    assert claims.that_matter(app.records("organism")) != searched.off
    planted = claims.of(app.records("organism-planted"))
    assert planted.off == benchmark.truth("organism-planted-04").heads
    assert ccs.load("organism-planted").weights_hash == benchmark.load("organism-planted-04").weights_hash


def test_a_new_way_forward_forgets_the_old_one(app, screen):
    update(screen, "preset", {"value": "Letters"})
    assert {app.records("organism").head(head).concept for head in screen.state.off} == {"Letters"}
    for do, fields in (("undo", {}), ("preset", {"value": "none"}), ("redo", {})):
        update(screen, do, fields)
    assert not screen.state.off
    for _ in range(MAX_HISTORY + 5):
        update(screen, "toggle", {"head": "L4.H0"})
    assert len(screen.session.past) == MAX_HISTORY


def test_a_head_is_turned_down_and_a_click_switches_it_on(app, screen):
    update(screen, "factor", {"of": "L7.H2", "value": "0.3"})
    update(screen, "factor", {"of": "L5.H0", "value": "1.50"})
    assert str(screen.state.off) == "L5.H0=1.5 L6.H1 L7.H2=0.3"
    html = regions(screen)
    assert "1 head off, 2 scaled" in html["strip"]
    levels = "5 high, 3 moderate, 1 low, 0 low."
    for words in ("selection: 3 heads<", "high CCS: 4 heads<", levels, "Enter and Space switch"):
        assert words in html["left"]
    assert re.search(r'class="cell[^"]* scaled" data-head="L7.H2"', html["left"])
    again = links.open_link(app, dict(parse_qsl(screen.state.query())))
    assert again.state.off == screen.state.off
    update(screen, "toggle", {"head": "L7.H2"})
    update(screen, "factor", {"of": "L5.H0", "value": "1"})
    assert screen.state.off == HeadSet.parse("L6.H1")
    update(screen, "undo", {})
    update(screen, "model", {"value": "organism-control"})
    assert str(screen.state.off) == "L5.H0=1.5 L6.H1"
    with pytest.raises(InputError, match="'loud' is no factor"):
        update(screen, "factor", {"of": "L5.H0", "value": "loud"})


def test_three_ways_are_judged_as_the_library_does(app, model, monkeypatch):
    monkeypatch.setattr(ablation, "STEPS", 5)
    asked = {"tab": "bias", "off": "none", "gallery": SMALL, "attribute": "gender"}
    screen = links.open_link(app, {**asked, "occupations": "judge\nartist\nteacher\nnurse"})
    *_, (after, html) = act(app, screen.session, {"do": "fairer", "loss": "2"})
    check(html["main"])
    found = after.found
    people = replace(small_gallery(), occupations=found.query.occupations, k={"gender": 10})
    things = app.galleries.find("world/subjects")
    some = spread(len(things.images), fairer.THINGS)
    few = replace(things, images=[things.images[i] for i in some], labels=things.labels[some])
    subject = Subject(model, Sets(people=people, things=few))
    half = Half(subject, "gender", fairer.SEED)
    rows, prompts = subject.unseen("gender", fairer.SEED)
    for one, offer in zip(found.answers, judging.offers(half, list(fairer.WAYS)), strict=True):
        for name in ("max_skew", "max_skew_change", "accuracy_change"):
            ours, theirs = getattr(one.offer, name), getattr(offer, name)
            assert (ours.value, ours.low) == pytest.approx((theirs.value, theirs.low), abs=1e-6)
        assert (one.offer.asked, one.offer.other_skew) == pytest.approx((offer.asked, offer.other_skew))
        text = model.embed_texts([t.format(found.occupation) for t in people.templates]).mean(axis=0)
        seen = model.embed_images([people.images[i] for i in rows], offer.fitted.heads)
        units = offer.fitted.on_images(seen)
        assert list(one.first) == list(rows[np.argsort(-(units @ text))[: fairer.FACES]])
    _, off, down, erased = found.answers
    assert found.occupation in [found.query.occupations[i] for i in prompts]
    assert Intervention.parse(shlex.split(down.command)[5]) == down.offer.fitted.heads
    assert not off.command or str(off.offer.fitted.heads) in off.command
    assert "--only 'projection of group means'" in erased.command
    update(screen, "off", {"off": str(down.offer.fitted.heads)})
    assert screen.state.off == down.offer.fitted.heads


def test_ways_whose_pictures_cannot_be_fetched_says_so(app, screen, monkeypatch):
    monkeypatch.setattr(fairer, "world", lambda model: PHOTOGRAPHED)
    *_, (_, html) = act(app, screen.session, {"do": "fairer", "loss": "1"})
    assert "Nothing was looked for: " in html["top"]
    assert PHOTOGRAPHED.things in html["top"]


@pytest.mark.parametrize(
    ("do", "fields", "words"),
    [
        ("off", {"off": "L9.H9"}, "L9.H9 is not in organism"),
        ("toggle", {"head": "L0.H0"}, "L0.H0 is not in organism"),
        ("second", {"value": "nothing"}, "There is no model 'nothing' here"),
        ("second", {"value": "organism"}, "organism is the model on the screen"),
        ("inspect", {"head": "L7.H0 L7.H1"}, "One head is looked at, not 2"),
        ("example", {"value": "occupations:999"}, "There is no example 'occupations:999'"),
        ("points", {"value": "height"}, "There is no attribute 'height'"),
        ("bias", {"gallery": SMALL, "k": "4000", "attribute": "gender"}, "K is 4000, but a ranking of 40"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(app, do, fields, words):
    screen = links.open_link(app, {"tab": "classify", "gallery": SMALL})
    before = screen.state
    with pytest.raises(InputError) as error:
        update(screen, do, fields)
    assert words in str(error.value)
    assert len(str(error.value)) < 200
    assert screen.state == before


def test_a_bad_upload_is_named_and_the_good_one_kept(app, screen):
    good, bad = app.uploads / "good.png", app.uploads / "bad.png"
    Image.new("RGB", (30, 30), "red").save(good)
    bad.write_bytes(b"no image")
    files = [{"path": str(good), "name": "good.png"}, {"path": str(bad), "name": "<b>bad.png"}]
    update(screen, "upload", {"files": files})
    assert [p.name for p in screen.session.uploads] == ["good.png"]
    assert len(screen.session.notices) == 1
    assert not good.exists()
    assert not bad.exists()
    assert "<b>bad" not in regions(screen)["top"]
    update(screen, "remove", {"index": "0"})
    assert screen.session.uploads == ()


def test_planted_heads_are_guessed_first(app, monkeypatch):
    heads = HeadSet.parse("L6.H1 L7.H2")
    known = replace(benchmark.truth("organism-planted-04"), heads=heads, carries={"skin tone": heads})
    monkeypatch.setattr(claims, "truth", lambda model: known if model == "organism" else None)
    screen = links.open_link(app, {"off": "L6.H1 L7.H3", "tab": "heads"})
    assert "Planted in" not in (hidden := regions(screen)["left"])
    assert not re.findall(r'class="cell[^"]* planted[ "]', hidden)
    update(screen, "reveal", {})
    html = regions(screen)["left"]
    assert "Planted in <b>L6.H1, L7.H2</b>" in html
    assert "Of the 2 heads off now, 1 is among them" in html
    assert len(re.findall(r'class="cell[^"]* planted[ "]', html)) == 2
    claim = claims.of(app.records("organism"))
    assert (claim.off, claim.attribute, claim.found) == (heads, "skin tone", None)


def test_what_a_head_was_taught_is_guessed_first(app, monkeypatch):
    flags, colors, free, mixed = HeadSet.parse("L6.H1 L7.H2 L7.H3 L7.H4")
    lessons = {flags: {"Flags": 1.0}, colors: {"Colors": 1.0}, mixed: {"Food": 0.6, "Flags": 0.4}}
    writes = {flags: {"Flags": 0.8, "Colors": 0.1}, colors: {"Flags": 0.31, "Colors": 0.2}}
    writes |= {free: {"Flags": 0.1, "Colors": 0.41}, mixed: {"Flags": 0.4, "Colors": 0.1, "Food": 0.5}}
    held = KnownHeads({head: Lesson(concepts) for head, concepts in lessons.items()}, writes)
    monkeypatch.setattr(claims, "taught", lambda model: held if model == "organism" else None)
    screen = links.open_link(app, {"off": "none", "tab": "heads"})

    def card(head):
        update(screen, "inspect", {"head": str(head)})
        found = regions(screen)
        return " ".join(found["main"].split()), len(re.findall(r'class="cell[^"]* taught"', found["left"]))

    main, taught = card(flags)
    guesses = re.findall(r'<option value="([^"]*)"', main[main.index("Your guess") :])
    assert guesses == ["", "Colors", "Flags", "several concepts", "left free"]
    assert "Known:" not in main
    assert taught == 0
    with pytest.raises(InputError, match="no concept 'Tools'"):
        update(screen, "guess", {"value": "Tools"})
    update(screen, "guess", {"value": "Flags"})
    main, taught = card(flags)
    assert "taught <b>Flags</b> while the model learned; 80% of what it writes goes with the flag." in main
    assert "Your guess, Flags, was right; 1 of 1 right so far." in main
    assert taught == 1
    assert "Known:" not in card(free)[0]  # guessed head by head
    update(screen, "guess", {"value": "Colors"})
    main, _ = card(free)
    assert "what it writes goes most with the color of the frame (41%)." in main
    assert "Your guess, Colors, was wrong; 1 of 2 right so far." in main
    update(screen, "reveal", {})
    assert "taught <b>Food (60%), Flags (40%)</b> while the model learned" in card(mixed)[0]
    main, taught = card(colors)
    assert "20% of what it writes goes with the color of the frame, 31% with the flag." in main
    assert "Your guess" not in main
    assert taught == 3
    update(screen, "inspect", {"head": "L4.H0"})
    with pytest.raises(InputError, match="nothing is known"):
        update(screen, "guess", {"value": "Flags"})


def test_a_failure_is_told_and_the_page_goes_on(app, monkeypatch):
    screen = links.open_link(app, {"tab": "classify"})
    monkeypatch.setattr(VIEWS["classify"], "render", lambda *_: 1 / 0)
    *_, (_, last) = act(app, screen.session, {"do": "off", "off": "L7.H1"})
    assert "This view cannot be shown" in last["main"]
    assert "1 head off" in last["strip"]
    monkeypatch.undo()
    *_, (_, last) = act(app, screen.session, {"do": "off", "off": ""})
    assert "before and after agree" in last["main"]
    updates = [html for _, html in act(app, None, {"do": "off", "off": ""})]
    assert any("idle too long" in html.get("top", "") for html in updates)
