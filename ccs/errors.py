"""Exceptions for a user's mistakes, among them a package that `pip install clip-ccs` leaves out."""

from collections.abc import Iterable
from importlib.util import find_spec

EXTRAS = {
    "app": "The app needs",
    "judges": "Asking judges needs",
    "data": "The synthetic world and videos need",
    "report": "The report needs",
    "plot": "A plot needs",
    "all": "A run in several processes needs",
}
"""Each extra of pyproject.toml, and what it is for."""


class InputError(ValueError):
    """An input that can't be used.

    The message is a sentence with the problem, the value, and the fix. Commands print it and exit with status
    2, and the app shows it, without a traceback.

        >>> from ccs import Head
        >>> try:
        ...     Head.parse("L11")
        ... except InputError as error:
        ...     print(error)
        'L11' is not the name of a head; L11.H5 is head 5 of layer 11.
    """


class MissingExtra(InputError, ImportError):
    """A package of an extra isn't installed."""


def require_texts(texts: Iterable[str]) -> list[str]:
    """Return a list of the texts from any iterable of them, such as a Series or a generator.

    Raises:
        InputError: For a single text, a table, a dict, a set (without order), or anything that isn't a text.
    """
    single = isinstance(texts, str | bytes | set | frozenset | dict)
    if single or not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) != 1:
        raise InputError(
            f"Texts must be a list of strings, not {type(texts).__name__}; write [text] for one."
        )
    strings = list(texts)
    for place, text in enumerate(strings):
        if not isinstance(text, str):
            raise InputError(f"Text {place} is {text!r} ({type(text).__name__}), not a string.")
    return strings


def require_seed(seed: int) -> None:
    """Raise InputError if the seed isn't a whole number from 0."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or seed < 0:
        raise InputError(f"A seed must be a whole number from 0, not {seed!r}.")


def require(extra: str, *modules: str) -> None:
    """Check that the modules of an extra are installed.

    Args:
        extra: The extra, one of EXTRAS.
        modules: Modules that it installs.

    Raises:
        MissingExtra: If one isn't installed.
    """
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra(
                f"{EXTRAS[extra]} the package {module}, which is not installed: "
                f"run `pip install 'clip-ccs[{extra}]'`."
            )
