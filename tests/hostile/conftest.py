"""The page's app and browsers and the judges' servers, as their own tests have them."""

from tests.judges.conftest import server, settings
from tests.support.app_page import app, model
from tests.support.browser_page import tab, visit

__all__ = ["app", "model", "server", "settings", "tab", "visit"]  # fixtures
