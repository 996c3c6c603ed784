"""The page's app and browsers and the judges' servers, as their own tests have them."""

from tests.judges.conftest import server
from tests.support.browser_page import browsers, tabs, visit
from tests.support.ui_page import app, model

__all__ = ["app", "browsers", "model", "server", "tabs", "visit"]  # fixtures
