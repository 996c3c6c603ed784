"""Keep the caches and local copies of each test in its temporary folder."""

import pytest

from ccs.data import SOURCES
from tests.support.datasets_sample import allow_any_size


@pytest.fixture(autouse=True)
def temporary_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("CCS_DATA", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    records = dict(SOURCES)
    allow_any_size()
    yield
    SOURCES.update(records)
