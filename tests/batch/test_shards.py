"""How the work of a run is cut: shards, batches, and what is done where memory is short."""

from __future__ import annotations

import pytest
import torch

from ccs.batch.compute.embed import Backoff
from ccs.batch.compute.inputs import load, shards_of
from ccs.sets import ImageSet


@pytest.mark.parametrize("items", [0, 1, 127, 128, 129, 5000, 1_000_000_000])
def test_shards_cover_everything_once(items):
    shards = shards_of(items)
    assert sum(map(len, shards)) == items
    assert shards[-1].stop == items
    assert len(shards) < 20_000


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_never_cross_a_shard(tiny_model, pictures, workers):
    images = pictures(11)
    data = ImageSet(name="random", images=images, fingerprint="", source="")
    batches = list(load(tiny_model, data, shards_of(11, 4), [0, 2], batch=3, workers=workers))
    expected = [(0, 0, 3, False), (0, 3, 4, True), (2, 8, 11, True)]
    assert [(b.shard, b.first, b.last, b.ends_shard) for b in batches] == expected
    assert torch.equal(batches[2].pixels, tiny_model.preprocess([images[i] for i in (8, 9, 10)]))
    assert sum(len(one.pixels) for one in batches) == 7


def test_short_memory_lowers_the_batch_and_loses_nothing():
    def work(piece: torch.Tensor) -> torch.Tensor:
        if len(piece) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return piece * 2

    backoff = Backoff(16)
    pixels = torch.arange(20.0)
    assert torch.equal(torch.cat(backoff.run(work, pixels)), pixels * 2)
    assert backoff.largest == 2
    assert len(backoff.run(work, pixels)) == 10

    def never(piece: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        Backoff(4).run(never, pixels)

    def broken(piece: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        Backoff(4).run(broken, pixels)
