"""One model, one server and one browser for all tests of the page."""

from tests.support.app_page import app, model, screen
from tests.support.browser_page import browsers, made, tabs, visit

__all__ = ["app", "browsers", "made", "model", "screen", "tabs", "visit"]  # fixtures
