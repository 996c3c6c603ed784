"""The view Bias: who comes first when pictures of people are ranked for an occupation, before and after."""

from ccs.ui.views.bias.asked import DRAWS, Asked, asked, measure, texts, top
from ccs.ui.views.bias.view import prepare, render

__all__ = ["DRAWS", "Asked", "asked", "measure", "prepare", "render", "texts", "top"]
