"""What a screen is made of: read once for a click, and handed to head, grid, strip and view."""

from __future__ import annotations

from functools import cached_property

from ccs.heads import HeadSet
from ccs.model.model import Model
from ccs.ui.service.examples import Images, load_example
from ccs.ui.service.records import ModelRecords
from ccs.ui.session import Session
from ccs.ui.shared import App


class Screen:
    """The screen of a session as it is now. Where an action changes the session, a new one is made."""

    def __init__(self, app: App, session: Session) -> None:
        self.app, self.session, self.state = app, session, session.state

    @cached_property
    def records(self) -> ModelRecords:
        """The tables that are shown."""
        return self.app.shown(self.state)

    @cached_property
    def heads(self) -> HeadSet:
        """The heads in the grid, which can be switched off."""
        return self.app.heads(self.state.model, self.state.tower)

    @cached_property
    def images(self) -> Images:
        """The visitor's own images, or the example where there are none."""
        shown = self.session.uploads or load_example(self.state.example).images
        return Images(shown, self.session.memory)

    @property
    def model(self) -> Model:
        """The model, loaded if need be; InputError where it cannot be had or is on its way."""
        return self.app.model_cache.get(self.state.model)

    @property
    def has_model(self) -> bool:
        """True if the model is in memory."""
        return self.state.model in self.app.model_cache.loaded()
