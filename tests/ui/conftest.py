"""One model, one server and one browser for all tests of the page."""

from tests.support.browser_page import browsers, made, tabs, visit
from tests.support.ui_page import app, model, screen

__all__ = ["app", "browsers", "made", "model", "screen", "tabs", "visit"]  # fixtures
