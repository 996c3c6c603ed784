"""The Concept Consistency Score (CCS) of a head from its judges' verdicts; CCS@K, levels and CCR.

CCS(h) is the number of the head's k texts that all judges accept as showing the head's concept. A missing
verdict (unscored) makes the score unknown, never lower; a later run may fill it in.

TEXTSPAN is greedy, so the texts of a smaller k are the first texts of a larger one. A head's concept is named
from its first texts and kept for every k, and each text is judged once, so a head that is high at 7 is high
at 5. The paper does not say whether it names heads again at K = 7 to 13.

    >>> score = ccs([[True, True, False], [True, True, True]])    # [judges][texts]
    >>> score, level(score, 3), ccs_at_k([score, 3], 3)
    (2, 'moderate', (0.0, 0.0, 0.5, 0.5))
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head

Verdict = bool | None
Rule = Literal["unanimous", "majority"]
RULES: tuple[Rule, ...] = ("unanimous", "majority")
SPELLINGS = ("as given", "normalized")
"""Labels as the labeler gave them, and with one spelling for one concept (`labels.normalize`)."""
Row = dict[str, Any]


@dataclass(frozen=True)
class HeadScore:
    """A head's CCS (None: unknown) and its concept in the labeler's words, as judged (None: no label)."""

    ccs: int | None
    label: str | None


def ccs(verdicts: Sequence[Sequence[Verdict]], rule: Rule = "unanimous") -> int | None:
    """Count a head's texts that the judges accept.

    Args:
        verdicts: `[judges][texts]`, one sequence per judge with one verdict per text. A single judge (the
            paper's first version) is a panel of one.
        rule: "unanimous", the paper's: every judge says yes. "majority": more than half do.

    Returns:
        The score, or None if any verdict is missing.

    Raises:
        InputError: There are no judges or texts, the judges' texts differ in number, or a verdict is neither
            a bool nor None.
    """
    if rule not in RULES:
        raise InputError(f"There is no rule {rule!r}; the rules are {', '.join(RULES)}.")
    lengths = {len(judge) for judge in verdicts}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(f"Judges must judge the same number of texts, at least 1; got {sorted(lengths)}.")
    for verdict in (verdict for judge in verdicts for verdict in judge):
        if verdict is not None and not isinstance(verdict, bool | np.bool_):  # NaN would count as a yes
            raise InputError(f"A verdict is True, False or None (unscored), not {verdict!r}.")
    if any(verdict is None for judge in verdicts for verdict in judge):
        return None
    needed = len(verdicts) if rule == "unanimous" else len(verdicts) // 2 + 1
    return sum(sum(map(bool, text)) >= needed for text in zip(*verdicts, strict=True))


def ccs_at_k(scores: Iterable[int | None], k: int) -> tuple[float, ...]:
    """Return CCS@0 ... CCS@k: the share of heads with each score, among the heads whose score is known.

    Args:
        scores: The heads' scores, None for unknown.
        k: Texts per head.

    Returns:
        k + 1 shares; all NaN if no score is known.

    Raises:
        InputError: A score is outside 0 to k.
    """
    known = Counter(_checked(score, k) for score in scores if score is not None)
    total = known.total()
    return tuple(known[score] / total if total else float("nan") for score in range(k + 1))


def level(score: int | None, k: int) -> str:
    """Name the level of a score.

    High is k of k. For k = 5 moderate is 3 and low is 0 or 1, as in the paper, which does not define them for
    other k (at K = 7 to 13 it prunes only high heads). Here moderate is the smallest majority of the texts (k
    // 2 + 1: 4, 5, 6, and 7 for 7, 9, 11, and 13), and low is at most a fifth of them (k // 5: 1, 1, 2, 2).

    Args:
        score: The score, None for unknown.
        k: Texts per head.

    Returns:
        `high`, `moderate`, `low`, `unknown`, or "" for the scores that the paper does not name.
    """
    if score is None:
        return "unknown"
    if _checked(score, k) == k:
        return "high"
    if score <= k // 5:
        return "low"
    return "moderate" if score == k // 2 + 1 else ""


def ccr(labels: Iterable[str | None]) -> float | None:
    """Return the Concentrated Concept Ratio of the high-CCS heads with these labels, one per head.

    It is the number of concepts shared by more than one head, over the number of heads; None without heads.
    Labels are compared as they are: the paper's spellings of one concept ("Descriptive", "Descriptions")
    count as two.
    """
    heads = list(labels)
    return shared(heads) / len(heads) if heads else None


def shared(labels: Iterable[str | None]) -> int:
    """Count the labels that more than one head has."""
    return sum(count > 1 for label, count in Counter(labels).items() if label is not None)


def ccr_rows(high: Mapping[Head, tuple[str | None, str | None]], layers: Iterable[int]) -> list[Row]:
    """Make the rows of the table ccr: all layers together (None), then each of them (the paper's appendix B).

    Args:
        high: The high-CCS heads, each with its label as given and normalized.
        layers: The layers.
    """
    rows: list[Row] = []
    for place, spelling in enumerate(SPELLINGS):
        for layer in (None, *layers):
            labels = [spellings[place] for head, spellings in high.items() if layer in (None, head.layer)]
            counts = {"high": len(labels), "shared": shared(labels), "ccr": ccr(labels)}
            rows.append({"layer": layer, "labels": spelling, **counts})
    return rows


def _checked(score: int, k: int) -> int:
    if k < 1 or not 0 <= score <= k:
        raise InputError(f"A CCS is 0 to k with k at least 1, not {score} with k = {k}.")
    return score
