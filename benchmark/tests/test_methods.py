"""Localization methods on a model in which the head that writes the groups is known."""

from dataclasses import replace

import numpy as np
import pytest

from benchmark.tests.locate_sample import WRITER
from ccs import Head, HeadSet
from ccs.analysis.evidence import rank_heads
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span
from ccs_benchmark import contributions, methods

NOT_FROM_IMAGES = {"CCS high first", "CCS low first", "label People", "TEXTSPAN, texts of the groups"}
NOT_FROM_IMAGES |= {"mechanistic audit", "SITH", "Locate-Then-Correct", methods.RANDOM}
FROM_IMAGES = [name for name in methods.METHODS if name not in NOT_FROM_IMAGES]
# Swapping a head's groups reverses its score gap. Only the signed gap shows that.
GRID = [name for name in methods.GRID if not name.startswith("resample") or name.endswith("signed score gap")]


@pytest.mark.parametrize("name", [*FROM_IMAGES, *GRID, "TEXTSPAN, texts of the groups"])
def test_method_ranks_the_head_that_writes_the_groups_first(evidence, name):
    """It must score lower with random groups, so that a method can't name it only because it writes most."""
    find = {**methods.METHODS, **methods.GRID}[name]
    scores = find(evidence)
    assert (HeadSet(scores), rank_heads(scores)[0]) == (evidence.model.heads, WRITER)
    if name in FROM_IMAGES:
        random_groups = np.random.default_rng(4).permutation(np.asarray(evidence.task.groups))
        random_task = replace(evidence.task, groups=random_groups)
        other = replace(evidence, task=random_task, names={"one": ("a",), "two": ("b",)})
        assert find(other)[WRITER] < scores[WRITER]


def test_locate_then_correct_separates_heads_of_biased_answers(evidence):
    """WRITER leads group 0 to the first prompt, except five people. Another head leads all others."""
    codes = np.arange(40) % 2
    right, other = np.isin(np.arange(40), range(0, 10, 2)), Head(5, 1)
    heads = list(evidence.model.heads)
    direct = np.zeros((40, len(heads), 3), np.float32)
    direct[:, heads.index(Head(2, 0)), 2] = 1  # writes most, but along no prompt
    direct[(codes == 0) & ~right, heads.index(WRITER), 0] = 0.3
    direct[right | (codes == 1), heads.index(other), 1] = 0.3
    task = replace(evidence.task, groups=codes.astype(str), prompts=np.eye(3)[:2])
    biased_evidence = replace(evidence, task=task)
    vars(biased_evidence)["seen"] = direct.sum(axis=1), direct
    scores = methods.METHODS["Locate-Then-Correct"](biased_evidence)
    assert (scores[WRITER], scores[other]) == (1, -1)
    assert {score for head, score in scores.items() if head not in (WRITER, other)} == {0}


def test_ccs_and_label_methods_order_heads(evidence):
    chosen_heads = list(evidence.model.heads)[:4]

    def order(name, shares, ccs, labels=["Colors"] * 4):
        """Order four heads by their shares of a text of women and of one of colors, their CCS, and labels."""
        spans = [[Span(f"text {i}", share, i) for i, share in enumerate(of_head)] for of_head in shares]
        scores = dict(zip(chosen_heads, map(HeadScore, ccs, labels), strict=True))
        reading = replace(evidence.reading, spans=dict(zip(chosen_heads, spans, strict=True)), scores=scores)
        ranked = rank_heads(methods.METHODS[name](replace(evidence, read=lambda: reading)))
        return [chosen_heads.index(head) for head in ranked]

    shares = ((0, 0.1), (0, 0.2), (0, 0.9), (0, 0.3))
    assert order("CCS high first", shares, (5, 5, None, 0)) == [1, 0, 3, 2]
    assert order("CCS low first", shares, (5, 5, None, 0)) == [3, 0, 1, 2]
    shares = ((0, 0.9), (0.1, 0.3), (0.4, 0.3), (0.1, 0.1))
    assert order("label People", shares, [5] * 4, ("Colors", "Women", "Colors", None)) == [1, 2, 3, 0]


def test_pursuit_recovers_a_sparse_combination_of_texts():
    direction = np.array([0.8, 0, 0.6, 0, 0, 0])
    assert contributions.coherent(direction, np.eye(6)) == pytest.approx(direction)
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((5, 12))
    rows = rng.standard_normal((30, 2)) @ texts[[1, 3]]
    assert contributions.rebuilt(rows, texts, 2) == pytest.approx(1)
    basis = np.linalg.qr(texts.T)[0]
    noise = rng.standard_normal((30, 12))
    # With all texts, the explained share is that of their span.
    expected = np.square((rows + noise) @ basis).sum() / np.square(rows + noise).sum()
    assert contributions.rebuilt(rows + noise, texts) == pytest.approx(expected)


def test_value_output_weights_equal_the_modules(evidence):
    """Compare them with the product of the named parameters and the readout of the first token."""
    model, head = evidence.model, Head(4, 1)
    visual = model.clip.visual
    attention, width = visual.transformer.resblocks[4].attn, model.encoder.width
    rows = slice(2 * width + width // 4, 2 * width + width // 2)
    columns = slice(width // 4, width // 2)
    written = attention.in_proj_weight[rows].T @ attention.out_proj.weight[:, columns].T
    expected = (written * visual.ln_post.weight) @ visual.proj
    assert np.allclose(contributions.value_output(model, head), expected.detach().numpy(), atol=1e-5)


def test_audit_ranks_heads_named_by_both_parts_first(evidence):
    vectors, texts = contributions.concept_vectors(evidence), contributions.group_texts(evidence)
    scores = contributions.audit(evidence)
    named_by_both = {head for head in scores if scores[head] > 1}
    assert WRITER in named_by_both
    mean = np.mean(list(vectors.values()))
    assert named_by_both == {head for head in scores if texts[head] > 0 and vectors[head] > mean}
