"""The split into a general and an occupation-specific preference, against plain loops and known answers."""

from itertools import product

import numpy as np
import pytest

from ccs.analysis.preference import measure_part_changes
from ccs.metrics import preference
from ccs.metrics.ranking import Ranking, cosines
from ccs.texts.prompts import NONSENSE

GROUPS = np.repeat(["a", "b", "c"], 60)
EVERYBODY = np.array([1.0, 0.0, -1.0])
OCCUPATIONS = 12


def scores(shared: float, specific: float, *, noise: float = 1.0, seed: int = 0) -> np.ndarray:
    """Logits [prompts, images] with a preference of all prompts and one of each prompt, of these sizes."""
    rng = np.random.default_rng(seed)
    of_prompts = rng.standard_normal((OCCUPATIONS, 3))
    preferences = shared * EVERYBODY + specific * (of_prompts - of_prompts.mean(1, keepdims=True))
    # An image that every prompt likes is noise of all prompts.
    same_for_all = rng.standard_normal(len(GROUPS))
    images = noise * (same_for_all + rng.standard_normal((OCCUPATIONS, len(GROUPS))))
    return np.repeat(preferences, 60, axis=1) + images


VERDICTS = {
    "mostly a general preference": (2.0, 0.1),
    "mostly specific to occupations": (0.1, 2.0),
    "both": (0.8, 1.1),
    "no evidence of either": (0.0, 0.0),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_known_preference_has_its_verdict(verdict):
    shared, specific = VERDICTS[verdict]
    split = preference.split(scores(shared, specific), GROUPS, draws=300)
    assert split.verdict == verdict
    if verdict != "no evidence of either":
        known = 2 * shared**2 / (2 * shared**2 + 2 * specific**2)
        assert split.share.low <= known <= split.share.high
    if shared > specific:
        assert split.preferred_group == "a"
        assert split.chance.high < split.share.low


def test_a_share_whose_interval_allows_either_part_is_undecided():
    few, many = (preference.split(scores(0.1, 2.0)[:prompts], GROUPS, draws=300) for prompts in (2, 20))
    assert (few.verdict, many.verdict) == ("undecided", "mostly specific to occupations")
    assert few.share.high > 2 / 3 > many.share.high


def test_the_parts_are_mean_products_of_different_blocks_and_prompts():
    logits, codes = scores(0.5, 0.5)[:4, ::6], np.repeat([0, 1, 2], 10)
    cells = preference.block_scores(logits, codes)
    prompts, blocks, _ = cells.shape
    same, other = [], []
    for p, q, a, b in product(range(prompts), range(prompts), range(blocks), range(blocks)):
        if a != b:
            (same if p == q else other).append(cells[p, a] @ cells[q, b])
    wanted = {"total": np.mean(same), "general": np.mean(other), "specific": np.mean(same) - np.mean(other)}
    parts = preference.measure_parts(logits, codes)
    assert {name: getattr(parts, name)[0] for name in wanted} == pytest.approx(wanted)


def test_noise_that_all_prompts_share_is_no_general_preference():
    verdicts = [preference.split(scores(0, 0, seed=seed), GROUPS, draws=200).verdict for seed in range(20)]
    assert verdicts.count("no evidence of either") >= 17


def test_units_stay_together():
    """Four copies of each image are no more evidence than one, and copies do not count as pairs."""
    logits, codes = scores(0.4, 0.4)[:, ::3], np.repeat([0, 1, 2], 20)
    once = preference.measure_parts(logits, codes, units=np.tile(np.arange(20), 3))
    copied = preference.measure_parts(np.tile(logits, 4), np.tile(codes, 4), units=np.tile(np.arange(20), 12))
    assert [copied.total[0], copied.general[0]] == pytest.approx([once.total[0], once.general[0]])


def test_whom_a_prompt_puts_first():
    likes_b = np.where(GROUPS == "b", 1.0, 0.0)
    first = preference.first_groups(["x"], likes_b[None], GROUPS, 30)[0]
    assert (first.group, first.share, first.by_chance) == ("b", 1.0, False)
    assert first.max_skew == pytest.approx(np.log(3))
    mixed = preference.first_groups(["x"], np.random.default_rng(0).random((1, 180)), GROUPS, 30)[0]
    assert mixed.by_chance


def test_nonsense_is_made_of_pieces_of_the_vocabulary():
    tokenizer = pytest.importorskip("open_clip").tokenizer.SimpleTokenizer()
    assert all(len(tokenizer.encode(word)) > 1 for word in NONSENSE)


def test_heads_that_make_a_preference_move_its_part():
    """The first head likes a group for every prompt, the second a different group for each half of them."""
    rng = np.random.default_rng(0)
    plain = np.hstack([0.02 * rng.standard_normal((180, OCCUPATIONS)), np.ones((180, 1))])
    general = 0.2 * (GROUPS == "a")[:, None] * np.ones(OCCUPATIONS)
    specific = 0.2 * (GROUPS == "b")[:, None] * np.tile([1, -1], OCCUPATIONS // 2)
    added = [np.hstack([part, np.zeros((180, 1))]) for part in (general, specific)]
    ranking = Ranking(np.eye(OCCUPATIONS + 1)[:-1], GROUPS, k=20)
    changed = [plain + sum(added), plain + added[1], plain + added[0]]
    effects = measure_part_changes([cosines(ranking.prompts, images) for images in changed], ranking)
    assert [effect.moves for effect in effects] == ["general", "specific"]
    assert effects[0].general.value < 0
    assert effects[1].specific.value < 0


def test_the_chance_level_is_that_of_prompts_with_shuffled_groups():
    values = scores(1.0, 1.5, noise=0.01)
    split = preference.split(values, GROUPS, draws=1000, seed=0)
    gaps = values.reshape(OCCUPATIONS, 3, 60).mean(2)
    gaps -= gaps.mean(axis=1, keepdims=True)
    rng, shares = np.random.default_rng(7), []
    for _ in range(1000):
        shuffled = np.stack([rng.permutation(row) for row in gaps])
        products = shuffled @ shuffled.T
        across = (products.sum() - products.trace()) / (OCCUPATIONS * (OCCUPATIONS - 1))
        shares.append(across / (products.trace() / OCCUPATIONS))
    assert split.chance.high == pytest.approx(np.percentile(shares, 97.5), abs=0.05)
    assert split.chance.low == 0.0  # shares below 0 are clipped
    assert 0.1 < split.chance.high < 0.5
