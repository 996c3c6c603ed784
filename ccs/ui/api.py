"""Each view as a function with typed inputs: on Gradio's API page, in gradio_client, and as MCP tools.

Functions take what they need and keep nothing between calls. A mistake comes back as a sentence. What needs
PyTorch is imported when a function runs: the page is served before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
import numpy as np
from gradio.events import api as endpoint

from ccs.errors import InputError
from ccs.heads import Head
from ccs.ui.fields import among
from ccs.ui.service import uploads
from ccs.ui.session import Session
from ccs.ui.state import FAULTS, line, texts

if TYPE_CHECKING:
    from ccs.ui.app import App

Json = dict[str, Any]
AT_ONCE = 2  # visitors who are answered at the same time


class Endpoints:
    """The functions, bound to one app, which is made when it is first needed."""

    def __init__(self, source: Callable[[], App]) -> None:
        self._source = source

    @property
    def app(self) -> App:
        return self._source()

    def _session(self, model: str, off: str = "") -> Session:
        """A session of one call; InputError for a model or a head that is not there."""
        from ccs.ui import actions, opening

        app = self.app
        if model not in app.models:
            raise InputError(f"There is no model {model!r}; there are {', '.join(app.models)}.")
        session = opening.open_link(app, {"model": model, "tab": "classify"})
        actions.update(app, session, "off", {"off": off})
        return session

    def models(self) -> list[str]:
        """Names of the models that can be asked, the embedded ones first."""
        return list(self.app.models)

    def heads(self, model: str = "organism") -> list[Json]:
        """All heads of a model: name, concept, CCS (null where unknown), K, level, explained share.

        model: one of `models`.
        """
        self._session(model)
        sheet = self.app.sheet(model)
        return [
            {"head": str(h), "concept": c.label, "ccs": c.ccs, "k": c.k, "level": c.level, "share": c.share}
            for h in self.app.heads(model)
            for c in (sheet.card(h),)
        ]

    def head(self, head: str, model: str = "organism") -> Json:
        """One head: its texts with share and every judge's verdict, and its rows in the table of heads.

        head: such as L7.H2. model: one of `models`.
        """
        self._session(model, head)
        sheet = self.app.sheet(model)
        card = sheet.card(Head.parse(head))
        told = [
            {
                "text": t.text,
                "concept": t.concept,
                "share": t.share,
                "verdicts": {v.judge: {"verdict": v.verdict, "reason": v.why} for v in t.verdicts},
            }
            for t in card.texts
        ]
        table = sheet.table("heads")
        rows = (
            table[(table["layer"] == card.head.layer) & (table["head"] == card.head.head)]
            if len(table)
            else table
        )
        effects = [
            {k: _json(v) for k, v in row.items() if k not in ("model", "weights")}
            for row in rows.to_dict("records")
        ]
        return {
            "head": head,
            "concept": card.label,
            "ccs": card.ccs,
            "k": card.k,
            "level": card.level,
            "texts": told,
            "effects": effects,
        }

    def classify(
        self,
        pictures: list[str] | None = None,
        classes: str = "",
        off: str = "",
        model: str = "organism",
        template: str = "",
        example: str = "occupations:0",
    ) -> Json:
        """Zero-shot probabilities of pictures with all heads on (before) and with some off (after).

        pictures: files; none means the drawn `example`, such as occupations:0. classes: one a line or between
        commas; empty means the example's own. off: heads such as "L7.H2 L6.H1". template: with {} where the
        class goes.
        """
        from ccs.ui import actions
        from ccs.ui.service.pictures import pictures as shown_pictures
        from ccs.ui.views import classify as view

        session = self._session(model, off)
        template = view.check_template(line(template))
        actions.update(self.app, session, "example", {"value": example})
        session.state = replace(session.state, classes=texts(classes), template=template)
        session.uploads = tuple(uploads.read(Path(path)) for path in (pictures or [])[: uploads.MAX_PICTURES])
        loaded = self.app.shelf.get(model)
        names, found, moved = view.measure(session, loaded)
        shown = shown_pictures(session)
        return {
            "classes": list(names),
            "pictures": [p.name for p in shown],
            "before": found.before.round(6).tolist(),
            "after": found.after.round(6).tolist(),
            "answers": [
                [names[int(a)], names[int(b)]]
                for a, b in zip(found.before.argmax(1), found.after.argmax(1), strict=True)
            ],
            "similarity": np.asarray(moved).round(6).tolist(),
        }

    def bias(
        self,
        occupations: str = "judge",
        off: str = "",
        model: str = "organism",
        gallery: str = "world/faces",
        attribute: str = "gender",
        k: int = 0,
        target: str = "pool",
        fault: str = "",
    ) -> Json:
        """MaxSkew, MinSkew and NDKL of rankings of people for occupations, before and after, beside chance.

        occupations: one a line or between commas. off: heads such as "L7.H2 L6.H1". k: cut-off, 0 for
        the gallery's own. target: pool or uniform. fault: empty, or order or aliased, to reproduce a fault of
        the study's code (then MaxSkew alone). Intervals are 95%.
        """
        from ccs.measures import bias as measures
        from ccs.ui.views import bias as view

        session = self._session(model, off)
        groups = self.app.galleries.get(gallery).groups
        session.state = replace(
            session.state,
            occupations=texts(occupations),
            gallery=gallery,
            attribute=among(attribute, tuple(groups), "attribute"),
            k=max(0, int(k)),
            target=among(target, ("pool", "uniform"), "target"),
            fault=among(fault, FAULTS, "fault"),
        )
        what = view.asked(self.app, session)
        loaded = self.app.shelf.get(model)
        before = self.app.galleries.base(loaded, gallery)
        after = self.app.galleries.embeddings(loaded, gallery, session.state.off)
        first, second = view.measure(before, after, view.texts(session, loaded, what), what)
        change = measures.compare(second, first)
        return {
            "occupations": list(what.occupations),
            "attribute": what.attribute,
            "k": what.k,
            "target": what.target,
            "metrics": {
                name: {
                    "before": _three(one.mean),
                    "after": _three(second.metrics[name].mean),
                    "chance": _three(one.chance_mean),
                    "each before": one.values.tolist(),
                    "each after": second.metrics[name].values.tolist(),
                }
                for name, one in first.metrics.items()
            },
            "change of MaxSkew": {
                "value": change.value,
                "low": change.low,
                "high": change.high,
                "p": change.p_value,
            },
            "groups": {
                group: {
                    "pool": int(first.pool[g]),
                    "top before": first.top[:, g].tolist(),
                    "top after": second.top[:, g].tolist(),
                }
                for g, group in enumerate(first.groups)
            },
        }

    def paradox(self, quality: str = "", fairness: str = "") -> Json:
        """Every measured set of heads: change of accuracy and of mean MaxSkew, with 95% intervals.

        quality, fairness: keys of the quantities, as the answer lists them; empty means the first of each.
        """
        from ccs.ui.views import plans

        left, right = plans.quality_rows(self.app), plans.fairness_rows(self.app)
        if not len(left) or not len(right):
            raise InputError("There are no tables pruning and bias yet.")
        first = [c.key for c in plans.choices(left, "quality")]
        second = [c.key for c in plans.choices(right, "fairness")]
        rows = plans.measured(left, right, quality or first[0], fairness or second[0])
        return {
            "quality": first,
            "fairness": second,
            "points": [{k: _json(v) for k, v in vars(row).items()} for row in rows],
        }

    def judges(self, model: str = "organism") -> Json:
        """The judges of a model's run: share of yes, share unscored, kappa of each two.

        model: one of `models`.
        """
        from ccs.measures import agreement
        from ccs.ui.views import judges

        self._session(model)
        table = self.app.sheet(model).judgments()
        if not len(table):
            raise InputError(f"There are no judgments of {model}.")
        found = agreement.summarize(judges.verdicts(table), draws=judges.DRAWS)
        return {
            "judges": [{k: _json(v) for k, v in vars(rate).items()} for rate in found.judges],
            "pairs": [{k: _json(v) for k, v in vars(pair).items()} for pair in found.pairs],
            "krippendorff alpha": _json(found.krippendorff_alpha.value),
        }

    def about(self, model: str = "organism") -> Json:
        """The manifest of a model's run: texts, images, seeds, versions, largest error.

        model: one of `models`.
        """
        self._session(model)
        return dict(self.app.sheet(model).manifest)


def _three(estimate: Any) -> Json:
    return {"value": _json(estimate.value), "low": _json(estimate.low), "high": _json(estimate.high)}


def _json(value: Any) -> Any:
    """A cell for JSON: what is not a number there is null."""
    if value is None or value != value or type(value).__name__ == "NAType":
        return None
    return value.item() if isinstance(value, np.generic) else value


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a visitor's mistake as an error that Gradio shows; signature and docstring stay."""
    import functools

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            raise gr.Error(str(error), print_exception=False) from None

    return call


def expose(source: Callable[[], App]) -> None:
    """Add the functions to the page that is being built. They queue for the model like everyone else."""
    ends = Endpoints(source)
    shared: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": AT_ONCE}
    for name in ("models", "heads", "head", "bias", "paradox", "judges", "about"):
        endpoint(_told(getattr(ends, name)), api_name=name, **shared)
    with gr.Row(visible=False):
        inputs = [
            gr.File(label="pictures", file_count="multiple", type="filepath"),
            gr.Textbox("", label="classes"),
            gr.Textbox("", label="off"),
            gr.Textbox("organism", label="model"),
            gr.Textbox("", label="template"),
            gr.Textbox("occupations:0", label="example"),
        ]
        gr.Button().click(
            _told(ends.classify), inputs, gr.JSON(label="answer"), api_name="classify", **shared
        )
