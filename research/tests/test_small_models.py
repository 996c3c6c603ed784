"""One small model of each study, from its training to the document about it."""

from dataclasses import replace
from functools import partial

from pydantic import TypeAdapter

import ccs
from ccs.bundled import FILE, KnownHeads
from ccs.heads import HeadSet
from ccs_benchmark import planted_models, variants
from research.bases import lessons, organisms, training
from research.planted import __main__ as planted
from research.planted import bench, family, frozen_images, head_training
from research.text_skew import __main__ as text_skew
from research.text_skew import text_training
from research.world import head_shares


def test_an_organism(base, images, tmp_path, monkeypatch):
    """The trained folder loads like any model. It equals the base except for its upper half.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    few = training.Settings(5, "skewed", (0.3, 0.3), common=1, own=1, scenes=8, lineups=1)
    monkeypatch.setattr(organisms, "settings", lambda name: few)
    monkeypatch.setattr(lessons, "_COUNTED", range(800_000, 800_400))
    monkeypatch.setattr(training, "HELD_OUT", range(900_000, 900_024))
    monkeypatch.setattr(training, "usual_variance", lambda _: 0.5)
    monkeypatch.setattr(head_shares, "CARDS", range(810_000, 810_060))
    organisms.make("organism", base, images, training.Captions(images, tmp_path), tmp_path, tmp_path)
    organism = ccs.load(str(tmp_path / "organism"))
    for name, values in organism.clip.named_parameters():
        same = bool((values == base.clip.get_parameter(name)).all())
        assert same != training.upper(name), name
    known = TypeAdapter(KnownHeads).validate_json((tmp_path / "organism" / FILE).read_bytes())
    assert known.lessons == lessons.drawn(5, list(base.heads))
    assert set(known.shares) == set(base.heads)


def test_a_skew_planted_in_known_heads(base, images, few_people, tmp_path, monkeypatch):
    """A bias is planted with few images. Outside its heads the model equals its base.

    Args:
        base: The base model, trained on few images.
        images: The rendered scenes and faces.
        few_people: Reduces the people that are measured.
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    member = next(member for member in family.family() if member.name == "organism-planted-03")
    few_people()
    monkeypatch.setattr(family, "family", lambda: (member,))
    monkeypatch.setattr(frozen_images, "Images", lambda *_: images)
    monkeypatch.setattr(head_training, "PICTURES", 72)
    planted.train(tmp_path, tmp_path)
    known = planted_models.truth(str(tmp_path / f"{member.name}.safetensors"))
    assert (known.base, known.carries) == (family.BASE, member.carries)
    model, measured = planted_models.load(str(tmp_path / f"{member.name}.safetensors")), bench.Bench(base)
    assert measured.show(model, [member.heads]) == measured.show(base, [member.heads])
    assert measured.show(model, [HeadSet()]) != measured.show(base, [HeadSet()])
    row = f"| {member.name} | {family.BASE} | layer | 0.4 |"
    assert row in planted.summary([member], tmp_path)
    monkeypatch.setattr(head_training, "plant", None)
    planted.train(tmp_path, tmp_path)  # existing models are not trained again


def test_a_skew_that_a_text_encoder_learned(images, few_people, tmp_path, monkeypatch):
    """An image encoder that distinguishes groups, its text encoder, and the table. A second run does nothing.

    Args:
        images: The rendered scenes and faces.
        few_people: Reduces the people that are measured.
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    settings = replace(text_training.family()[0], steps=1)
    few_people(120)  # of three occupations
    monkeypatch.setattr(frozen_images, "Images", lambda *_: images)
    monkeypatch.setattr(text_training, "family", lambda models: (settings,)[:models])
    monkeypatch.setattr(text_training, "separate_groups", partial(text_training.separate_groups, steps=1))
    page = tmp_path / "README.md"
    page.write_bytes(text_skew.README.read_bytes())
    monkeypatch.setattr(text_skew, "README", page)
    command = ["--models", "1", "--planted", "0", "--runs", str(tmp_path)]
    assert text_skew.main(command) == 0
    known = variants.known(str(tmp_path / "text-skew" / f"{settings.name}{variants.SUFFIX}"))
    assert (known["base"], known["strength"]) == (text_training.TELLING, 1.0)
    assert list(known["truth"]) == ["gender", "skin tone"]
    written = page.read_text("utf-8")
    assert "| text-skew-00 | skin tone | text |" in written
    assert "text-skew-01" not in written
    monkeypatch.setattr(text_training, "train", None)
    assert text_skew.main(command) == 0
    assert page.read_text("utf-8") == written
