"""The views, in the order of the page. A new one is a file here and a name in this list."""

from ccs.app.views import about, bias, classify, heads, paradox, start

VIEWS = {view.VIEW.name: view.VIEW for view in (start, heads, classify, bias, paradox, about)}
