"""Keys in the environment and quick settings for every test of the judges."""

import pytest

from ccs.judges import JudgeSettings
from tests.support.llm_server import SERVERS

KEY = "sk-test-0123456789abcdef"
VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "COMPATIBLE_API_KEY")


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, KEY)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)


@pytest.fixture
def settings(tmp_path):
    return JudgeSettings(cache=tmp_path / "judges.sqlite", delay=0.01, timeout=10.0, retries=2)


@pytest.fixture(params=sorted(SERVERS))
def server(request):
    """Of each provider in turn."""
    with SERVERS[request.param]() as running:
        yield running
