"""One server and one browser for all tests of the page."""

from tests.support.browser_page import browser, made, visit

__all__ = ["browser", "made", "visit"]  # fixtures
