"""The report. Importing any of it without its packages says how to install them."""

from ccs.extras import require

require("report", "jinja2")
