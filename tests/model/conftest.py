"""The models that tests of the encoder run on."""

import pytest

from tests.batch.conftest import texts  # noqa: F401 - a fixture


@pytest.fixture(params=["GELU", "QuickGELU"])
def model(request):
    return request.getfixturevalue({"GELU": "tiny_model", "QuickGELU": "tiny_quick_model"}[request.param])
