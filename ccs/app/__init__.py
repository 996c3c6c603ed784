"""The app. Importing any of it without its packages says how to install them."""

from ccs.errors import require

require("app", "gradio", "cachetools", "jinja2", "starlette")
