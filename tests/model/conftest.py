"""The models that tests of the encoder run on."""

import pytest

from tests.batch.conftest import small_arguments, small_run, texts  # noqa: F401 - fixtures


@pytest.fixture(params=["GELU", "QuickGELU"])
def model(request):
    return request.getfixturevalue({"GELU": "tiny_model", "QuickGELU": "tiny_quick_model"}[request.param])
