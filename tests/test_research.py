"""One small model of each study in research/, from its training to what its page says of it."""

import io
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from pydantic import TypeAdapter

import ccs
from ccs.benchmark import planted_models, variants
from ccs.embedded import FILE, KnownHeads
from ccs.heads import HeadSet
from ccs.sets import drawn_sets
from research.bases import lessons, organisms, training
from research.photographs import __main__ as photographs
from research.photographs.photograph_captions import classes
from research.planted import __main__ as planted
from research.planted import bench, family, frozen_images, head_training
from research.text_skew import __main__ as text_skew
from research.text_skew import text_training
from research.world import head_shares, organism_training


def test_the_first_model(tmp_path):
    """Both phases, in a folder that loads like any model; every head is one of the tower's."""
    settings = organism_training.Settings(shared=32, own=32, batch_size=32)
    organism_training.train(settings, tmp_path / "runs", tmp_path / "organism", workers=0)
    model = ccs.load(str(tmp_path / "organism"))
    assert model.heads == ccs.load("organism").heads
    assert np.isfinite(model.embed_images([drawn_sets.image_set(1).images[0]])).all()


def test_an_organism(tmp_path, monkeypatch):
    """A folder that loads like any model: the first one but for its upper half, with its heads' lessons."""
    first = variants.load(family.BASE)
    few = training.Settings(5, "skewed", 0.3, common=1, own=1, scenes=8, lineups=1)
    monkeypatch.setattr(organisms, "settings", lambda name: few)
    monkeypatch.setattr(lessons, "_COUNTED", range(800_000, 800_400))
    monkeypatch.setattr(training, "HELD_OUT", range(900_000, 900_024))
    monkeypatch.setattr(training, "usual_variance", lambda _: 0.5)
    monkeypatch.setattr(head_shares, "CARDS", range(810_000, 810_060))
    images = frozen_images.Images(first, tmp_path, 24, 4)
    organisms.make("organism", first, images, training.Captions(images, tmp_path), tmp_path, tmp_path)
    made = ccs.load(str(tmp_path / "organism"))
    for name, values in made.clip.named_parameters():
        same = bool((values == first.clip.get_parameter(name)).all())
        assert same != training.upper(name), name
    known = TypeAdapter(KnownHeads).validate_json((tmp_path / "organism" / FILE).read_bytes())
    assert known.lessons == lessons.drawn(5, list(first.heads))
    assert set(known.shares) == set(first.heads)


def test_a_model_of_photographs(tmp_path):
    """The command, over eight photographs of noise."""
    rng, encoded = np.random.default_rng(0), []
    for _ in range(8):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file, "webp")
        encoded.append(file.getvalue())
    names = [classes()[i % 2].wnid for i in range(8)]
    pq.write_table(pa.table({"image": encoded, "wnid": names}), tmp_path / "few.parquet")
    command = ["--images", "8", "--batch-size", "4", "--held-out", "1", "--device", "cpu"]
    command += ["--photographs", str(tmp_path / "few.parquet"), "--runs", str(tmp_path / "runs")]
    assert photographs.main([*command, "--out", str(tmp_path / "photo")]) == 0
    assert ccs.load(str(tmp_path / "photo")).embed_texts(["a dog"]).shape == (1, 128)


def few_people(monkeypatch, count=40):
    """As many people in each set, and twenty subjects."""
    made, things = drawn_sets.bias_set, drawn_sets.classification_set("subjects", 20)

    def few(name):
        whole = made(name)
        groups = {attribute: own[:count] for attribute, own in whole.groups.items()}
        few = replace(whole, images=whole.images[:count], groups=groups, k=dict.fromkeys(groups, 8))
        if whole.pools is None or whole.units is None:
            return few
        pools = whole.pools[:count]
        return replace(few, pools=pools, units=whole.units[:count], occupations=(*dict.fromkeys(pools),))

    monkeypatch.setattr(drawn_sets, "bias_set", few)
    monkeypatch.setattr(drawn_sets, "classification_set", lambda _: things)


def test_a_skew_planted_in_known_heads(tmp_path, monkeypatch):
    """Planted with few images, and what the table says: outside its heads it is its base."""
    one = next(one for one in family.family() if one.name == "organism-planted-03")
    few_people(monkeypatch)
    images = frozen_images.Images(variants.load(family.BASE), tmp_path, 72, 4)
    monkeypatch.setattr(family, "family", lambda: (one,))
    monkeypatch.setattr(frozen_images, "Images", lambda *_: images)
    monkeypatch.setattr(head_training, "PICTURES", 72)
    monkeypatch.setattr(bench, "SCENES", 40)
    planted.train(tmp_path, tmp_path)
    known = planted_models.truth(str(tmp_path / f"{one.name}.safetensors"))
    assert (known.base, known.carries) == (family.BASE, one.carries)
    base, model = variants.load(family.BASE), planted_models.load(str(tmp_path / f"{one.name}.safetensors"))
    measured = bench.Bench(base)
    assert measured.show(model, [one.heads]) == measured.show(base, [one.heads])
    assert measured.show(model, [HeadSet()]) != measured.show(base, [HeadSet()])
    row = f"| {one.name} | {family.BASE} | layer | 0.4 |"
    assert row in planted.summary([one], tmp_path)


def test_a_skew_that_a_text_tower_learned(tmp_path, monkeypatch):
    """The command, from an image tower that tells groups apart to the table; a second time nothing learns."""
    images = frozen_images.Images(variants.load(text_training.BASE), tmp_path, 12, 4)
    one = replace(text_training.family()[0], steps=1)
    few_people(monkeypatch, 120)  # of three occupations
    monkeypatch.setattr(frozen_images, "Images", lambda *_: images)
    monkeypatch.setattr(text_training, "family", lambda models: (one,)[:models])
    monkeypatch.setattr(text_training, "teach_telling", partial(text_training.teach_telling, steps=1))
    page = tmp_path / "README.md"
    page.write_bytes(text_skew.README.read_bytes())
    monkeypatch.setattr(text_skew, "README", page)
    command = ["--models", "1", "--planted", "0", "--runs", str(tmp_path)]
    assert text_skew.main(command) == 0
    known = variants.known(str(tmp_path / "text-skew" / f"{one.name}{variants.SUFFIX}"))
    assert (known["base"], known["strength"]) == (text_training.TELLING, 1.0)
    assert list(known["truth"]) == ["gender", "skin tone"]
    written = page.read_text("utf-8")
    assert "| text-skew-00 | skin tone | text |" in written
    assert "text-skew-01" not in written
    monkeypatch.setattr(text_training, "train", None)
    assert text_skew.main(command) == 0
    assert page.read_text("utf-8") == written
