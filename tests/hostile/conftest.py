"""The page's app and browsers, as its own tests have them."""

from tests.support.browser_page import browsers, tabs, visit
from tests.support.ui_page import app, model

__all__ = ["app", "browsers", "model", "tabs", "visit"]  # fixtures
