"""Every directional sentence of the study as a check over figures, the printed ones or measured ones.

The sentences are paraphrased from the abstracts of the three versions, from the project page, which repeats
sections and captions of the paper, and from the authors' summary of it (Thoughtworks AI Labs); `source` says
which, and which table or figure the sentence is about. A cell is a figure or a pair of figures that the
sentence speaks of; it bears the sentence out or goes against it. Cells without a figure are left out, so the
same checks run over a part of the measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from ccs.paper import figures
from ccs.paper.checks import Check
from ccs.paper.comparison import TABLES, claims, compare
from ccs.results import Results

Figures = Mapping[tuple[str, str, str], float]
"""(table, row, column) -> number."""
Cells = Iterator[tuple[str, bool]]

SMALL = 1.0  # points that still count as "minimal" or "minor"; the study names no limit
LARGER = (
    ("ViT-L-14-OpenAI", "ViT-B-32-OpenAI"),
    ("ViT-L-14-OpenAI", "ViT-B-16-OpenAI"),
    ("ViT-L-14-LAION", "ViT-B-16-LAION"),
)
"""(larger, smaller) models trained on the same data."""
ACCURACY = ("table5", "table6")
KS = ("K=5", "K=7", "K=9", "K=11", "K=13")


@dataclass(frozen=True)
class Sentence:
    """A sentence of the study. `cells` yields (the figures, whether they bear it out)."""

    source: str
    text: str
    cells: Callable[[Figures], Cells]

    def check(self, values: Figures) -> Check:
        """How many cells bear the sentence out, and those that go against it."""
        return Check.of_outcomes(self.text, dict(self.cells(values)), self.source)


@cache
def printed() -> Figures:
    """The study's own figures."""
    return {
        (key, row, column): value
        for key, table in figures.tables().items()
        for row, values in table.rows.items()
        for column, value in zip(table.columns, values, strict=True)
        if value is not None
    }


def measured(results: Mapping[str, Results], *, correct: bool = True) -> Figures:
    """What results say of the same cells; `results`: by model.

    Bias is that of the correct metric, or with `correct` False that of the study's code.
    """
    found = {}
    for key in TABLES:
        for claim in claims(key):
            one = compare(claim, results.get(claim.model))
            value = one.correct if correct and claim.measure == "bias" else one.measured
            if value is not None:
                found[claim.table, claim.row, claim.column] = value.value
    return found


def audit(values: Figures | None = None) -> tuple[Check, ...]:
    """Every sentence over the figures (default: the printed ones), in the study's order."""
    return tuple(one.check(printed() if values is None else values) for one in SENTENCES)


# The parts that sentences are made of ---------------------------------------------------------------


def _sets(table: str) -> tuple[str, ...]:
    """The sets or attributes of a table's columns, with their slash; "" where columns name plans alone."""
    columns = figures.table(table).columns
    return tuple(dict.fromkeys(column[: column.find("/") + 1] for column in columns))


def _below(values: Figures, table: str, smaller: str, larger: str, rows: str = "", of: str = "") -> Cells:
    """Whether one plan's figure is below another's, row by row and set by set.

    `rows`: only rows that begin so; `of`: only sets that begin so.
    """
    for row in figures.table(table).rows:
        for name in _sets(table):
            low, high = values.get((table, row, name + smaller)), values.get((table, row, name + larger))
            if low is not None and high is not None and row.startswith(rows) and name.startswith(of):
                yield f"{_place(table, row, name)} ({larger} {high:g}, {smaller} {low:g})", low < high


def _place(table: str, row: str, name: str = "") -> str:
    return f"{figures.table(table).number}, {row} {name.rstrip('/')}".rstrip()


def _drop(values: Figures, table: str, row: str, name: str, plan: str) -> float | None:
    before, after = values.get((table, row, f"{name}original")), values.get((table, row, name + plan))
    return None if before is None or after is None else before - after


def _small_drops(values: Figures, table: str, plan: str) -> Cells:
    for row in figures.table(table).rows:
        for name in _sets(table):
            drop = _drop(values, table, row, name, plan)
            if drop is not None:
                yield f"{_place(table, row, name)} ({-drop:+.2f})", abs(drop) <= SMALL


def _original(values: Figures, row: str) -> float | None:
    """The unpruned accuracy of a row of figure 2, which prints none: table 5 has it."""
    dataset, model = row.split("/")
    return values.get(("table5", model, f"{dataset}/original"))


# The sentences, in the study's order ----------------------------------------------------------------


def _high_below_low(values: Figures) -> Cells:
    for table in (*ACCURACY, "figure5"):
        yield from _below(values, table, "high", "low")


def _high_below_random(values: Figures) -> Cells:
    yield from _below(values, "figure2", "high", "random")
    yield from _below(values, "figure5", "high", "random")


def _kappa(values: Figures) -> Cells:
    for (table, row, column), value in values.items():
        if table == "table4":
            limit = 0.8 if column == "cohen_kappa" else 0.7
            yield f"{_place(table, row)} {column} {value:g}", value > limit


def _by_k(values: Figures, row: str, name: str) -> list[float]:
    found = [values.get(("table3", row, name + k)) for k in KS]
    return [value for value in found if value is not None]


def _k_range(values: Figures) -> Cells:
    for row in figures.table("table3").rows:
        for name in _sets("table3"):
            if len(found := _by_k(values, row, name)) == len(KS):
                spread = max(found) - min(found)
                yield f"{_place('table3', row, name)} (range {spread:.2f})", spread <= 3


def _k_order(values: Figures) -> Cells:
    for name in _sets("table3"):
        for one, other in combinations(figures.table("table3").rows, 2):
            ours, theirs = _by_k(values, one, name), _by_k(values, other, name)
            if len(ours) == len(theirs) == len(KS):
                same = {a < b for a, b in zip(ours, theirs, strict=True)}
                yield f"Table 3, {name.rstrip('/')}, {one} against {other}", len(same) == 1


def _k_no_gain(values: Figures) -> Cells:
    for row in figures.table("table3").rows:
        for name in _sets("table3"):
            if len(found := _by_k(values, row, name)) == len(KS):
                yield _place("table3", row, name), found != sorted(found)


def _large_models_lose_less(values: Figures) -> Cells:
    for table in ACCURACY:
        for large, small in LARGER:
            for name in _sets(table):
                ours, theirs = (_drop(values, table, row, name, "high") for row in (large, small))
                if ours is not None and theirs is not None:
                    where = f"{figures.table(table).number}, {name.rstrip('/')}, {large} against {small}"
                    yield f"{where} ({ours:.2f}, {theirs:.2f})", ours < theirs


def _ccr(values: Figures) -> Cells:
    for large, small in LARGER:
        ours, theirs = values.get(("table11", large, "CCR")), values.get(("table11", small, "CCR"))
        if ours is not None and theirs is not None:
            yield f"Table 11, {large} against {small} ({ours:g}, {theirs:g})", ours < theirs


def _table5_drops(values: Figures) -> Cells:
    return _below(values, "table5", "high", "original")


def _table5_low(values: Figures) -> Cells:
    return _small_drops(values, "table5", "low")


def _figure2(values: Figures) -> Cells:
    return _below(values, "figure2", "high", "random")


def _random_is_minor(values: Figures) -> Cells:
    for row in figures.table("figure2").rows:
        before, after = _original(values, row), values.get(("figure2", row, "random"))
        if before is not None and after is not None:
            yield f"{_place('figure2', row)} ({after - before:+.2f})", before - after <= SMALL


def _gap_shrinks(values: Figures) -> Cells:
    def gap(dataset: str, model: str) -> float | None:
        high, chance = (values.get(("figure2", f"{dataset}/{model}", plan)) for plan in ("high", "random"))
        return None if high is None or chance is None else chance - high

    for dataset in ("cifar10", "cifar100", "food101"):
        for large, small in LARGER:
            ours, theirs = gap(dataset, large), gap(dataset, small)
            if ours is not None and theirs is not None:
                yield (
                    f"Figure 2, {dataset}, {large} against {small} ({ours:.2f}, {theirs:.2f})",
                    ours < theirs,
                )


def _equal_as_printed(values: Figures) -> Cells:
    return _below(values, "table7", "high", "low")


def _equal_exchanged(values: Figures) -> Cells:
    return _below(values, "table7", "low", "high")


def _table6_drops(values: Figures) -> Cells:
    for name in ("country211", "oxford_pets"):
        yield from _below(values, "table6", "high", "original", of=name)


def _ood_drops(values: Figures) -> Cells:
    return _below(values, "table6", "high", "original", of="imagenet")


def _ood_more_than_low(values: Figures) -> Cells:
    return _below(values, "table6", "high", "low", of="imagenet")


def _locations(values: Figures) -> Cells:
    return _below(values, "figure3", "locations", "animals")


def _objects(values: Figures) -> Cells:
    yield from _below(values, "figure4", "objects", "locations")
    yield from _below(values, "figure4", "objects", "animals")


def _concept_drops(values: Figures) -> Cells:
    yield from _below(values, "figure3", "locations", "original")
    yield from _below(values, "figure4", "objects", "original")


def _video_drops(values: Figures) -> Cells:
    return _below(values, "figure5", "high", "original")


def _video_worst(values: Figures) -> Cells:
    for rows in ("msrvtt", "msvd"):
        for plan in ("low", "random"):
            yield from _below(values, "figure5", "high", plan, rows=rows)


def _video_others_close(values: Figures) -> Cells:
    for row in figures.table("figure5").rows:
        high = _drop(values, "figure5", row, "", "high")
        for plan in ("low", "random"):
            other = _drop(values, "figure5", row, "", plan)
            if high is not None and other is not None:
                place = f"{_place('figure5', row)} ({plan} {-other:+.1f}, high {-high:+.1f})"
                yield place, abs(other) < abs(high)


def _fairface(values: Figures) -> Cells:
    return _below(values, "table8", "high", "original")


def _counterfactuals(values: Figures) -> Cells:
    return _below(values, "table9", "high", "original")


def _more_on_counterfactuals(values: Figures) -> Cells:
    for row in figures.table("table9").rows:
        for name in _sets("table9"):
            falls = {}
            for table in ("table8", "table9"):
                drop = _drop(values, table, row, name, "high")
                if drop is not None:
                    falls[table] = 100 * drop / values[table, row, f"{name}original"]
            if len(falls) == 2:
                place = f"{row} {name.rstrip('/')} ({falls['table9']:.0f}% against {falls['table8']:.0f}%)"
                yield place, falls["table9"] > falls["table8"]


def _high_is_the_driver(values: Figures) -> Cells:
    for table in ("table8", "table9"):
        yield from _below(values, table, "high", "low")


def _poster(values: Figures) -> Cells:
    return _below(values, "poster", "high", "original")


SENTENCES = (
    Sentence(
        "abstract, all versions; tables 5 and 6, figure 5",
        "Pruning high heads costs more than pruning low heads.",
        _high_below_low,
    ),
    Sentence(
        "abstract, all versions; figures 2 and 5",
        "Pruning high heads costs more than pruning random heads.",
        _high_below_random,
    ),
    Sentence(
        "authors' summary; table 4",
        "Kappa exceeds 0.8, and the correlations of people with the judges exceed 0.7.",
        _kappa,
    ),
    Sentence(
        "authors' summary; table 3",
        "Accuracy varies by 1 to 3 points over K (here: at most 3).",
        _k_range,
    ),
    Sentence(
        "authors' summary; table 3",
        "The ordering is the same whatever K (here: of any two models).",
        _k_order,
    ),
    Sentence("authors' summary; table 3", "A larger K does not steadily raise the accuracy.", _k_no_gain),
    Sentence(
        "authors' summary; tables 5 and 6",
        "Larger models lose less when high heads are pruned (same training data, set by set).",
        _large_models_lose_less,
    ),
    Sentence("authors' summary; table 11", "Larger models have a lower CCR (same training data).", _ccr),
    Sentence(
        "project page, the role of CCS; table 5",
        "Pruning high heads lowers accuracy in every case.",
        _table5_drops,
    ),
    Sentence(
        "project page, the role of CCS; table 5",
        "Pruning low heads has a minimal effect (here: at most a point).",
        _table5_low,
    ),
    Sentence(
        "project page, equal numbers; figure 2",
        "High heads cost more than random ones on every set and model.",
        _figure2,
    ),
    Sentence(
        "project page, equal numbers; figure 2",
        "Pruning random heads costs little (here: at most a point).",
        _random_is_minor,
    ),
    Sentence(
        "project page, equal numbers; figure 2",
        "The gap between high and random is smaller in larger models (same training data).",
        _gap_shrinks,
    ),
    Sentence(
        "project page, equal numbers; table 7 as printed",
        "At equal numbers high heads cost more than low heads.",
        _equal_as_printed,
    ),
    Sentence(
        "project page, equal numbers; table 7, headings exchanged",
        "At equal numbers high heads cost more than low heads.",
        _equal_exchanged,
    ),
    Sentence(
        "project page, out of domain; table 6",
        "Pruning high heads lowers accuracy on ImageNet-A and ImageNet-R.",
        _ood_drops,
    ),
    Sentence(
        "project page, out of domain; table 6",
        "It lowers it more there than pruning low heads.",
        _ood_more_than_low,
    ),
    Sentence(
        "caption of table 6",
        "Pruning high heads lowers accuracy on Country-211 and Oxford-Pets.",
        _table6_drops,
    ),
    Sentence(
        "project page and section 4.4; figures 3 and 4",
        "Pruning the heads of the task's own concept lowers accuracy.",
        _concept_drops,
    ),
    Sentence(
        "project page and section 4.4; figure 3",
        "On Country-211 location heads matter more than animal heads.",
        _locations,
    ),
    Sentence(
        "project page and section 4.4; figure 4",
        "On CIFAR-10's objects, object heads matter more than location or animal heads.",
        _objects,
    ),
    Sentence(
        "project page, video retrieval; figure 5", "Pruning high heads lowers R@1 on every set.", _video_drops
    ),
    Sentence(
        "project page, video retrieval; figure 5",
        "On MSR-VTT and MSVD high heads cost more than low and random ones.",
        _video_worst,
    ),
    Sentence(
        "project page, video retrieval; figure 5",
        "With low or random heads pruned R@1 stays closer to the original.",
        _video_others_close,
    ),
    Sentence(
        "project page, social biases; table 8",
        "On FairFace pruning high heads lowers MaxSkew for race and gender in all models.",
        _fairface,
    ),
    Sentence(
        "project page, social biases; table 9",
        "On SocialCounterfactuals pruning high heads lowers MaxSkew.",
        _counterfactuals,
    ),
    Sentence(
        "project page, social biases; tables 8 and 9",
        "The fall is larger on SocialCounterfactuals than on FairFace (here: in percent of the original).",
        _more_on_counterfactuals,
    ),
    Sentence(
        "project page, social biases; tables 8 and 9",
        "High heads contribute more to MaxSkew than others (here: than the low heads).",
        _high_is_the_driver,
    ),
    Sentence("poster", "Pruning high heads lowers MaxSkew on SocialCounterfactuals.", _poster),
)
