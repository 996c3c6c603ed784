"""Fixtures of the app, its browser, and the judges' servers."""

from tests.judges.conftest import server, settings
from tests.support.app_fixtures import app, model
from tests.support.browser_fixtures import browser_tab, visit

__all__ = ["app", "model", "server", "settings", "browser_tab", "visit"]  # fixtures
