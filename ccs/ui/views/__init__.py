"""The views, in the order of the page. A new one is a file here and a name in this list."""

from ccs.ui.views.about import About
from ccs.ui.views.base import View
from ccs.ui.views.bias import Bias
from ccs.ui.views.classify import Classify
from ccs.ui.views.heads import Heads
from ccs.ui.views.paradox import Paradox
from ccs.ui.views.start import Start

VIEWS: dict[str, View] = {
    view.name: view for view in (Start(), Heads(), Classify(), Bias(), Paradox(), About())
}
