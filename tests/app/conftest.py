"""One model, one server and one browser for all tests of the page."""

from tests.support.app_page import app, model, screen
from tests.support.browser_page import browsers, served_app, tabs, visit

__all__ = ["app", "browsers", "served_app", "model", "screen", "tabs", "visit"]  # fixtures
