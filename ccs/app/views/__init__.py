"""The views, in the order of the page. A new one is a file here and a name in this list."""

from ccs.app.views.about import About
from ccs.app.views.base import View
from ccs.app.views.bias import Bias
from ccs.app.views.classify import Classify
from ccs.app.views.heads import Heads
from ccs.app.views.paradox import Paradox
from ccs.app.views.start import Start

VIEWS: dict[str, View] = {
    view.name: view for view in (Start(), Heads(), Classify(), Bias(), Paradox(), About())
}
