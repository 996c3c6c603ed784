"""Every architecture of open_clip, shrunk: accepted and exact, or refused with the reason."""

from __future__ import annotations

from collections import Counter

import numpy as np
import open_clip
import pytest
import torch

from benchmarks.towers import plain, sharpen, zeroed
from ccs import Head, HeadSet, InputError
from ccs.model.tower import ImageTower
from tests.support import shrunk
from tests.support.towers import TOLERANCE

REFUSED = {"ConvNeXt": 11, "FastVit": 6, "SwinTransformer": 1}
ARCHITECTURES = [
    name
    for name in open_clip.list_models()
    if not name.startswith(("convnext", "swin", "MobileCLIP-S", "MobileCLIP2-S"))
]


@pytest.mark.parametrize("sharp", [False, True], ids=["", "sharp"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_accepted_architecture_is_exact(name: str, sharp: bool) -> None:
    visual = shrunk.tower(name)
    if sharp:
        sharpen(visual)
    tower = ImageTower(visual)
    x = torch.randn(2, 3, *tower.image_size, generator=torch.Generator().manual_seed(1))
    off = HeadSet(list(tower.all_heads)[::3])
    last = HeadSet([Head(tower.n_layers - 1, 0)])
    found, readout = tower.embed_and_read(x, [off, last], entering=True)
    direct, rest = tower.contributions(readout)
    expected = plain(visual, x)
    np.testing.assert_allclose(readout.unit, expected, atol=TOLERANCE)
    np.testing.assert_allclose(direct.sum(1) + rest, expected, atol=TOLERANCE)
    along = torch.eye(tower.dim)[:2]
    every = iter(direct.transpose(0, 1) @ along.T)  # heads by layer
    for number, layer in enumerate(tower.layers):
        for sent in tower.by_token(readout, number, range(layer.n_heads), along):
            np.testing.assert_allclose(sent.sum(-1), next(every), atol=1e-6)
    for plan, embedded in zip((off, last), found, strict=True):
        without = plain(zeroed(visual, plan), x)
        np.testing.assert_allclose(embedded, without, atol=TOLERANCE)
        assert (without - expected).abs().max() > 1e-4


def test_all_other_architectures_are_refused_with_the_reason() -> None:
    """126 of 144 architectures can be taken apart; a new version of open_clip fails here."""
    met: Counter[str] = Counter()
    for name in set(open_clip.list_models()) - set(ARCHITECTURES):
        with torch.device("meta"):
            visual = shrunk.tower(name, shaken=False)
        with pytest.raises(
            InputError, match="built of no layers of attention heads that are known"
        ) as caught:
            ImageTower(visual)
        met[str(caught.value).split()[3]] += 1
    assert (len(ARCHITECTURES), met) == (126, REFUSED)
