"""The views, in the order of the page. A new one is a file here and a name in this list."""

from ccs.app.views import about, bias, classify, heads, paradox, start
from ccs.app.views.base import View

VIEWS: dict[str, View] = {
    module.VIEW.name: module.VIEW for module in (start, heads, classify, bias, paradox, about)
}
