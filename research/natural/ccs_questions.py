"""Test the paper's questions on models that learned a bias in unchosen heads.

Do heads that carry a learned bias have a high CCS? Does ablating high heads lower the bias more than
ablating random sets of the same size? Base models are the unit, because models of one base model share
their heads before they learn the bias.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr, wilcoxon

from ccs.analysis.ablation_sets import level_heads, matched
from ccs.batch.pages import in_brackets, markdown_table, p_text
from ccs.files import write_text
from ccs.heads import Head, HeadSet
from ccs.metrics import stats
from ccs.model.model import Model
from ccs.texts.score import HeadScore
from ccs_benchmark import natural, variants
from ccs_benchmark.bases import across_bases
from research.holm import holm
from research.planted.bench import ATTRIBUTES, Bench, K

RANDOM = 6
"""Random sets per ablation set, with as many heads per layer: low layers have most bias and high heads."""
CONCEPTS = ("Professions", "People")
TESTED = ("MaxSkew beyond", "gap beyond")
"""Effects of each ablation set minus those of its random sets; p is adjusted for all of them (Holm)."""
ACCURACY = ("accuracy", "accuracy beyond")
CARRIES = 0.1
"""The smallest Shapley share of a head that carries a bias."""


def measure(names: Sequence[str], file: Path, base: Model) -> dict[str, Any]:
    """Measure each model under ablation sets and with each head ablated alone.

    Args:
        names: Names of the models.
        file: JSON file of results; stored results of the same weights are reused.
        base: Organism-first.
    """
    held = json.loads(file.read_text("utf-8")) if file.exists() else {}
    bench = Bench(base)
    for name in names:
        model = variants.load(name)
        if held.get(name, {}).get("weights") != model.weights_hash:
            held[name] = {"weights": model.weights_hash, **_measured(model, bench)}
            write_text(file, json.dumps(held) + "\n")
    return {name: held[name] for name in names}


def _measured(model: Model, bench: Bench) -> dict[str, Any]:
    scores, before = bench.consistency(model), bench.skews(model)
    ablation_sets = [("none", HeadSet()), *_ablation_sets(scores, model)]
    sets = [ablated for _, ablated in ablation_sets]
    rows = [
        {"ablation": name, "size": len(ablated), **skews, "accuracy": accuracy}
        for (name, ablated), skews, accuracy in zip(
            ablation_sets, bench.show(model, sets), bench.accuracy(model, sets), strict=True
        )
    ]
    single_heads: dict[str, dict[str, list[float]]] = {attribute: {} for attribute in ATTRIBUTES}
    for head in model.heads:
        for attribute, skews_without_head in bench.skews(model, HeadSet([head])).items():
            reductions = before[attribute] - skews_without_head
            changed = np.abs(reductions).max() > 1e-9
            p = float(wilcoxon(reductions, method="exact").pvalue) if changed else 1.0
            single_heads[attribute][str(head)] = [round(float(reductions.mean()), 5), p]
    heads = {str(head): [score.ccs, score.label] for head, score in scores.items()}
    return {"heads": heads, "ablations": rows, "alone": single_heads}


def _ablation_sets(scores: Mapping[Head, HeadScore], model: Model) -> Iterable[tuple[str, HeadSet]]:
    """Yield the high heads, the low heads, and the heads of two concepts, each set with its random sets."""
    levels = level_heads(scores, K)
    chosen = {level: levels[level] for level in ("high", "low")}
    for concept in CONCEPTS:
        chosen[concept] = HeadSet(head for head, score in scores.items() if score.label == concept)
    for name, ablated in chosen.items():
        if ablated:
            yield name, ablated
            for random_set in matched(ablated, model.heads, RANDOM, 0, "layers"):
                yield f"random for {name}", random_set


def shares_and_scores(held: Mapping[str, Any]) -> pd.DataFrame:
    """Compare CCS with Shapley shares, in a row per model and attribute.

    Returns:
        `rho`, their rank correlation over all heads; `within`, its mean over layers; `carriers`, the number
        of heads with a share of CARRIES or more; `high`, the number of carriers with a CCS of K; `expected`,
        that number if each layer's carriers were drawn at random from its heads; `share of high`, the share
        of heads with a CCS of K among all heads.
    """
    rows = []
    for name, measured in held.items():
        for attribute, shares in natural.truth(name).items():
            heads = [str(head) for head in shares]
            rho = spearmanr([measured["heads"][head][0] for head in heads], list(shares.values()))[0]
            carriers = [head for head, share in zip(heads, shares.values(), strict=True) if share >= CARRIES]
            high = [measured["heads"][head][0] == K for head in heads]
            table = pd.DataFrame(
                {"ccs": [measured["heads"][head][0] for head in heads], "share": shares.values()}
            )
            layers = [layer_heads for _, layer_heads in table.groupby([head.layer for head in shares])]
            within: list[Any] = [
                layer_heads.corr("spearman").iloc[0, 1]
                for layer_heads in layers
                if layer_heads["ccs"].nunique() > 1
            ]
            expected = sum(
                (layer_heads["ccs"] == K).mean() * (layer_heads["share"] >= CARRIES).sum()
                for layer_heads in layers
            )
            rows.append(
                {"model": name, "base": variants.known(name)["base"], "attribute": attribute, "rho": rho}
                | {
                    "carriers": len(carriers),
                    "high": sum(measured["heads"][head][0] == K for head in carriers),
                }
                | {"share of high": sum(high) / len(high), "within": np.mean(within), "expected": expected}
            )
    return pd.DataFrame(rows)


def pruned(held: Mapping[str, Any]) -> pd.DataFrame:
    """Return reductions of MaxSkew, gap, and accuracy per model, ablation set, and attribute.

    `... beyond` is a reduction minus the mean reduction by random sets of the same size.
    """
    rows = []
    for name, measured in held.items():
        means = pd.DataFrame(measured["ablations"]).groupby("ablation").mean(numeric_only=True)
        ablations = [label for label in means.index if label != "none" and not label.startswith("random")]
        for ablation in ablations:
            random = means.loc[f"random for {ablation}"]
            for attribute in natural.truth(name):
                row = {"model": name, "base": variants.known(name)["base"], "ablation": ablation}
                row |= {"heads": means.loc[ablation, "size"], "attribute": attribute}
                for quantity in (f"MaxSkew {attribute}", f"gap {attribute}", "accuracy"):
                    none = means.loc["none", quantity]
                    unit = none if quantity.startswith("gap") else 1.0
                    key = quantity.removesuffix(f" {attribute}")
                    row[key] = (none - means.loc[ablation, quantity]) / unit
                    row[f"{key} beyond"] = (random[quantity] - means.loc[ablation, quantity]) / unit
                rows.append(row)
    return pd.DataFrame(rows)


def single_head_tests(held: Mapping[str, Any]) -> pd.DataFrame:
    """Test for each head whether ablating it lowers MaxSkew, at 5% false discoveries among heads."""
    rows = []
    for name, measured in held.items():
        for attribute, shares in natural.truth(name).items():
            head_effects = measured["alone"][attribute]
            adjusted = stats.benjamini_hochberg([p for _, p in head_effects.values()])
            for (head, (reduction, _)), p in zip(head_effects.items(), adjusted, strict=True):
                significant = bool(p <= 0.05 and reduction > 0)
                rows.append({"model": name, "share": shares[Head.parse(head)], "significant": significant})
    return pd.DataFrame(rows)


def answers(held: Mapping[str, Any]) -> str:
    """Return the answers and the table of ablation sets, in Markdown."""
    related, effects_by_set, tests = shares_and_scores(held), pruned(held), single_head_tests(held)
    by_model = related.groupby(["base", "model"])[["rho", "within"]].mean().reset_index()
    rho, within = (across_bases(by_model[name], by_model["base"]) for name in ("rho", "within"))
    by_base = by_model.groupby("base")["rho"].mean()
    carriers, significant = tests[tests["share"] >= CARRIES], tests[tests["significant"]]
    sentences = [
        f"**Do heads that carry a learned bias have a high CCS?** "
        f"{_answer(rho, 'Yes', 'No, a lower one').capitalize()}. "
        f"The rank correlation of CCS with a head's Shapley share is {in_brackets(rho, 2, '+')}, over the "
        f"heads of {len(held)} models of {len(by_base)} base models. By base model it is "
        f"{', '.join(f'{r:+.2f}' for r in by_base)}; the minimum detectable correlation is "
        f"{stats.minimum_detectable(rho):.2f}. Within layers it is {in_brackets(within, 2, '+')}. "
        f"{related['carriers'].sum()} heads carry a tenth or more of a bias. Of these, "
        f"{related['high'].sum()} have a CCS of {K}; {related['expected'].sum():.1f} random heads of "
        f"the same layers would.",
        f"**Does ablating a single head lower MaxSkew?** An exact test over the 20 occupations (Wilcoxon, 5% "
        f"false discoveries among 24 heads) confirms it in {len(significant)} of {len(tests)} cases. Of the "
        f"{len(carriers)} cases in which the head carries a tenth or more, it confirms "
        f"{int(carriers['significant'].sum())}.",
    ]
    rows, beyond = [], []
    for ablation, set_effects in effects_by_set.groupby("ablation", sort=False):
        by = set_effects.groupby(["base", "model"]).mean(numeric_only=True).reset_index()
        effects = {column: across_bases(by[column], by["base"]) for column in (*TESTED, "MaxSkew", *ACCURACY)}
        points = {column: in_brackets(effects[column].times(100), 1, "+") for column in ACCURACY}
        beyond += [effects[column] for column in TESTED]
        rows.append(
            {
                "ablation set": str(ablation),
                "models": str(len(by)),
                "heads": f"{by['heads'].mean():.1f}",
                "reduction of MaxSkew": in_brackets(effects["MaxSkew"], 3, "+"),
                "minimum detectable": f"{stats.minimum_detectable(effects['MaxSkew beyond']):.3f}",
                "accuracy lost (points)": points["accuracy"],
                "accuracy lost beyond random": points["accuracy beyond"],
            }
        )
    adjusted = holm([effect.p_value for effect in beyond])
    for place, (effect, p) in enumerate(zip(beyond, adjusted, strict=True)):
        row, question = rows[place // len(TESTED)], TESTED[place % len(TESTED)]
        row[f"{question} random"] = f"{in_brackets(effect, 3, '+')}, p {p_text(p)}"
    return "\n\n".join([*sentences, markdown_table(pd.DataFrame(rows))])


def _answer(effect: stats.Effect, above: str, below: str) -> str:
    """Return the answer to a question that expects an effect above zero."""
    words = {"confirmed": above, "rejected": below, "inconclusive": "inconclusive"}
    return words[stats.conclusion(effect, expected="above")]
