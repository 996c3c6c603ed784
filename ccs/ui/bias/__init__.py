"""The view Bias: who comes first when pictures of people are ranked for an occupation, before and after."""

from ccs.ui.bias.asked import DRAWS, Asked, asked, measure, texts, top
from ccs.ui.bias.view import prepare, render

__all__ = ["DRAWS", "Asked", "asked", "measure", "prepare", "render", "texts", "top"]
