"""One model, one server and one browser for all tests of the page."""

from tests.support.app_fixtures import app, model, screen
from tests.support.browser_fixtures import browser_tab, served_app, visit

__all__ = ["app", "served_app", "model", "screen", "browser_tab", "visit"]  # fixtures
