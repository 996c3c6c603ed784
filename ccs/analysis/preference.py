"""Does a model prefer a group for every prompt, or different groups for different occupations?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs.errors import InputError
from ccs.metrics import preference, stats
from ccs.metrics.preference import FirstGroup, PartChanges, Split, compare_parts, measure_parts
from ccs.metrics.ranking import Ranking

PARTS = ("total", "general", "specific")


@dataclass(frozen=True, eq=False)
class Preference:
    """The group scores of a model's rankings, split into a general and a prompt-specific part.

    Attributes:
        before: Split before ablation. None if it can't be measured.
        after: Split after ablation, equal to `before` without ablation.
        neutral: Group that each neutral or nonsense prompt puts first, after ablation.
        reason: Reason why there is no split, or "".
    """

    before: Split | None
    after: Split | None
    neutral: tuple[FirstGroup, ...]
    reason: str = ""

    @property
    def verdict(self) -> str:
        """Return the split after ablation in words."""
        return self.after.verdict if self.after else "not measured"

    @property
    def rows(self) -> pd.DataFrame:
        """Return one row per part of the split, per group of its direction, and per neutral prompt.

        Columns: `quantity`, `name` (a group or prompt), `before`, `after`, `low`, `high` (95% interval of
        `after`), `chance_low`, `chance_high`. Shares are of the total; parts are squared logits, summed over
        groups; directions are logits; neutral prompts have their MaxSkew, with the `group` they put first.
        """
        rows, nan = list[tuple[Any, ...]](), float("nan")
        if (before := self.before) and (after := self.after):
            measured = [("general share", "", before.share, after.share)]
            measured += [(part, "", getattr(before, part), getattr(after, part)) for part in PARTS]
            directions = zip(after.groups, before.direction, after.direction, strict=True)
            measured += [("direction", *of_group) for of_group in directions]
            for quantity, name, old, new in measured:
                chance = after.chance if quantity == "general share" else stats.UNKNOWN
                ends = (old.value, new.value, new.low, new.high, chance.low, chance.high)
                rows.append((quantity, name, "", *ends))
        for first in self.neutral:
            ends = (nan, first.max_skew, nan, nan, first.chance.low, first.chance.high)
            rows.append(("MaxSkew", first.prompt, first.group, *ends))
        columns = ["quantity", "name", "group", "before", "after", "low", "high", "chance_low", "chance_high"]
        return pd.DataFrame(rows, columns=columns)


def measure_part_changes(
    scores: Sequence[NDArray[np.floating]], ranking: Ranking, *, seed: int = 0, draws: int = preference.DRAWS
) -> tuple[PartChanges | None, ...]:
    """Measure how heads, sets of heads, or other changes of a model move the general and the specific part.

    Args:
        scores: Cosines [prompts, n] of the unchanged model, then with each change.
        ranking: Ranking question with prompts, groups, and units. Every prompt ranks all images here.
        seed: Random seed for blocks and resampling.
        draws: Number of bootstrap draws, the same for all changes.

    Returns:
        One result per change (`ccs.metrics.preference.compare_parts`); None with fewer than two different
        prompts, groups, or images of a group.
    """
    settings: dict[str, Any] = {"units": ranking.units, "seed": seed, "draws": draws}
    distinct = [cosines[ranking.distinct] for cosines in scores]
    try:
        start, *changed = (measure_parts(part, ranking.groups, **settings) for part in distinct)
    except InputError:
        return (None,) * (len(scores) - 1)
    return tuple(compare_parts(parts, start) for parts in changed)


def part_rows(changes: Iterable[tuple[Mapping[str, Any], PartChanges | None]]) -> pd.DataFrame:
    """Return one row per measured change: what was changed, how each part changes, and which it `moves`.

    Args:
        changes: Columns that describe each change, and its result.

    Returns:
        Changes of `general` and `specific` as shares of the total before, with `_low`, `_high` (95%) and
        `_p`.
    """
    rows = []
    columns = [f"{name}{end}" for name in ("general", "specific") for end in ("", "_low", "_high", "_p")]
    for case, parts in changes:
        if parts is not None:
            values = (*vars(parts.general).values(), *vars(parts.specific).values())
            rows.append({**case, **dict(zip(columns, values, strict=True)), "moves": parts.moves})
    return pd.DataFrame(rows)
