"""The labeler: its examples, the answers it accepts, its cache, and causes of missing labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ccs.heads import Head
from ccs.judges.panel import Labeler
from ccs.judges.question import worked_examples
from ccs.judges.settings import JudgeSettings
from ccs.paper.figures import examples
from tests.support.llm_providers import OpenAIServer
from tests.support.llm_server import Act

TEXTS = {
    Head(0, 1): ("a red door", "a blue sky", "green"),
    Head(0, 2): ("a lion", "a horse", "a beach"),
}


def name_it(user: str, schema: Mapping[str, Any]) -> str:
    texts = json.loads(user)["texts"]
    return concept("colours" if "a red door" in texts.values() else "ANIMAL")


def concept(name: str) -> str:
    return json.dumps({"reason": "Most of them are.", "concept": name})


def test_labels_are_normalized_and_cached(settings: JudgeSettings) -> None:
    with OpenAIServer(name_it) as server:
        labeler = Labeler(server.spec, settings)
        labels = labeler.label(TEXTS)
        assert labels == {Head(0, 1): "Colors", Head(0, 2): "Animals"}
        assert labeler.given == {Head(0, 1): "colours", Head(0, 2): "ANIMAL"}
        assert Labeler(server.spec, settings).label(TEXTS) == labels
        assert len(server.asked) == 2


def test_five_worked_examples_are_shown(settings: JudgeSettings) -> None:
    with OpenAIServer(name_it) as server:
        Labeler(server.spec, settings).label(TEXTS)
        (first, _) = server.asked
    assert first.system.count("\nconcept: ") == 5
    for example in worked_examples(Head(0, 1), TEXTS[Head(0, 1)]):
        assert json.dumps(example.label) in first.system
        assert all(text in first.system for text in example.printed)
    assert list(json.loads(first.user)) == ["texts"]


def test_the_studys_misprint_is_quoted_unless_repaired(settings: JudgeSettings) -> None:
    shown = [
        Labeler("openai", replace(settings, repaired_examples=repaired)).request(Head(0, 1), ("x",)).system
        for repaired in (False, True)
    ]
    assert ["Intrica wood carvingte" in system for system in shown] == [True, False]
    assert shown[0].replace("Intrica wood carvingte", "Intricate wood carving") == shown[1]


def test_no_example_is_the_head_being_labeled() -> None:
    every = examples()
    for example in every:
        by_name = worked_examples(example.head, ("x", "y"))
        by_texts = worked_examples(Head(0, 0), example.texts[:3])
        for shown in (by_name, by_texts):
            assert len({each.texts for each in shown}) == 5
            assert example not in shown
    levels = [each.level for each in worked_examples(Head(0, 0), ("x",))]
    assert set(levels) == {"high", "moderate", "low"}


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (Act("refuse"), "refusal"),
        (Act("reply", concept("?!")), "off-schema: concept is empty"),
    ],
)
def test_no_label_comes_with_its_cause(settings: JudgeSettings, act: Act, cause: str) -> None:
    with OpenAIServer(name_it) as server:
        server.acts.append(act)
        labeler = Labeler(server.spec, settings)
        assert labeler.label({Head(0, 1): TEXTS[Head(0, 1)]})[Head(0, 1)] is None
        assert labeler.causes[Head(0, 1)].startswith(cause)
        assert labeler.label({Head(0, 1): TEXTS[Head(0, 1)]})[Head(0, 1)] == "Colors"
