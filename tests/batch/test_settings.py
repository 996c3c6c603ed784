"""The command line of batch.compute: defaults, and values that cannot be."""

import re

import pytest

from ccs import paper
from ccs.batch.compute import Settings, parse
from ccs.errors import InputError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--batch-size", "0"], "--batch-size is 0, but must be at least 1."),
        (["--timeout", "0"], "--timeout is 0, but must be above 0 seconds."),
        (["--keep", "inf"], "--keep is inf, but must be a number of bytes, such as 0 or 1e12."),
        (["--workers", "9999"], "--workers is 9999, but must be at most 64."),
        (["--k", "five"], "--k is 'five', but must be whole numbers, such as 5 or 5,7,9."),
        (["--k", "7,5"], "--k is 7,5, but its numbers must rise; the first is the main one."),
    ],
)
def test_options_that_cannot_be(given, said):
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        parse(given)


def test_a_suite_has_the_studys_k_by_default():
    assert Settings().for_model("organism").all_ks == (5,)
    assert Settings(full=True).for_model("organism").all_ks == (5, 7, 9, 11, 13)
    assert Settings(suite="paper").for_model("ViT-B-32/openai").all_ks == (5, 7, 9, 11, 13)
    assert Settings(suite="paper", ks=(7,)).for_model("ViT-B-32/openai").all_ks == (7,)
    other = Settings().for_model("ViT-B-32/openai")
    assert (other.all_ks, other.k) == ((5,), 5)
    described = Settings(ks=(5, 9)).described()
    assert (described["k"], described["further_k"]) == (5, [9])


def test_a_run_on_the_drawn_world_is_quick_unless_it_is_full():
    quick, full = (Settings(full=whole).for_model("organism") for whole in (False, True))
    assert (quick.max_images, quick.eval_images, quick.random_sets) == (600, 120, 10)
    assert (full.max_images, full.eval_images, full.random_sets) == (2000, 400, 200)


def test_the_study_is_one_word_and_what_is_given_beside_it_counts():
    study = parse(["--study"])
    assert study.models == tuple(model.name for model in paper.models())
    assert (study.images, study.texts, study.suite) == ("imagenet", "reference", "paper")
    assert (study.labeler, study.judges, study.precision) == ("study", "study", "fp32")
    assert study.as_published
    assert study.for_model("ViT-B-32/openai").all_ks == (5, 7, 9, 11, 13)
    found = parse(["--labeler", "tags", "--study", "ViT-L-14-LAION", "ViT-B-32/openai", "--texts", "world"])
    assert found.models == ("ViT-L-14/laion2b_s32b_b82k", "ViT-B-32/openai")
    assert (found.labeler, found.texts, found.judges) == ("tags", "world", "study")
    with pytest.raises(InputError, match="The study has no model 'RN50'; its models are ViT-B-32-OpenAI, "):
        parse(["--study", "RN50"])
