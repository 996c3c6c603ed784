"""The page's app and browsers and the judges' servers, as their own tests have them."""

from tests.judges.conftest import server, settings
from tests.support.app_fixtures import app, model
from tests.support.browser_fixtures import browser_tab, visit

__all__ = ["app", "model", "server", "settings", "browser_tab", "visit"]  # fixtures
