"""The view Judges: who decided, how far they agree, what it cost, and a blind task to decide oneself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from ccs.measures import agreement
from ccs.ui.page.parts import button, csv_text, empty, esc, figure, head_row, number, percent, scroll
from ccs.ui.records import Sheet
from ccs.ui.session import Session
from ccs.ui.views import task

if TYPE_CHECKING:
    pass

DRAWS = 400
SHOWN = 20


def verdicts(table: pd.DataFrame) -> dict[str, list[bool | None]]:
    """Judge -> its verdict of every text, in the same order; None where unscored or not asked."""
    wide = table.assign(said=[None if pd.isna(v) else bool(v) for v in table["verdict"]])
    places = sorted({(r.layer, r.head, r.rank) for r in wide.itertuples()})
    found: dict[str, list[bool | None]] = {}
    for judge, rows in wide.groupby("judge"):
        known = {(r.layer, r.head, r.rank): r.said for r in rows.itertuples()}
        found[str(judge)] = [known.get(place) for place in places]
    return found


def render(session: Session, sheet: Sheet) -> str:
    """The view as HTML."""
    table = sheet.judgments()
    if not len(table):
        return empty(
            "No judgments",
            f"There is no table of judgments for {sheet.model}, so nobody has decided anything yet.",
        )
    # The tables stand still while a visitor annotates; only the task changes from key to key.
    still = session.memory.get(
        ("judges", sheet.model),
        lambda: _panel(sheet, table) + _scores(sheet) + _concepts(table) + _disputed(table),
    )
    return task.render(session, sheet) + still


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
        cost = _cost(about.get(rate.judge, {}), sheet.manifest)
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


def _cost(judge: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """What the manifest tells of a judge's cost, whatever it calls it."""
    if judge.get("stand_in"):
        return "nothing"
    measured = manifest.get("measured", {}).get("judges", {})
    own = measured.get(judge.get("name"), {}) if isinstance(measured, Mapping) else {}
    told = [
        f"{key.replace('_', ' ')} {value:g}"
        for key, value in {**judge, **(own if isinstance(own, Mapping) else {})}.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return ", ".join(told) or "not recorded"


def _share(value: float | None) -> str:
    return "–" if value is None or value != value else percent(value)


def _number(value: float) -> str:
    return "–" if value != value else number(value, 3)


def _scores(sheet: Sheet) -> str:
    """How many heads stand at each score, beside what heads with random texts would score."""
    known = [card.ccs for card in sheet.cards.values() if card.ccs is not None and card.k == sheet.k]
    if not known:
        return ""
    chance = [float(share) for share in sheet.manifest.get("chance_ccs") or ()]
    rows = []
    for score in range(sheet.k + 1):
        share = known.count(score) / len(known)
        rows.append((score, known.count(score), share, chance[score] if score < len(chance) else None))
    body = "".join(
        f'<tr><th scope="row">{score} of {sheet.k}</th><td class=num>{n}</td><td><span class="bar plain">'
        f'<span style="width:{100 * share:.1f}%"></span>'
        + ("" if by_chance is None else f'<i style="left:{min(100 * by_chance, 99.4):.1f}%"></i>')
        + f"<b>{percent(share, 0)}</b></span></td><td class=num>{_share(by_chance)}</td></tr>"
        for score, n, share, by_chance in rows
    )
    header = head_row("CCS", "#heads", "share of the heads", "#by chance")
    return figure(
        "What the verdicts come to",
        scroll(f'<table class="nums fit">{header}<tbody>{body}</tbody></table>'),
        what="Heads by their CCS, the number of their texts that all judges accept. <b>By chance</b> (the "
        "upright line): the same for heads with texts drawn at random from the pool, where the run could "
        "tell; even such a head has a label that fits some of its texts.",
        unit="share of the heads, %",
        name="ccs",
        table=csv_text(["CCS", "heads", "share", "by chance"], rows),
    )


def _concepts(table: pd.DataFrame) -> str:
    """How often texts fit, concept by concept: where the judges, or the labels, are strict."""
    rows = []
    for concept, part in table[table["label"].notna()].groupby("label"):
        texts = part.groupby(["layer", "head", "rank"])["verdict"]
        fits = sum(bool(said.notna().all() and said.all()) for _, said in texts)
        heads = len(part[["layer", "head"]].drop_duplicates())
        rows.append((str(concept), heads, texts.ngroups, fits, fits / texts.ngroups))
    rows.sort(key=lambda row: -row[4])
    body = "".join(
        f'<tr><th scope="row">{esc(name)}</th><td class=num>{heads}</td><td class=num>{n}</td>'
        f'<td><span class="bar plain"><span style="width:{100 * share:.1f}%"></span>'
        f"<b>{percent(share, 0)}</b></span></td><td class=num>{fits}</td></tr>"
        for name, heads, n, fits, share in rows
    )
    header = head_row("concept", "#heads", "#texts", "accepted by all judges", "#accepted")
    return figure(
        "Concept by concept",
        scroll(f'<table class="nums fit">{header}<tbody>{body}</tbody></table>'),
        what="For each concept that names a head: how many of the texts of its heads all judges accept. A "
        "concept far below the others is too narrow for the texts that its heads get.",
        unit="share of texts, %",
        name="concepts",
        table=csv_text(
            ["concept", "heads", "texts", "accepted", "share"],
            [[name, heads, n, fits, share] for name, heads, n, fits, share in rows],
        ),
    )


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
