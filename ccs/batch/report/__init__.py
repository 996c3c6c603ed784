"""The report. Importing any of it without its packages says how to install them."""

from ccs.errors import require

require("report", "jinja2")
