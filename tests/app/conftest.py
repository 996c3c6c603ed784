"""One model, server, and browser for all tests of the app."""

from tests.support.app_fixtures import app, model, screen
from tests.support.browser_fixtures import browser_tab, served_app, visit

__all__ = ["app", "served_app", "model", "screen", "browser_tab", "visit"]  # fixtures
