"""The rule on skipped tests (tests/conftest.py), tried on test files of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("decorator", "ci", "expected"),
    [
        ('@pytest.mark.skip(reason="not today")', "true", pytest.ExitCode.TESTS_FAILED),
        ('@pytest.mark.skip(reason="not today")', "", pytest.ExitCode.OK),
        ('@pytest.mark.shared("no such data")', "true", pytest.ExitCode.OK),
    ],
)
def test_only_missing_data_or_a_missing_gpu_excuse_a_skip_in_ci(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    decorator: str,
    ci: str,
    expected: pytest.ExitCode,
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text("utf-8"))
    pytester.makepyfile(f"import pytest\n\n{decorator}\ndef test_a(): pass\n\ndef test_b(): pass\n")
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert done.ret == expected
    done.stdout.fnmatch_lines(["skipped: *test_a*"])
