"""The tests of the studies share the models of the product's tests."""

from __future__ import annotations

from tests.conftest import once, pictures, tiny_folder, tiny_model  # noqa: F401
