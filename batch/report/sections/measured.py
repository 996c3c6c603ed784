"""The measured part of the report: what has no published counterpart, first of all the two organisms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from batch.report.figures import Point, dots, plane
from batch.report.page import Block, Chart, Grid, Heading, Text
from batch.report.sections.effects import effect_blocks
from batch.report.sections.questions import answers
from batch.report.sections.search import search_blocks
from batch.report.sections.truth import ccs_and_truth, selectivity_chart
from batch.report.wording import signed
from ccs.results import Results, queries


def model_sections(name: str, results: Results, *, in_organisms: bool = False) -> Iterator[Block]:
    """CCS, accuracy, skew, effects, single heads and selectivity of one model.

    `in_organisms`: whether the section on the organisms shows its searches.
    """
    yield Heading(2, f"Measured: {name}")
    yield Text(_about(results))
    yield from answers(results)
    yield from _levels(queries.main_scores(results), results.manifest.get("chance_ccs") or ())
    yield from _accuracy(name, results.table("pruning"))
    yield from _further_k(results)
    yield from _retrieval(results.table("retrieval"))
    yield from _skew(name, results.table("bias"))
    yield from _plane(name, results)
    yield from effect_blocks(results.table("effects"))
    yield from _single_heads(results.table("heads"), queries.main_scores(results))
    yield from ccs_and_truth(results)
    yield from selectivity_chart(name, _slug(name), results)
    if not in_organisms:
        yield from search_blocks(_slug(name), results)


def _about(results: Results) -> str:
    manifest = results.manifest
    images, texts = manifest["images"], manifest["texts"]
    judges = manifest.get("judges") or []
    labeler = manifest.get("labeler")
    who = [judge for judge in [*judges, labeler] if isinstance(judge, Mapping)]
    stand_ins = sorted({str(judge["name"]) for judge in who if judge.get("stand_in")})
    note = f" **{', '.join(stand_ins)} stands in for a language model.**" if stand_ins else ""
    return (
        f"Weights `{str(manifest['model'].get('weights_hash', ''))[:16]}`; moments of {images.get('count')} "
        f"pictures of {images.get('name')}; {texts.get('count')} texts of {texts.get('name')}; computed "
        f"{str(manifest.get('created', ''))[:10]}.{note}"
    )


def head_name(row: Mapping[str, object] | pd.Series) -> str:
    """L6.H1."""
    return f"L{row['layer']}.H{row['head']}"


def _levels(frame: pd.DataFrame, chance: Sequence[float]) -> Iterator[Block]:
    if not len(frame):
        return
    yield Heading(3, "Concept consistency")
    k = int(frame["k"].iloc[0])
    counts = frame["ccs"].value_counts()
    unknown = int(frame["ccs"].isna().sum())
    line = ", ".join(f"{int(counts.get(value, 0))} of CCS {value}" for value in range(k + 1))
    text = f"{len(frame)} heads: {line}{f', {unknown} unknown' if unknown else ''}."
    if len(chance) == k + 1:
        shares = ", ".join(f"{100 * share:.1f}% of CCS {value}" for value, share in enumerate(chance))
        text += f" Heads whose texts are drawn from the pool at random: {shares}."
    yield Text(text)
    rows = []
    for _, row in frame.sort_values(["ccs", "share"], ascending=False).iterrows():
        ccs = "unknown" if pd.isna(row["ccs"]) else f"{int(row['ccs'])} of {k}"
        label = "–" if pd.isna(row["label"]) else str(row["label"])
        rows.append([head_name(row), label, ccs, str(row["level"]) or "–", f"{row['share']:.2f}"])
    columns = ["head", "concept", "CCS", "level", "variance explained by its texts"]
    yield Grid(columns, rows, "", frozenset({"concept", "level"}))


def _main_plans(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of plans of many heads at the main K; of random plans only the mean over seeds."""
    grouped = ~frame["plan"].str.startswith("single:") & ~frame["plan"].str.contains("@", regex=False)
    seeded = (frame["plan"] == "random") & frame["seed"].notna()
    return frame[grouped & ~seeded]


def _change(row: pd.Series, scale: float, digits: int) -> str:
    if row["plan"] == "none" or pd.isna(row["difference"]):
        return ""
    text = f" ({signed(row['difference'], digits, scale)}"
    if pd.notna(row["difference_low"]):
        low, high = (signed(row[f"difference_{end}"], digits, scale) for end in ("low", "high"))
        text += f": {low} to {high}"
    return text + ")"


def _wide(
    frame: pd.DataFrame, columns: list[str], scale: float, digits: int
) -> tuple[list[str], list[list[str]]]:
    """Plans down, `columns` of the frame together across: value and change with its interval."""
    keys = list(dict.fromkeys(frame[columns].itertuples(index=False, name=None)))
    rows = []
    for (plan, size), some in frame.groupby(["plan", "n_heads"], sort=False):
        cells = {tuple(row[name] for name in columns): row for _, row in some.iterrows()}
        line = [f"{plan} ({size})"]
        for key in keys:
            row = cells.get(key)
            line.append(
                "–" if row is None else f"{row['value'] * scale:.{digits}f}{_change(row, scale, digits)}"
            )
        rows.append(line)
    names = [" ".join(str(part) for part in key if part) for key in keys]
    return ["plan (heads off)", *names], rows


def _accuracy(name: str, pruning: pd.DataFrame) -> Iterator[Block]:
    frame = _main_plans(pruning[(pruning["metric"] == "top1")])
    if not len(frame):
        return
    yield Heading(3, "Accuracy by plan")
    columns, rows = _wide(frame, ["dataset", "subset"], 100, 1)
    yield Text("Top-1 in percent; in brackets the change from no head off, with its 95% interval.")
    yield Grid(columns, rows)
    points = [
        Point(
            f"{row['dataset']}", str(row["plan"]), row["value"] * 100, _of(row["low"]), _of(row["high"]), True
        )
        for _, row in frame.iterrows()
        if row["plan"] in ("none", "high", "low", "random") and not row["subset"]
    ]
    yield Chart(
        f"{_slug(name)}-accuracy",
        dots(points, "top-1 (%)"),
        f"{name}: zero-shot accuracy with no head, the high, the low and as many random heads off.",
    )


def _further_k(results: Results) -> Iterator[Block]:
    """High, low and random heads where other numbers of texts a head are judged, as in table 3."""
    pruning = results.table("pruning")
    frame = pruning[(pruning["metric"] == "top1") & (pruning["subset"] == "")]
    at = frame["plan"].str.extract(r"^(high|low|random)@(\d+)$")
    frame = frame.assign(kind=at[0], k=at[1])[at[1].notna()]
    frame = frame[~((frame["kind"] == "random") & frame["seed"].notna())]
    if not len(frame):
        return
    main = queries.main_scores(results)
    if len(main):
        same = pruning[(pruning["metric"] == "top1") & (pruning["subset"] == "")]
        same = same[same["plan"].isin(["high", "low", "random"]) & same["dataset"].isin(frame["dataset"])]
        same = same[~((same["plan"] == "random") & same["seed"].notna())]
        frame = pd.concat([same.assign(kind=same["plan"], k=str(main["k"].iloc[0])), frame])
    rows = []
    for k, some in sorted(frame.groupby("k", sort=False), key=lambda pair: int(str(pair[0]))):
        shown = some.assign(plan=some["kind"])
        columns, made = _wide(shown, ["dataset"], 100, 1)
        rows += [[str(k), *row] for row in made]
    yield Heading(3, "Accuracy when the high heads are those of other K")
    yield Text(
        "K texts a head are judged; high heads are those all of whose K texts agree, so there are fewer "
        "of them the larger K is. Each head keeps its concept. Top-1 in percent, and the change from no "
        "head off."
    )
    yield Grid(["K", *columns], rows, "", frozenset({"plan (heads off)"}))


def _of(value: float, scale: float = 100.0) -> float | None:
    return None if pd.isna(value) else float(value) * scale


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name).lower()


def _retrieval(retrieval: pd.DataFrame) -> Iterator[Block]:
    frame = _main_plans(retrieval[retrieval["metric"].isin(["R@1", "R@10"])])
    if not len(frame):
        return
    yield Heading(3, "Retrieval by plan")
    columns, rows = _wide(frame, ["dataset", "direction", "metric"], 100, 1)
    yield Grid(columns, rows, "Percent of queries.")


def _skew(name: str, bias: pd.DataFrame) -> Iterator[Block]:
    mean = bias[(bias["metric"] == "MaxSkew mean") & (bias["mode"] == "correct") & (bias["target"] == "pool")]
    frame = _main_plans(mean[mean["occupation"] == ""])
    if not len(frame):
        return
    yield Heading(3, "MaxSkew by plan")
    chances = frame.drop_duplicates(["dataset", "attribute", "k"])
    levels = "; ".join(
        f"{row['dataset']}, {row['attribute']} (K = {row['k']} of {row['n']}): {row['chance']:.3f} "
        f"[{row['chance_low']:.3f}, {row['chance_high']:.3f}]"
        for _, row in chances.iterrows()
    )
    yield Text(f"Mean over occupations, natural logarithm. **Chance level** (random rankings): {levels}.")
    columns, rows = _wide(frame, ["dataset", "attribute"], 1, 3)
    yield Grid(columns, rows)
    points = []
    for _, row in frame.iterrows():
        about = f"{row['dataset']}, {row['attribute']}"
        if row["plan"] == "none" and pd.notna(row["chance"]):
            bounds = (_of(row["chance_low"], 1), _of(row["chance_high"], 1))
            points.append(Point(about, "chance", row["chance"], *bounds))
        if row["plan"] in ("none", "high", "low", "random"):
            bounds = (_of(row["low"], 1), _of(row["high"], 1))
            points.append(Point(about, str(row["plan"]), row["value"], *bounds, filled=True))
    yield Chart(
        f"{_slug(name)}-skew",
        dots(points, "MaxSkew, mean over occupations"),
        f"{name}: MaxSkew with no head, the high, the low and as many random heads off, beside chance.",
    )


def _plane(name: str, results: Results) -> Iterator[Block]:
    pruning, bias = results.table("pruning"), results.table("bias")
    accuracy = pruning[(pruning["metric"] == "top1") & (pruning["subset"] == "")]
    skew = bias[(bias["metric"] == "MaxSkew mean") & (bias["mode"] == "correct") & (bias["occupation"] == "")]
    if not len(accuracy) or not len(skew):
        return
    keys = ["plan", "seed"]
    both = pd.merge(
        accuracy.groupby(keys, dropna=False)["value"].mean().rename("accuracy").reset_index(),
        skew.groupby(keys, dropna=False)["value"].mean().rename("skew").reset_index(),
        on=keys,
    )
    points = []
    for _, row in both.iterrows():
        kind = str(row["plan"]).split(":")[0].split("@")[0]
        seed = "" if pd.isna(row["seed"]) else f" seed {int(row['seed'])}"
        points.append((f"{row['plan']}{seed}", row["accuracy"] * 100, row["skew"], kind))
    yield Heading(3, "Accuracy against bias")
    yield Chart(
        f"{_slug(name)}-plane",
        plane(points, "mean top-1 over sets (%)", "mean MaxSkew over attributes and sets"),
        f"{name}: every plan, its mean accuracy and its mean MaxSkew. Better is right and low.",
    )


def _single_heads(heads: pd.DataFrame, scores: pd.DataFrame) -> Iterator[Block]:
    frame = heads[(heads["metric"] == "MaxSkew mean") & (heads["measure"] == "total effect")]
    if not len(frame):
        return
    yield Heading(3, "Which heads carry the skew")
    known = scores.set_index(["layer", "head"])
    rows = []
    for (dataset, factor), some in frame.groupby(["dataset", "factor"], sort=False):
        for _, row in some.sort_values("value").head(5).iterrows():
            at = (row["layer"], row["head"])
            label = known.loc[[at], "label"].iloc[0] if at in known.index else None
            q = "–" if pd.isna(row["q_value"]) else f"{row['q_value']:.3f}"
            bounds = "–" if pd.isna(row["low"]) else f"[{signed(row['low'], 3)}, {signed(row['high'], 3)}]"
            found = "✓" if pd.notna(row["q_value"]) and row["q_value"] < 0.05 else "–"
            cells = [str(dataset), str(factor), head_name(row), "–" if pd.isna(label) else str(label)]
            rows.append([*cells, signed(row["value"], 3), bounds, q, found])
    yield Text(
        "The five heads whose switching off lowers the mean MaxSkew most, for each set and attribute. ✓: "
        "the false discovery rate over all heads is below 5%."
    )
    columns = ["set", "attribute", "head", "concept", "change of MaxSkew", "95% interval", "q", ""]
    yield Grid(columns, rows, "", frozenset({"attribute", "head", "concept"}))
