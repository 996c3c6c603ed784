"""docs/scaling.md's example for Ray, as it stands there: shards on two local workers, added up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ccs
from ccs.world.drawn_sets import image_set


def example(model: Path) -> str:
    """The page's code, with a tiny model and a tenth of the images."""
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text("utf-8")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import ray" in code]
    assert code.count('"organism"') == 1
    return code.replace('"organism"', repr(str(model))).replace("400", "40").replace("100", "10")


@pytest.mark.weekly  # half a minute, for a page of the documents
@pytest.mark.filterwarnings("ignore")  # Ray's own, of which it has many
def test_two_workers_add_up_to_one(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # or it writes a token to the user's home
    done: dict[str, Any] = {"__name__": "__main__"}  # so that Ray sends the function itself to its workers
    import ray

    try:
        exec(example(tiny_folder), done)
    finally:
        ray.shutdown()
    moments = done["moments"]
    whole = ccs.collect_moments(ccs.load(str(tiny_folder)), [list(image_set(40).images)])
    assert moments.count == whole.count == 40
    assert np.allclose(moments.products, whole.products, atol=1e-4)
