"""Searches kept beside results: read back as written, replaced by the same question, useless where stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ccs import InputError
from ccs.pruning.plans import Plan
from ccs.pruning.search import Limits, search
from ccs.results import searches
from ccs.results.searches import Search
from tests.results.test_search import ToyModel, toy

LIMITS = Limits(max_loss=0.03, least=0.04)


@pytest.fixture(scope="module")
def made() -> Search:
    beside = [Plan("random", 3, ToyModel.heads - {*list(ToyModel.heads)[:4]}, "")]
    found = search(ToyModel(), toy(), LIMITS, beside=beside)
    return Search(
        model="ViT/toy",
        weights_hash="ab" * 32,
        people="faces",
        attribute="gender",
        things="subjects",
        prompts=("a cook", "a judge"),
        templates=("{}",),
        k=60,
        seed=0,
        limits=LIMITS,
        heads=found.off,
        seen=(*found.singles, *found.path),
        unseen=found.held_out,
    )


def test_a_search_is_read_as_it_was_written(made: Search, tmp_path: Path) -> None:
    path = searches.keep(tmp_path, made)
    assert path == tmp_path / "ViT--toy.search.json"
    assert list(tmp_path.iterdir()) == [path]
    assert searches.beside(tmp_path, made.model, made.weights_hash) == (made,)
    assert {one.plan for one in made.unseen} == {"none", "searched", "step 1", "random"}
    assert [one.seed for one in made.unseen if one.plan == "random"] == [3]


def test_the_same_question_is_kept_once_and_another_beside_it(made: Search, tmp_path: Path) -> None:
    again, other = replace(made, seed=7), replace(made, attribute="skin tone")
    for one in (made, other, again):
        searches.keep(tmp_path, one)
    assert searches.beside(tmp_path, made.model, made.weights_hash) == (again, other)


def test_searches_of_other_weights_are_left_out(made: Search, tmp_path: Path) -> None:
    path = searches.keep(tmp_path, made)
    assert searches.beside(tmp_path, made.model, "cd" * 32) == ()
    fresh = replace(made, weights_hash="cd" * 32, attribute="skin tone")
    assert searches.keep(tmp_path, fresh) == path
    assert searches.beside(tmp_path, made.model, "cd" * 32) == (fresh,)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 9, "searches": []}', '{"version": 1, "searches": [{"k": 1}]}']
)
def test_a_broken_file_is_nothing_to_the_reader_and_an_error_to_the_writer(
    text: str, made: Search, tmp_path: Path
) -> None:
    path = searches.place(tmp_path, made.model)
    path.write_text(text, "utf-8")
    assert searches.beside(tmp_path, made.model, made.weights_hash) == ()
    with pytest.raises(InputError, match=r"search\.json"):
        searches.keep(tmp_path, made)
    assert path.read_text("utf-8") == text
