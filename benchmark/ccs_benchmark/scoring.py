"""Score methods on models with known carriers of a bias: cells, and tables over models.

A cell is one method on one model, attribute, and split. There are two tracks: `PLANTED_HEADS`, models with
planted heads, and `NATURAL` (`natural`), models that learned a bias through CLIP's loss. The folder `cells`
has the cells of `METHODS` on the models of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

from ccs.analysis.evidence import Method, Subject
from ccs.analysis.task import Task
from ccs.data import BiasSet, ClassificationSet, synthetic
from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.heads import Head, HeadSet
from ccs.metrics import stats
from ccs.model.model import Model
from ccs_benchmark import natural, planted_models, variants
from ccs_benchmark.bases import Replicated, across_bases
from ccs_benchmark.protocol import (
    Orders,
    average_precision,
    checked,
    names_any,
    precision,
    rankings,
    reached,
)

CELLS = Path(__file__).with_name("cells") / "planted.parquet"
PLANTED = "planted heads"
"""The ground truth's name in the cells, in place of a method."""
KEY = ("model", "weights", "attribute", "seed", "method")
FIGURES = ("average_precision", "precision", "max_skew_taken", "cramers_v_taken", "accuracy_lost")
REST = ("base", "passes", "took", "named", "gate_p", "people", "heads")
COLUMNS = (*KEY, *FIGURES, *REST)
DEVELOPMENT = ("organism-first", "organism-base-0", "organism-base-1")
"""Bases on which methods, settings, and the default were chosen. Comparisons leave them out."""
TOOK = 0.5
"""Minimum share of the group score gap that ablating the ground truth's heads must remove. Otherwise the
model didn't learn the bias, and the case is left out. MaxSkew isn't used, because its ceiling can hide a
learned bias.
"""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Track:
    """Models, and the scores of a ranking of their heads.

    Attributes:
        figures: Scores of a cell. Tables are ordered by the first.
        oracle: The ground truth's name in the cells.
        file: The bundled cells.
        truths: Returns attribute -> ground truth, given a model's name.
        best: Returns the oracle's order of heads, given a ground truth.
        measure: Returns method -> score -> value, given the model, the unseen half, the ground truth, and
            each method's order of heads and whether it names a head.
        weights: Returns the start of the hash of a model's weights, given its name.
        base: Returns the base model, given a model's name.
        load: Returns the model, given its name.
        fresh: Whether to measure on eight fresh galleries of 600 faces instead of the other half of the
            faces.
    """

    figures: tuple[str, ...]
    oracle: str
    file: Path
    truths: Callable[[str], Mapping[str, Any]]
    best: Callable[[Any], tuple[Head, ...]]
    measure: Callable[..., dict[str, dict[str, float]]]
    weights: Callable[[str], str]
    base: Callable[[str], str]
    load: Callable[..., Model]
    fresh: bool = False


_Carriers = tuple[tuple[Head, ...], HeadSet]
"""The heads to find, the strongest first, and all heads with a planted bias."""


def score(
    method: Callable[..., Mapping[Head, float]],
    models: str | Path | Iterable[str | Path] = "planted",
    splits: int = 4,
    *,
    tell: Tell = print,
) -> pd.DataFrame:
    """Measure how well a method finds the heads that carry a known bias, next to the known methods.

    Args:
        method: A function of `ccs.analysis.evidence.Evidence` that returns a score per head. A higher score
            means that the head more likely carries the bias.
        models: "planted", the bundled models; some of `names()`; files, or folders of files, of such models;
            "hf://USER/NAME", a repository on the Hub with such files; or "natural", the bundled models that
            learned a bias, with the scores of `natural`.
        splits: Number of independent splits into halves.
        tell: Function that is called with a line of text for each case.

    Returns:
        A row per method with the columns of `table`. Known methods are included if their cells of these
        models and splits are bundled.

    Raises:
        InputError: If the method fails or leaves a head without a score.
    """
    name = getattr(method, "__name__", "method")
    track = NATURAL if models == "natural" else PLANTED_HEADS
    places = natural.located() if models == "natural" else planted_models.located(models)
    cells, failed = run({name: checked(name, method)}, places, splits, track=track, tell=tell)
    if failed:
        raise InputError(failed[name])
    return table(with_stored_cells(cells, track.file), name, track)


def with_stored_cells(cells: pd.DataFrame, file: Path) -> pd.DataFrame:
    """Add the stored cells of the same models, attributes, and splits.

    Args:
        cells: New cells, which take precedence.
        file: File with stored cells.
    """
    return joined([of_cases(read_cells(file), cells), cells])


def of_cases(table: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Select the rows whose model, attribute, and split occur in other cells.

    Args:
        table: Cells to select from.
        cells: Cells whose models, attributes, and splits are selected.
    """
    wanted, present = (pd.MultiIndex.from_frame(frame[list(KEY[:4])]) for frame in (cells, table))
    return table[present.isin(wanted)]


def joined(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Join tables of cells. If a cell occurs more than once, the last one counts."""
    filled = [part for part in tables if len(part)]
    if not filled:
        return pd.DataFrame(columns=list(COLUMNS))
    return pd.concat(filled, ignore_index=True).drop_duplicates(list(KEY), keep="last", ignore_index=True)


def read_cells(path: Path = CELLS) -> pd.DataFrame:
    """Read the cells in a file; none if it doesn't exist."""
    return pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=list(COLUMNS))


def run(
    methods: Mapping[str, Method],
    places: Sequence[str],
    splits: int | Sequence[int],
    *,
    file: Path | None = None,
    attributes: Sequence[str] = (),
    track: Track | None = None,
    tell: Tell = print,
    device: str = "cpu",
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Score methods on models.

    Args:
        methods: Name -> method.
        places: Names or paths of models.
        splits: Number of splits, or their numbers.
        file: File of cells, from which a stopped run continues.
        attributes: Attributes. Default: all.
        track: Track of the models. Default: planted heads.
        tell: Function that is called with a line of text for each case.
        device: As in `ccs.load`.

    Returns:
        The cells, and a sentence for each method that failed. Failed methods are left out.
    """
    track = track or PLANTED_HEADS
    sets, failed, parts = synthetic_sets(), dict[str, str](), []
    seeds = range(splits) if isinstance(splits, int) else splits
    for place in places:
        truths, weights = track.truths(place), track.weights(place)
        subject: Subject | None = None
        for attribute, seed in product(attributes or truths, seeds):
            case = dict(zip(KEY, (Path(place).stem, weights, attribute, seed), strict=False))
            there = of_cases(read_cells(file) if file else joined([]), pd.DataFrame([case]))
            missing = {
                name: method
                for name, method in methods.items()
                if name not in set(there["method"]) and name not in failed
            }
            parts.append(there[there["method"].isin([*methods, track.oracle])])
            if not missing:
                continue
            subject = subject or Subject(track.load(place, device=device), *sets, fresh=track.fresh)
            tell(f"{subject.model.name}, {attribute}, split {seed}: {', '.join(missing)}")
            truth, (evidence, unseen) = truths[attribute], subject.split(attribute, seed)
            orders, passes = rankings(evidence, missing, seed, failed)
            gate_p = evidence.task.gap_test(evidence.units).p_value
            if track.oracle:
                orders = {track.oracle: track.best(truth), **orders}
            names_head = {name: names_any(evidence, order) for name, order in orders.items()}
            figures = track.measure(subject.model, unseen, truth, orders, names_head)
            rows = [
                case
                | {"method": name, "base": track.base(place), "passes": passes.get(name, 0.0)}
                | {"named": names_head[name], "gate_p": gate_p, "people": len(unseen.people)}
                | {"heads": " ".join(map(str, order))}
                | figures[name]
                for name, order in orders.items()
            ]
            new = pd.DataFrame(rows, columns=[*KEY, *track.figures, *REST])
            parts.append(new[~new["method"].isin(there["method"])])
            if file:
                store_cells(parts[-1], file)
    return joined(parts), failed


def synthetic_sets() -> tuple[BiasSet, ClassificationSet]:
    """Return 600 synthetic faces, and 186 synthetic subjects."""
    return synthetic.bias_set("faces"), synthetic.classification_set("subjects", 186)


def store_cells(cells: pd.DataFrame, file: Path) -> None:
    """Add cells to a file, and drop those of other weights of the same models.

    Args:
        cells: New cells, which take precedence.
        file: File with stored cells.
    """
    old, weights = read_cells(file), dict(zip(cells["model"], cells["weights"], strict=True))
    stale = old["weights"] != old["model"].map(weights).fillna(old["weights"])
    merged = joined([old[~stale], cells]).sort_values(list(KEY), kind="stable")
    with atomic_write(file) as temporary:
        merged.to_parquet(temporary, index=False, compression="zstd")


def _truths(place: str) -> dict[str, _Carriers]:
    truth = planted_models.truth(place)
    return {name: (truth.carriers(name), truth.carries[name]) for name in truth.attributes}


def _figures(
    model: Model, unseen: Task, truth: _Carriers, orders: Orders, names_head: Mapping[str, bool]
) -> dict[str, dict[str, float]]:
    """Return FIGURES of each order of heads on the unseen half."""
    carriers, planted = truth
    first = {name: HeadSet(order[: len(carriers)]) for name, order in orders.items()}
    sets = [HeadSet(), planted, *sorted(set(first.values()), key=str)]
    before, ablated, *others = reached(model, unseen, sets)
    by_set, by_method = dict(zip(sets[2:], others, strict=True)), dict[str, dict[str, float]]()
    for name, order in orders.items():
        after = by_set[first[name]]
        by_method[name] = {
            "average_precision": average_precision(order, HeadSet(carriers)),
            "precision": precision(order, HeadSet(carriers)),
            "max_skew_taken": before.max_skew - after.max_skew,
            "cramers_v_taken": before.cramers_v - after.cramers_v,
            "accuracy_lost": before.accuracy - after.accuracy,
            "took": 1 - ablated.gap / before.gap,
        }
    return by_method


PLANTED_HEADS = Track(
    FIGURES,
    PLANTED,
    CELLS,
    _truths,
    itemgetter(0),
    _figures,
    planted_models.weights,
    lambda place: planted_models.truth(place).base,
    planted_models.load,
)

NATURAL = Track(
    natural.FIGURES,
    natural.TRUTH,
    natural.CELLS,
    natural.truth,
    natural.best,
    natural.figures,
    variants.weights,
    lambda place: str(variants.known(place)["base"]),
    variants.load,
    fresh=True,
)


def by_model(cells: pd.DataFrame, figures: Sequence[str] = FIGURES) -> pd.DataFrame:
    """Average cells over the attributes and splits of a model.

    Args:
        cells: Cells. Cases whose bias wasn't learned (TOOK) are left out.
        figures: Columns to average.

    Returns:
        A row per model and method with these columns and `passes`.
    """
    took = cells[cells["took"] >= TOOK]
    groups = took.groupby(["base", "model", "weights", "method"])
    # A score that is unknown for a case is unknown for its model.
    unknown = groups[list(figures)].count().lt(groups.size(), axis=0)
    return groups[list(figures)].mean().mask(unknown).join(groups["passes"].median()).reset_index()


def table(cells: pd.DataFrame, against: str | None = None, track: Track = PLANTED_HEADS) -> pd.DataFrame:
    """Summarize cells: a row per method, ordered by the track's first score, the oracle first.

    Args:
        cells: Cells of methods.
        against: Method to compare with. Only its models and splits count.
        track: Track of the models.

    Returns:
        Means over base models of the means over their models, with Student's 95% intervals (`_low`, `_high`),
        of the track's scores. For planted heads: `average_precision` of the ranking, `precision` at as many
        heads as carry the bias, and the effect of ablating these on the other half (`max_skew_taken`,
        `cramers_v_taken`, `accuracy_lost`). `passes`: the median cost. `models`, `bases`, `cases`: how many.
        With `against`: `difference`, `difference_low`, `difference_high`, and `p_value`, of its first figure
        minus the row's, paired over models.

    Raises:
        InputError: If no case is left.
    """
    if against:
        cells = of_cases(cells, cells[cells["method"] == against])
    models, rows = by_model(cells, track.figures), []
    for name, own_rows in models.groupby("method"):
        cases = int(((cells["method"] == name) & (cells["took"] >= TOOK)).sum())
        row: dict[str, Any] = {"method": name, "models": len(own_rows), "cases": cases}
        row |= {"bases": own_rows["base"].nunique()} | means(own_rows, track.figures)
        row |= {"passes": own_rows["passes"].median()}
        if against and name not in (against, track.oracle):
            effect = difference(models, against, str(name), track.figures[0])
            row |= {"difference": effect.value, "difference_low": effect.low, "difference_high": effect.high}
            row["p_value"] = effect.p_value
        rows.append(row)
    if not rows:
        raise InputError("None of these models learned the bias.")
    rows.sort(key=lambda row: (row["method"] != track.oracle, -row[track.figures[0]]))
    return pd.DataFrame(rows).set_index("method")


def means(models: pd.DataFrame, figures: Sequence[str]) -> dict[str, float]:
    """Average figures over base models.

    Args:
        models: Rows of `by_model`.
        figures: Columns to average.

    Returns:
        Each figure with its interval (`_low`, `_high`); NaN if a model lacks it.
    """
    row: dict[str, float] = {}
    for figure in figures:
        values = models[figure]
        interval = stats.UNKNOWN if values.isna().any() else across_bases(values, models["base"])
        row |= {figure: interval.value, f"{figure}_low": interval.low, f"{figure}_high": interval.high}
    return row


def difference(
    models: pd.DataFrame, method: str, other: str, figure: str = "average_precision"
) -> Replicated:
    """Compare two methods, paired over the models that have both.

    Args:
        models: Rows of `by_model`.
        method: First method.
        other: Method that is subtracted.
        figure: Column to compare.
    """
    rows = models.pivot(index=["base", "model", "weights"], columns="method", values=figure)
    paired = rows[[method, other]].dropna()
    return across_bases(paired[method] - paired[other], paired.index.get_level_values("base"))


def estimate(row: pd.Series, figure: str = "average_precision") -> stats.Estimate:
    """Return a figure in a row of `table`, with its interval.

    Args:
        row: Row of the table.
        figure: Column of the figure.
    """
    return stats.Estimate(row[figure], row[f"{figure}_low"], row[f"{figure}_high"])
