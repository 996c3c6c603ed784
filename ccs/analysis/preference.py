"""Does a model prefer a group for every prompt, or different groups for different occupations?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.metrics import preference, stats
from ccs.metrics.preference import FirstGroup, Split
from ccs.metrics.ranking import Ranking, cosines, first_alike
from ccs.texts.neutral import NEUTRAL, embed_neutral

if TYPE_CHECKING:
    from ccs.model.model import Model

PARTS = ("total", "general", "specific")


@dataclass(frozen=True, eq=False)
class Preference:
    """The group scores of a model's rankings, split into a general and a prompt-specific part.

    Attributes:
        before: the split before ablation; None if it can't be measured.
        after: the split after ablation, equal without ablation.
        neutral: whom neutral and nonsense prompts put first, after ablation.
        reason: why there is no split, or "".
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
        rows: list[dict[str, Any]] = []
        if self.before and self.after:
            before, after = self.before, self.after
            share = {"quantity": "general share", "before": before.share.value, **_ends(after.share)}
            rows.append(share | {"chance_low": after.chance.low, "chance_high": after.chance.high})
            rows.extend(
                {"quantity": part, "before": getattr(before, part).value, **_ends(getattr(after, part))}
                for part in PARTS
            )
            for group, old, new in zip(after.groups, before.direction, after.direction, strict=True):
                rows.append({"quantity": "direction", "name": group, "before": old.value, **_ends(new)})
        for prompt in self.neutral:
            chance = {"chance_low": prompt.chance.low, "chance_high": prompt.chance.high}
            row = {"quantity": "MaxSkew", "name": prompt.prompt, "after": prompt.max_skew, **chance}
            rows.append(row | {"group": prompt.group})
        columns = ["quantity", "name", "group", "before", "after", "low", "high", "chance_low", "chance_high"]
        return pd.DataFrame(rows, columns=columns).fillna({"name": "", "group": ""})


def _ends(estimate: stats.Estimate) -> dict[str, float]:
    return {"after": estimate.value, "low": estimate.low, "high": estimate.high}


def measure_preference(
    model: Model,
    images: Sequence[NDArray[np.floating]],
    ranking: Ranking,
    texts: Sequence[NDArray[np.floating]],
    templates: Sequence[str],
    *,
    ablate: HeadSet | None = None,
    seed: int = 0,
    draws: int = preference.DRAWS,
) -> Preference:
    """Split the group scores of a gallery's rankings, before and after ablation.

    Args:
        model: gives the logit scale and the embeddings of neutral prompts.
        images: embeddings [n, d] of all images before ablation and, if images change, after.
        ranking: groups, units, and K; every prompt ranks all images here.
        texts: embeddings [prompts, d] before ablation and, if texts change, after.
        templates: the prompts' templates, for neutral prompts.
        ablate: text heads that are ablated.
        seed: random seed.
        draws: number of bootstrap draws.
    """
    distinct = np.unique(first_alike(texts[0]))
    splits: list[Split] = []
    reason = ""
    try:
        for embeddings, prompts in ((images[0], texts[0]), (images[-1], texts[-1])):
            if splits and images[-1] is images[0] and texts[-1] is texts[0]:
                break
            scores = model.logit_scale * cosines(prompts[distinct], embeddings)
            settings: dict[str, Any] = {"units": ranking.units, "seed": seed, "draws": draws}
            splits.append(preference.split(scores, ranking.groups, **settings))
    except InputError as error:
        reason = str(error)
    neutral = cosines(embed_neutral(model, NEUTRAL, templates, ablate), images[-1])
    firsts = preference.first_groups(NEUTRAL, neutral, ranking.groups, ranking.k, seed=seed)
    before, after = (splits[0], splits[-1]) if splits else (None, None)
    return Preference(before=before, after=after, neutral=firsts, reason=reason)


@dataclass(frozen=True)
class HeadEffect:
    """How ablating heads changes the two parts of the group scores.

    Attributes:
        heads: the ablated heads.
        general, specific: change of the part's size as a share of the total before, with p-values; paired.
    """

    heads: HeadSet
    general: stats.Effect
    specific: stats.Effect

    @property
    def moves(self) -> str:
        """Return which part ablation lowers or raises: "general", "specific", "both", or "neither"."""
        moved = [name for name in ("general", "specific") if getattr(self, name).p_value <= 1 - stats.LEVEL]
        return "both" if len(moved) == 2 else moved[0] if moved else "neither"


def effects_of_heads(
    images: NDArray[np.floating],
    ablated: NDArray[np.floating],
    heads: Sequence[Head | HeadSet],
    ranking: Ranking,
    *,
    logit_scale: float,
    seed: int = 0,
    draws: int = preference.DRAWS,
) -> tuple[HeadEffect, ...]:
    """Return how ablating each head, or set of heads, moves the general and the specific part.

    Args:
        images: embeddings [n, d] with all heads.
        ablated: embeddings [heads, n, d] with each of `heads` ablated.
        heads: heads, or sets of heads.
        ranking: prompts, groups, and units; every prompt ranks all images here.
        logit_scale: the factor from a cosine to a logit.
        seed: random seed.
        draws: number of bootstrap draws, the same for all heads.

    Raises:
        InputError: If there are fewer than two different prompts, two groups, or two images of a group.
    """
    prompts = ranking.prompts[np.unique(first_alike(ranking.prompts))]

    def measured(embeddings: NDArray[np.floating]) -> tuple[dict[str, float], preference.Draws]:
        scores = logit_scale * cosines(prompts, embeddings)
        cells = preference.block_scores(scores, ranking.codes, units=ranking.units, seed=seed)
        return preference.parts(cells), preference.resampled(cells, draws=draws, seed=seed)

    before, drawn = measured(images)
    size = max(before["total"], 1e-12)
    effects = []
    for chosen, embeddings in zip(heads, ablated, strict=True):
        after, redrawn = measured(embeddings)
        changes = {
            name: stats.effect(
                (after[name] - before[name]) / size, (getattr(redrawn, name) - getattr(drawn, name)) / size
            )
            for name in ("general", "specific")
        }
        effects.append(HeadEffect(HeadSet([chosen]) if isinstance(chosen, Head) else chosen, **changes))
    return tuple(effects)


def head_rows(effects: Sequence[HeadEffect]) -> pd.DataFrame:
    """Return one row per effect: the ablated heads, the change of each part, and which part `moves`.

    Changes are shares of the total before; each has its 95% interval and p-value.
    """
    rows = []
    for effect in effects:
        row: dict[str, Any] = {"ablate": str(effect.heads)}
        for name in ("general", "specific"):
            change = getattr(effect, name)
            row |= {name: change.value, f"{name}_low": change.low, f"{name}_high": change.high}
            row[f"{name}_p"] = change.p_value
        rows.append(row | {"moves": effect.moves})
    return pd.DataFrame(rows)
