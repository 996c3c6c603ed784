"""One model, one server and one browser for all tests of the page."""

from tests.support.app_page import app, model, screen
from tests.support.browser_page import served_app, tab, visit

__all__ = ["app", "served_app", "model", "screen", "tab", "visit"]  # fixtures
