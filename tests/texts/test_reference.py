"""The study's pool, which is fetched once and known by its hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import constants
from pytest_httpserver import HTTPServer

from ccs.errors import InputError
from ccs.texts import reference
from ccs.texts.pools import load_pool

CONTENT = b"a badge\nA bag\na  bag\n"


@pytest.fixture
def served(httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CCS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(reference, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(reference, "ADDRESSES", (httpserver.url_for("/gone"), httpserver.url_for("/main")))
    return httpserver


def test_it_is_fetched_once_and_kept(served: HTTPServer, tmp_path: Path) -> None:
    served.expect_ordered_request("/gone").respond_with_data(b"", 404)
    served.expect_ordered_request("/main").respond_with_data(CONTENT)
    assert reference.find() is None
    pool = load_pool("reference")
    assert (pool.name, pool.texts, pool.concepts) == ("reference", ("a badge", "A bag"), (None, None))
    assert load_pool("reference") == pool
    assert len(served.log) == 2
    assert reference.find() == tmp_path / "home" / "clip-ccs" / reference.FILE


def test_other_texts_are_not_taken(served: HTTPServer, tmp_path: Path) -> None:
    served.expect_request("/gone").respond_with_data(CONTENT + b"!")
    served.expect_request("/main").respond_with_data(b"\0" * 2_000_000)
    with pytest.raises(InputError, match=r"could not be had.*\$CCS_DATA.*--texts FILE.*SHA-256"):
        load_pool("reference")
    assert not (tmp_path / "home").exists()


def test_a_local_file_is_enough(served: HTTPServer, tmp_path: Path) -> None:
    mine = tmp_path / "data" / reference.FILE
    mine.parent.mkdir()
    mine.write_bytes(CONTENT)
    assert load_pool("reference").fingerprint == load_pool(mine).fingerprint
    assert not served.log
    mine.write_bytes(CONTENT[1:])
    with pytest.raises(InputError, match="is not the pool `reference`"):
        load_pool("reference")
