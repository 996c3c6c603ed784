"""The models that tests of the tower run on."""

from __future__ import annotations

import pytest

from ccs.model.model import Model


@pytest.fixture(params=["GELU", "QuickGELU"])
def model(request: pytest.FixtureRequest) -> Model:
    name = {"GELU": "tiny_model", "QuickGELU": "tiny_quick_model"}[request.param]
    value: Model = request.getfixturevalue(name)
    return value
