"""The annotation task of the view Judges: blind, by keyboard, with kappa as one goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccs import annotation
from ccs.errors import InputError
from ccs.measures import agreement
from ccs.ui.page.parts import button, csv_text, esc, figure, number, percent
from ccs.ui.records import Sheet
from ccs.ui.session import Annotation, Session

if TYPE_CHECKING:
    from ccs.ui.app import App

TASK = 60
DRAWS = 400
ANSWERS = {"yes": True, "no": False, "unsure": None}
SPREAD = 10  # answers before an interval says anything


def offer(app: App, session: Session) -> None:
    """Put the first question on the page where no task is under way and there is something to judge."""
    task, model = session.task, session.state.model
    if task is None or (task.items and task.items[0].model != model):
        session.task = None
        if len(app.sheet(model).judgments()):
            begin(app, session, 0)


def begin(app: App, session: Session, seed: int) -> None:
    """Start a blind sample of this model's texts."""
    pairs = annotation.pairs_of(app.sheet(session.state.model).judgments())
    session.task = Annotation(seed, tuple(annotation.sample(pairs, TASK, seed)), [])


def answer(session: Session, said: str) -> None:
    """Take an answer ("yes", "no", "unsure"), or the last one back ("back"); "stop" ends the task."""
    task = session.task
    if task is None:
        raise InputError("There is no annotation under way.")
    if said == "stop":
        session.task = None
    elif said == "back":
        session.task = Annotation(task.seed, task.items, task.answers[:-1])
    elif said in ANSWERS and len(task.answers) < len(task.items):
        session.task = Annotation(task.seed, task.items, [*task.answers, ANSWERS[said]])
    else:
        raise InputError(f"An answer is yes, no or unsure, not {said!r}.")


def agreed(task: Annotation) -> agreement.Agreement | None:
    """Agreement of the answers so far with the panel; None before the first yes or no."""
    done = list(zip(task.items, task.answers, strict=False))
    if not any(said is not None for _, said in done):
        return None
    judges = sorted({judge for pair, _ in done for judge, _ in pair.verdicts})
    panel = [[dict(pair.verdicts).get(judge) for pair, _ in done] for judge in judges]
    return agreement.compare([[said for _, said in done]], panel, draws=DRAWS)


def render(session: Session, sheet: Sheet) -> str:
    """The task as HTML: the question, or a form that begins."""
    task = session.task
    if task is None or (task.items and task.items[0].model != sheet.model):
        return (
            '<div class="panel"><h3>Judge for yourself</h3><p>Up to 60 texts, each with a concept; neither '
            "head nor verdict is shown. How far you agree with the judges is shown as you go, and your "
            f"answers can be saved.</p>{_start('Begin')}</div>"
        )
    n, total = len(task.answers), len(task.items)
    found = agreed(task)
    if found is None:
        level = "No answer yet; how far you agree with the judges is shown as you go."
    else:
        level = (
            f"Same as the panel: <b>{_share(found.same.value)}</b> of {found.n}. Cohen’s kappa: <b>"
            f"{_number(found.cohen_kappa.value)}</b>"
        )
        level += (
            f" ({_number(found.cohen_kappa.low)} to {_number(found.cohen_kappa.high)})"
            if found.n >= SPREAD and np.isfinite(found.cohen_kappa.low)
            else ""
        )
    words = {True: "yes", False: "no", None: ""}
    saved = csv_text(
        annotation.COLUMNS,
        [
            [p.key, p.text, p.concept, words[task.answers[i]] if i < n else ""]
            for i, p in enumerate(task.items)
        ],
    )
    if n < total:
        pair = task.items[n]
        ask = (
            f'<p class="over">{n + 1} of {total}</p><p class="question">Does <b>“{esc(pair.text)}”</b> show '
            f"<b>{esc(pair.concept)}</b>?</p>"
            '<div class="buttons">'
            + button("Yes (Y)", "annotate", css="primary", value="yes", key="y")
            + button("No (N)", "annotate", css="primary", value="no", key="n")
            + button("Unsure (U)", "annotate", value="unsure", key="u")
            + button("Back (B)", "annotate", value="back", key="b", disabled=n == 0)
            + button("Stop", "annotate", value="stop")
            + "</div>"
        )
    else:
        ask = (
            f'<p class="question">Done: {total} answers.</p><div class="buttons">'
            f"{button('Back', 'annotate', value='back')}{button('Close', 'annotate', value='stop')}</div>"
        )
    return figure(
        "Judge for yourself",
        f'{ask}<progress max="{total}" value="{n}" aria-label="answers"></progress><p aria-live="polite">'
        f"{level}</p>{_start('Another sample', task.seed + 1) if not n else ''}",
        what="The sample is drawn at random among texts that all judges scored, in the proportions of their "
        "verdicts. Save it as CSV at any "
        "time; <code>python -m batch.annotate import FILE</code> reads it and sets several people beside the "
        "judges.",
        unit="Cohen’s kappa",
        name="annotation",
        table=saved,
    )


def _start(words: str, seed: int = 0) -> str:
    return (
        '<form class="row" data-do="begin"><label>seed of the sample <input type="number" name="seed" '
        f'min="0" max="99999" value="{seed}"></label><button type="submit">{words}</button></form>'
    )


def _share(value: float) -> str:
    return "–" if value != value else percent(value)


def _number(value: float) -> str:
    return "–" if value != value else number(value, 3)
