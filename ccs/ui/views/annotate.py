"""The annotation task of the view Judges: blind, by keyboard, with kappa as one goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ccs import annotation
from ccs.errors import InputError
from ccs.measures import agreement
from ccs.ui.actions import Action, Fields
from ccs.ui.app import App
from ccs.ui.session import Annotation, Session
from ccs.ui.state import parse_int
from ccs.ui.views.base import Figure

TASK = 60
DRAWS = 400
ANSWERS = {"yes": True, "no": False, "unsure": None}
WORDS = {said: word if said is not None else "" for word, said in ANSWERS.items()}
SPREAD = 10  # answers before an interval says anything


def begin(app: App, session: Session, seed: int) -> None:
    """Start a blind sample of the model's texts."""
    model = session.state.model
    pairs = annotation.pairs_of(app.shown(session.state).judgments())
    session.task = Annotation(model, seed, tuple(annotation.sample(pairs, TASK, seed)))


def offer(app: App, session: Session) -> Annotation:
    """The task under way with this model, begun where there is none."""
    if session.task is None or session.task.model != session.state.model:
        begin(app, session, 0)
    assert session.task is not None
    return session.task


def _annotate(app: App, session: Session, fields: Fields) -> None:
    """Take an answer ("yes", "no", "unsure"), or the last one back ("back"); "stop" ends the task."""
    task, said = session.task, str(fields.get("value", ""))
    if task is None or not task.items:
        raise InputError("There is no annotation under way.")
    if said == "stop":
        session.task = Annotation(task.model)
    elif said == "back":
        session.task = replace(task, answers=task.answers[:-1])
    elif said in ANSWERS and len(task.answers) < len(task.items):
        session.task = replace(task, answers=(*task.answers, ANSWERS[said]))
    else:
        raise InputError(f"An answer is yes, no or unsure, not {said!r}.")


def _begin(app: App, session: Session, fields: Fields) -> None:
    begin(app, session, parse_int(fields.get("seed", "0"), "seed"))


ACTIONS: Mapping[str, Action] = {"annotate": _annotate, "begin": _begin}


def agreed(task: Annotation) -> agreement.Agreement | None:
    """Agreement of the answers so far with the panel; None before the first yes or no."""
    done = list(zip(task.items, task.answers, strict=False))
    if not any(said is not None for _, said in done):
        return None
    judges = sorted({judge for pair, _ in done for judge, _ in pair.verdicts})
    panel = [[dict(pair.verdicts).get(judge) for pair, _ in done] for judge in judges]
    return agreement.compare([[said for _, said in done]], panel, draws=DRAWS)


def figure(task: Annotation) -> Figure | None:
    """The question that is next, with the answers so far; None for a task that was stopped."""
    if not task.items:
        return None
    said = [WORDS[answer] for answer in task.answers] + [""] * (len(task.items) - len(task.answers))
    found = agreed(task)
    return Figure(
        "annotation",
        "Judge for yourself",
        "Cohen’s kappa",
        annotation.COLUMNS,
        [[p.key, p.text, p.concept, word] for p, word in zip(task.items, said, strict=True)],
        {"task": task, "agreed": found, "spread": found is not None and found.n >= SPREAD},
    )
