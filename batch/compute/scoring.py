"""Scores of heads from their verdicts, at every K, and rows of the table scores.

The texts of a smaller K are the first of a larger one, and each was judged once against the one concept that
the head's main K texts name (see `ccs.score`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccs.heads import Head
from ccs.texts import score
from ccs.texts.labels import Label
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Row = dict[str, Any]


def score_heads(
    spans: Mapping[Head, Sequence[Span]],
    labels: Mapping[Head, Label],
    judged: Sequence[Row],
    variance: Mapping[Head, float],
    ks: Sequence[int],
) -> tuple[dict[int, dict[Head, HeadScore]], list[Row]]:
    """Each head's score at each K, and the table's rows, the main K's first.

    spans: as many texts a head as the largest K. judged: rows of the table judgments, each judge's in the
    order of the texts.
    """
    verdicts: dict[Head, dict[str, list[bool | None]]] = {head: {} for head in spans}
    for row in judged:
        verdicts[Head(row["layer"], row["head"])].setdefault(row["judge"], []).append(row["verdict"])
    # A head without a concept was not judged: its score is unknown, not zero.
    unknown = dict.fromkeys(ks)
    scores: dict[int, dict[Head, HeadScore]] = {k: {} for k in ks}
    rows = []
    for head, chosen in spans.items():
        by_judge = list(verdicts[head].values())
        unanimous = score.ccs_of_first(by_judge, ks) if by_judge else unknown
        majority = score.ccs_of_first(by_judge, ks, "majority") if by_judge else unknown
        label = labels[head].concept
        for k in ks:
            scores[k][head] = HeadScore(unanimous[k], label)
            rows.append(
                {"layer": head.layer, "head": head.head, "label": label, "k": k, "ccs": unanimous[k]}
                | {"level": score.level(unanimous[k], k), "majority": majority[k]}
                | {"share": min(1.0, sum(span.share for span in chosen[:k])), "variance": variance[head]}
            )
    return scores, sorted(rows, key=lambda row: row["k"])
