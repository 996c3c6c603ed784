"""What `pip install clip-ccs` leaves out, and the sentence that says how to add it."""

from __future__ import annotations

from importlib.util import find_spec

from ccs.errors import InputError

EXTRAS = {
    "app": "The app needs",
    "judges": "Asking judges needs",
    "data": "The drawn world, sets from the Hub, Parquet files and videos need",
    "report": "The report needs",
    "all": "A run in several processes needs",
}
"""Each extra of pyproject.toml, and what it is for."""


class MissingExtra(InputError, ImportError):
    """A package is not installed that only an extra brings."""


def require(extra: str, *modules: str) -> None:
    """Raise MissingExtra if one of these modules, which the extra brings, is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra(
                f"{EXTRAS[extra]} the package {module}, which is not installed: "
                f"run `pip install 'clip-ccs[{extra}]'`."
            )
