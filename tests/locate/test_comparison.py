"""Which heads of two models correspond, and which changed: copies of which both are known."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

import ccs
from ccs import Head, HeadSet, InputError
from ccs.batch import command_line
from ccs.batch import compare as command
from ccs.benchmark import planted_models
from ccs.benchmark.planted_models import by_head, slices
from ccs.locate.comparison import compare
from tests.support.app_page import small_gallery
from tests.support.tiny_model import write_tiny_model

TEXTS = ["a dog", "two cats in the snow", "a red house", "the letter A"]


def copied(model, folder, heads, noise=""):
    """The tiny model with each head's weights in the place of another, and noise on some of them."""
    write_tiny_model(folder)
    file = folder / "open_clip_model.safetensors"
    weights, plain = load_file(file), model.clip.state_dict()
    for head, source in heads.items():
        of, to = (slices(model.clip, HeadSet([one])) for one in (source, head))
        for name in to:
            own = by_head(name, plain[name])[of[name]]
            if head in HeadSet.parse(noise):
                own = own + 0.3 * own.std() * torch.randn_like(own)
            by_head(name, weights[name])[to[name]] = own
    save_file(weights, file)
    return folder


def test_a_permuted_copy_matches_head_by_head(tiny_model, tmp_path):
    torch.manual_seed(0)
    turned = {head: Head(head.layer, (head.head + 1 + head.layer) % 4) for head in tiny_model.heads}
    other = ccs.load(str(copied(tiny_model, tmp_path / "turned", turned)))
    x = torch.randn(8, 3, 32, 32)
    np.testing.assert_allclose(other.embed_images(x), tiny_model.embed_images(x), atol=1e-5)
    pairs = compare(tiny_model, other, x, TEXTS)
    assert {pair.second: pair.first for pair in pairs} == turned
    assert min(pair.alike for pair in pairs) == pytest.approx(1, abs=1e-4)
    assert max(pair.changed or 0 for pair in pairs) < 1e-6


def test_heads_that_were_trained_come_first_and_alone(tiny_model, tmp_path):
    torch.manual_seed(0)
    trained = HeadSet.parse("L2.H1 L3.H0 L5.H3")
    same = {head: head for head in tiny_model.heads}
    other = ccs.load(str(copied(tiny_model, tmp_path / "trained", same, str(trained))))
    x = torch.randn(8, 3, 32, 32)
    pairs = compare(tiny_model, other, x, TEXTS)
    assert HeadSet(pair.first for pair in pairs[:3]) == trained
    assert all(pair.changed < 1e-6 < pairs[2].changed for pair in pairs[3:])
    with pytest.raises(InputError, match="Two or more images and texts"):
        compare(tiny_model, other, x, TEXTS[:1])


@pytest.mark.parametrize("built", [{"embed_dim": 20, "width": 64}, {}])
def test_models_of_which_none_was_made_from_the_other(tiny_model, tmp_path, built):
    wide = ccs.load(str(write_tiny_model(tmp_path / "wide", seed=7, **built)))
    pairs = compare(tiny_model, wide, torch.randn(8, 3, 32, 32), TEXTS)
    assert len(pairs) == len(tiny_model.heads)
    assert {pair.changed for pair in pairs} == {None}
    assert [pair.alike for pair in pairs] == sorted(pair.alike for pair in pairs)


def test_the_command_lists_the_heads_that_changed(tmp_path, monkeypatch, capsys):
    """A model with planted heads and its base, neither of which `ccs.load` knows."""
    file = tmp_path / "heads.csv"
    monkeypatch.setattr(command, "open_gallery", lambda *_, **__: small_gallery(60))
    words = ["compare", "organism-first", "organism-planted-03", "--max-images", "8", "--heads", "4"]
    assert command_line.main([*words, "--csv", str(file)]) == 0
    said, table = capsys.readouterr().out, pd.read_csv(file)
    known = planted_models.truth("organism-planted-03").heads
    assert {Head.parse(head) for head in table["first"][table["changed"] > 0]} == set(known)
    assert all(str(head) in said for head in known)
