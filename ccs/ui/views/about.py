"""The view About this run: where every figure comes from, what is a stand-in, and how to cite it."""

from __future__ import annotations

import json

from markupsafe import Markup

from ccs.errors import InputError
from ccs.model.model import embedded
from ccs.model.sources import find
from ccs.ui.html import render
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State
from ccs.ui.views import known
from ccs.ui.views.base import Figure, View
from ccs.ui.views.judges import run_program


class About(View):
    """The manifest of a model's run."""

    name = "about"
    title = "About"
    purpose = "How the figures came about: texts, images, seeds, versions, licenses."

    def models(self, state: State) -> tuple[str, ...]:
        return ()

    def render(self, app: App, session: Session, complete: bool = True) -> Markup:
        records = app.shown(session.state)
        return render(
            "views/about.html",
            model=records.model,
            source=app.collection.source,
            architecture=find(records.model).architecture if records.model in embedded() else "",
            heads=app.heads(records.model),
            figures=self.figures(app, session) if records.manifest else [],
            stand_in_judges=[str(j["name"]) for j in records.manifest.get("judges", ()) if j.get("stand_in")],
            known=known.truth(session.state.model),
            labeler=records.manifest.get("labeler", {}),
        )

    def figures(self, app: App, session: Session) -> list[Figure]:
        records = app.shown(session.state)
        manifest = records.manifest
        if not manifest:
            raise InputError(f"There are no tables for {records.model}.")
        return [
            Figure(
                "manifest",
                f"The run behind {records.model}",
                "as named",
                ["entry", "value"],
                [[entry, json.dumps(value)] for entry, value in manifest.items()],
                {"source": app.collection.source, "manifest": manifest},
            )
        ]

    def snippet(self, app: App, session: Session) -> str:
        return run_program(app, session.state)
