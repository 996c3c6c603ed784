"""The split into a general and an occupation-specific preference, against plain loops and known answers."""

from itertools import product

import numpy as np
import pytest
from open_clip.tokenizer import SimpleTokenizer

from ccs.analysis.preference import measure_part_changes
from ccs.metrics import preference
from ccs.metrics.ranking import Ranking, cosines
from ccs.texts.prompts import NONSENSE

GROUPS = np.repeat(["a", "b", "c"], 60)
N_PROMPTS = 12


def draw_logits(general, specific, *, noise=1.0, seed=0):
    """Draw logits [prompts, images] with preferences of known sizes, one general and one of each prompt."""
    rng = np.random.default_rng(seed)
    of_prompts = rng.standard_normal((N_PROMPTS, 3))
    of_prompts -= of_prompts.mean(1, keepdims=True)
    preferences = general * np.array([1.0, 0.0, -1.0]) + specific * of_prompts
    shared_noise = rng.standard_normal(len(GROUPS))  # all prompts like some images
    images = noise * (shared_noise + rng.standard_normal((N_PROMPTS, len(GROUPS))))
    return np.repeat(preferences, 60, axis=1) + images


SIZES = {
    "mostly a general preference": (2.0, 0.1),
    "mostly specific to occupations": (0.1, 2.0),
    "both": (0.8, 1.1),
    "no evidence of either": (0.0, 0.0),
}


@pytest.mark.parametrize("verdict", SIZES)
def test_split_reaches_verdict_of_known_preference(verdict):
    general, specific = SIZES[verdict]
    split = preference.split(draw_logits(general, specific), GROUPS, draws=300)
    assert split.verdict == verdict
    if verdict != "no evidence of either":
        share = 2 * general**2 / (2 * general**2 + 2 * specific**2)
        assert split.share.low <= share <= split.share.high
    if general > specific:
        assert split.preferred_group == "a"
        assert split.chance.high < split.share.low


def test_split_with_wide_interval_is_undecided():
    few, many = (preference.split(draw_logits(0.1, 2.0)[:n], GROUPS, draws=300) for n in (2, 20))
    assert (few.verdict, many.verdict) == ("undecided", "mostly specific to occupations")
    assert few.share.high > 2 / 3 > many.share.high


def test_parts_are_mean_products_of_different_blocks_and_prompts():
    logits, codes = draw_logits(0.5, 0.5)[:4, ::6], np.repeat([0, 1, 2], 10)
    cells = preference.block_scores(logits, codes)
    prompts, blocks, _ = cells.shape
    same, other = [], []
    for p, q, a, b in product(range(prompts), range(prompts), range(blocks), range(blocks)):
        if a != b:
            (same if p == q else other).append(cells[p, a] @ cells[q, b])
    expected = {"total": np.mean(same), "general": np.mean(other), "specific": np.mean(same) - np.mean(other)}
    parts = preference.measure_parts(logits, codes)
    assert {name: getattr(parts, name)[0] for name in expected} == pytest.approx(expected)


def test_noise_shared_by_prompts_is_not_a_general_preference():
    splits = [preference.split(draw_logits(0, 0, seed=seed), GROUPS, draws=100) for seed in range(20)]
    assert [split.verdict for split in splits].count("no evidence of either") >= 17


def test_copies_of_a_unit_add_no_evidence():
    logits, codes, units = draw_logits(0.4, 0.4)[:, ::3], np.repeat([0, 1, 2], 20), np.tile(np.arange(20), 3)
    once = preference.measure_parts(logits, codes, units=units)
    copied = preference.measure_parts(np.tile(logits, 4), np.tile(codes, 4), units=np.tile(units, 4))
    assert [copied.total[0], copied.general[0]] == pytest.approx([once.total[0], once.general[0]])


def test_first_group_of_prompt_is_compared_with_chance():
    likes_b = np.where(GROUPS == "b", 1.0, 0.0)
    first = preference.first_groups(["x"], likes_b[None], GROUPS, 30)[0]
    assert (first.group, first.share, first.by_chance) == ("b", 1.0, False)
    assert first.max_skew == pytest.approx(np.log(3))
    mixed = preference.first_groups(["x"], np.random.default_rng(0).random((1, 180)), GROUPS, 30)[0]
    assert mixed.by_chance


def test_nonsense_words_are_not_in_the_vocabulary():
    tokenizer = SimpleTokenizer()
    assert all(len(tokenizer.encode(word)) > 1 for word in NONSENSE)


def test_ablating_cause_of_preference_changes_its_part():
    """The first change removes a preference of all prompts, the second one that differs between prompts."""
    rng = np.random.default_rng(0)
    neutral = np.hstack([0.02 * rng.standard_normal((180, N_PROMPTS)), np.ones((180, 1))])
    general = 0.2 * (GROUPS == "a")[:, None] * np.ones(N_PROMPTS)
    specific = 0.2 * (GROUPS == "b")[:, None] * np.tile([1, -1], N_PROMPTS // 2)
    added = [np.hstack([part, np.zeros((180, 1))]) for part in (general, specific)]
    ranking = Ranking(np.eye(N_PROMPTS + 1)[:-1], GROUPS, k=20)
    embeddings = [neutral + sum(added), neutral + added[1], neutral + added[0]]
    effects = measure_part_changes([cosines(ranking.prompts, images) for images in embeddings], ranking)
    assert [effect.moves for effect in effects] == ["general", "specific"]
    assert effects[0].general.value < 0
    assert effects[1].specific.value < 0


def test_chance_level_matches_shuffled_groups():
    logits = draw_logits(1.0, 1.5, noise=0.01)
    split = preference.split(logits, GROUPS, draws=1000, seed=0)
    gaps = logits.reshape(N_PROMPTS, 3, 60).mean(2)
    gaps -= gaps.mean(axis=1, keepdims=True)
    rng, shares = np.random.default_rng(7), []
    for _ in range(1000):
        shuffled = rng.permuted(gaps, axis=1)
        products = shuffled @ shuffled.T
        across = (products.sum() - products.trace()) / (N_PROMPTS * (N_PROMPTS - 1))
        shares.append(across / (products.trace() / N_PROMPTS))
    assert split.chance.high == pytest.approx(np.percentile(shares, 97.5), abs=0.05)
    assert split.chance.low == 0.0  # shares below 0 are clipped
    assert 0.1 < split.chance.high < 0.5
