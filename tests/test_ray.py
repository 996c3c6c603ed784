"""docs/scaling.md's example for Ray: shards on two local workers, added up."""

from __future__ import annotations

import functools
import operator
from pathlib import Path

import numpy as np
import pytest

import ccs

ray = pytest.importorskip("ray")


@pytest.mark.filterwarnings("ignore")
def test_two_workers_add_up_to_one(tiny_folder: Path) -> None:
    @ray.remote
    def collect(name: str, shard: range) -> ccs.Moments:
        from ccs.world.sets import image_set

        model, images = ccs.load(name), image_set(40).images
        return ccs.collect_moments(model, [[images[i] for i in shard]])

    from ccs.world.sets import image_set

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        work = [collect.remote(str(tiny_folder), range(start, start + 10)) for start in range(0, 40, 10)]
        moments = functools.reduce(operator.add, ray.get(work))
    finally:
        ray.shutdown()
    whole = ccs.collect_moments(ccs.load(str(tiny_folder)), [list(image_set(40).images)])
    assert moments.count == whole.count == 40
    assert np.allclose(moments.products, whole.products, atol=1e-4)
