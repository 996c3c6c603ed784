"""The view Judges: who decided, how far they agree, what it cost, and a blind task to decide oneself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ccs import agreement, annotation
from ccs.errors import InputError
from ccs.ui.parts import button, csv_text, empty, esc, figure, head_row, number, percent
from ccs.ui.session import Annotation, Session
from ccs.ui.tables import Sheet

if TYPE_CHECKING:
    from ccs.ui.core import App

TASK = 60
DRAWS = 400
ANSWERS = {"yes": True, "no": False, "unsure": None}
SHOWN = 20
SPREAD = 10  # answers before an interval says anything


def verdicts(table: pd.DataFrame) -> dict[str, list[bool | None]]:
    """Judge -> its verdict of every text, in the same order; None where unscored or not asked."""
    wide = table.assign(said=[None if pd.isna(v) else bool(v) for v in table["verdict"]])
    places = sorted({(r.layer, r.head, r.rank) for r in wide.itertuples()})
    found: dict[str, list[bool | None]] = {}
    for judge, rows in wide.groupby("judge"):
        known = {(r.layer, r.head, r.rank): r.said for r in rows.itertuples()}
        found[str(judge)] = [known.get(place) for place in places]
    return found


def render(app: App, session: Session, sheet: Sheet) -> str:
    """The view as HTML."""
    table = sheet.table("judgments")
    if not len(table):
        return empty(
            "No judgments",
            f"There is no table of judgments for {sheet.model}, so nobody has decided anything yet.",
        )
    # The tables stand still while a visitor annotates; only the task changes from key to key.
    still = session.memory.get(("judges", sheet.model), lambda: _panel(sheet, table) + _disputed(table))
    return _task(app, session, sheet) + still


def _stand_ins(manifest: Mapping[str, Any]) -> set[str]:
    return {str(judge["name"]) for judge in manifest.get("judges", ()) if judge.get("stand_in")}


def _panel(sheet: Sheet, table: pd.DataFrame) -> str:
    said = verdicts(table)
    found = agreement.summarize(said, draws=DRAWS)
    stand_ins = _stand_ins(sheet.manifest)
    about = {str(judge["name"]): judge for judge in sheet.manifest.get("judges", ())}
    rows, saved = [], []
    for rate in found.judges:
        causes = Counter(
            str(c) for c in table[(table["judge"] == rate.judge) & (table["cause"] != "")]["cause"]
        )
        why = ", ".join(f"{cause} {n}" for cause, n in causes.most_common()) or "–"
        kind = "stand-in, no language model" if rate.judge in stand_ins else "language model"
        cost = _cost(about.get(rate.judge, {}))
        rows.append(
            f'<tr><th scope="row">{esc(rate.judge)}<br><small class="muted">{kind}</small></th><td class=num>'
            f"{rate.n}</td>"
            f"<td class=num>{_share(rate.yes)}</td><td class=num>{_share(rate.unscored)}</td><td>"
            f"{esc(why)}</td><td>{esc(cost)}</td></tr>"
        )
        saved.append([rate.judge, kind, rate.n, rate.yes, rate.unscored, why, cost])
    header = head_row("judge", "#texts", "#says yes", "#unscored", "why unscored", "cost")
    what = (
        "Each judge was asked of every text of every head whether it fits the head’s concept. <b>Unscored</b>"
        ": no usable verdict (a refusal, a "
        "reply that could not be read); it makes the head’s CCS unknown and never counts as no. <b>Cost</b>: "
        "what the run paid for "
        "it, from its manifest. A stand-in compares the texts’ own tags and knows nothing else."
    )
    alone = ""
    if len(found.pairs):
        pairs = "".join(
            f'<tr><th scope="row">{esc(p.left)} and {esc(p.right)}</th><td class=num>{p.n}</td><td class=num>'
            f"{_share(p.same)}</td>"
            f"<td class=num>{_number(p.cohen_kappa)}</td></tr>"
            for p in found.pairs
        )
        alpha = found.krippendorff_alpha
        alone = figure(
            "How far they agree",
            f'<table class="nums">{head_row("two judges", "#texts", "#same verdict", "#Cohen’s kappa")}'
            f"<tbody>{pairs}</tbody></table>"
            f"<p>All together, Krippendorff’s alpha: <b>{_number(alpha.value)}</b> ({_number(alpha.low)} to "
            f"{_number(alpha.high)}).</p>",
            what=(
                "<b>Kappa</b> and <b>alpha</b> correct for agreement by chance: 1 is full agreement, 0 what "
                "guessing gives."
            ),
            unit="share of texts; coefficient",
            name="agreement",
            table=csv_text(
                ["left", "right", "texts", "same", "kappa"],
                [[p.left, p.right, p.n, p.same, p.cohen_kappa] for p in found.pairs],
            ),
        )
    else:
        alone = (
            '<p class="muted">One judge alone: there is no agreement to report. More judges: python -m '
            "batch.compute --judges …</p>"
        )
    return (
        figure(
            "The judges of this run",
            f'<div class="scroll" tabindex="0"><table class="nums">{header}<tbody>{"".join(rows)}</tbody>'
            "</table>"
            "</div>",
            what=what,
            unit="share of texts, %",
            name="judges",
            table=csv_text(["judge", "kind", "texts", "yes", "unscored", "causes", "cost"], saved),
        )
        + alone
    )


def _cost(judge: Mapping[str, Any]) -> str:
    """What the manifest tells of a judge's cost, whatever it calls it."""
    told = [
        f"{key.replace('_', ' ')} {value:g}"
        for key, value in judge.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return ", ".join(told) or "nothing"


def _share(value: float) -> str:
    return "–" if value != value else percent(value)


def _number(value: float) -> str:
    return "–" if value != value else number(value, 3)


def _disputed(table: pd.DataFrame) -> str:
    """Texts on which judges differ."""
    rows = []
    for (layer, head, _), part in table.groupby(["layer", "head", "rank"]):
        said = {str(r.judge): None if pd.isna(r.verdict) else bool(r.verdict) for r in part.itertuples()}
        if len(set(said.values()) - {None}) > 1:
            words = "; ".join(
                f"{judge}: {'yes' if v else 'unscored' if v is None else 'no'}" for judge, v in said.items()
            )
            first = next(part.itertuples())
            rows.append((f"L{layer}.H{head}", str(first.text), str(first.label), words))
    if not rows:
        return ""
    body = "".join(
        f"<tr><td>{button(head, 'inspect', css='link', head=head)}</td><td>{esc(text)}</td><td>"
        f"{esc(label)}</td><td>{esc(words)}</td></tr>"
        for head, text, label, words in rows[:SHOWN]
    )
    more = f'<p class="muted small">and {len(rows) - SHOWN} more in the CSV</p>' if len(rows) > SHOWN else ""
    return figure(
        "Where they differ",
        f'<div class="scroll" tabindex="0"><table>{head_row("head", "text", "concept", "verdicts")}<tbody>'
        f"{body}</tbody></table></div>{more}",
        what="Texts that some judges accept and others do not. Only texts that all accept count for the CCS.",
        unit="texts",
        name="disputed",
        table=csv_text(["head", "text", "concept", "verdicts"], rows),
    )


# -- the annotation task -------------------------------------------------------------------------------------


def begin(app: App, session: Session, seed: int) -> None:
    """Start a blind sample of this model's texts."""
    pairs = annotation.pairs_of(app.sheet(session.state.model).table("judgments"))
    session.task = Annotation(seed, tuple(annotation.sample(pairs, TASK, seed)), [])


def answer(app: App, session: Session, said: str) -> None:
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


def _task(app: App, session: Session, sheet: Sheet) -> str:
    task = session.task
    if task is None or (task.items and task.items[0].model != sheet.model):
        return (
            '<div class="panel"><h3>Judge for yourself</h3><p>Up to 60 texts, each with a concept; neither '
            "head nor verdict is shown. "
            "How far you agree with the judges is shown as you go, and your answers can be saved.</p><form "
            'class="row" data-do="begin">'
            '<label>seed of the sample <input type="number" name="seed" min="0" max="99999" value="0">'
            "</label>"
            '<button type="submit" class="primary">Begin</button></form></div>'
        )
    n, total = len(task.answers), len(task.items)
    found = agreed(task)
    if found is None:
        level = "No answer yet."
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
        f"{level}</p>",
        what="The sample is drawn at random among texts that all judges scored, in the proportions of their "
        "verdicts. Save it as CSV at any "
        "time; <code>python -m batch.annotate import FILE</code> reads it and sets several people beside the "
        "judges.",
        unit="coefficient",
        name="annotation",
        table=saved,
    )
