"""What every table of results holds: names, types, meanings and keys of the columns, in one versioned place.

`docs/tables.md` is printed from here (`python -m ccs.results.schema`); writer and reader validate against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ccs.results.columns import (
    AGAINST_NONE,
    HEAD,
    INTERVAL,
    PLAN,
    PLAN_KEY,
    READABLE,
    VERSION,
    Column,
    Table,
    effect,
    model_table,
)

__all__ = [
    "BIAS_MODES",
    "LEVELS",
    "MANIFEST",
    "PLAN_KEY",
    "READABLE",
    "TABLES",
    "TOP_SHARE",
    "VERSION",
    "Column",
    "Table",
    "as_markdown",
]

LEVELS = ("high", "moderate", "low", "", "unknown")
BIAS_MODES = ("correct", "as-published")
TOP_SHARE = "top share: "
"""Begins the bias metric that is a group's share of an occupation's top K; the group's name follows."""

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        table.name: table
        for table in (
            model_table(
                "spans",
                "The texts that TEXTSPAN picks for each head: K, or as many as the largest of several K.",
                (
                    *HEAD,
                    Column("rank", "int", "order in which the text was picked, from 0", below=10_000),
                    Column("text", "text", "the text"),
                    Column("concept", "text", "the pool's own concept of the text, where it has one", True),
                    Column(
                        "share",
                        "float",
                        "share of the variance of the head's contribution that the text explains",
                    ),
                ),
                ("layer", "head", "rank"),
            ),
            model_table(
                "labels",
                "The concept that a labeler gives each head, from its texts of the main K, the smallest.",
                (
                    *HEAD,
                    Column(
                        "label", "text", "the concept; empty where no concept covers the head's texts", True
                    ),
                    Column(
                        "labeler",
                        "text",
                        "who labeled: `tags` (a stand-in that needs no model) or a language model",
                    ),
                ),
                ("layer", "head"),
            ),
            model_table(
                "judgments",
                "What each judge says of each text of a head: does it show the head's concept?",
                (
                    *HEAD,
                    Column("rank", "int", "rank of the text within its head", below=10_000),
                    Column("text", "text", "the text judged"),
                    Column("label", "text", "the concept asked about", True),
                    Column("judge", "text", "who judged: `tags` (a stand-in) or a language model"),
                    Column("verdict", "bool", "yes or no; empty where unscored, which is never a no", True),
                    Column("reason", "text", "the judge's short reason"),
                    Column("cause", "text", "why unscored (refusal, timeout, ...); empty otherwise"),
                ),
                ("layer", "head", "rank", "judge"),
            ),
            model_table(
                "scores",
                "The Concept Consistency Score of each head, under unanimity of the judges. Of several K the "
                "smallest is the main one. A K's texts are those of the lowest ranks.",
                (
                    *HEAD,
                    Column("label", "text", "the head's concept", True),
                    Column("k", "int", "how many texts were judged", below=10_000),
                    Column(
                        "ccs",
                        "int",
                        "texts that all judges accept, 0 to k; empty where a verdict is unscored",
                        True,
                    ),
                    Column(
                        "level",
                        "text",
                        "`high`, `moderate`, `low`, empty between the levels, `unknown`",
                        among=LEVELS,
                    ),
                    Column("majority", "int", "texts that a majority of judges accepts", True),
                    Column("share", "float", "share of the head's variance that its k texts explain"),
                    Column(
                        "variance", "float", "variance of the head's contribution (trace of its covariance)"
                    ),
                ),
                ("layer", "head", "k"),
            ),
            model_table(
                "pruning",
                "Zero-shot accuracy with heads switched off.",
                (
                    *PLAN,
                    Column("dataset", "text", "the evaluation set"),
                    Column("subset", "text", "classes scored alone, among themselves; empty for all"),
                    Column("metric", "text", "`top1`, `top5` or `balanced` (mean over classes), shares of 1"),
                    *INTERVAL,
                    Column("n", "int", "images"),
                    *AGAINST_NONE,
                ),
                ("plan", "seed", "dataset", "subset", "metric"),
            ),
            model_table(
                "retrieval",
                "Retrieval between clips and captions with heads switched off.",
                (
                    *PLAN,
                    Column("dataset", "text", "the evaluation set"),
                    Column("direction", "text", "`text-to-clip` or `clip-to-text`"),
                    Column(
                        "metric",
                        "text",
                        "`R@1`, `R@5`, `R@10`, `R@50` (shares of 1), `median rank`, `mean rank` (from 1)",
                    ),
                    *INTERVAL,
                    Column("n", "int", "queries"),
                    *AGAINST_NONE,
                ),
                ("plan", "seed", "dataset", "direction", "metric"),
            ),
            model_table(
                "bias",
                "How far groups of people differ at the top of rankings by occupation, with heads off.",
                (
                    *PLAN,
                    Column("dataset", "text", "the evaluation set"),
                    Column("attribute", "text", "what groups people: `gender`, `skin tone`, `race`, ..."),
                    Column("occupation", "text", "the prompt's occupation; empty for all together"),
                    Column(
                        "metric",
                        "text",
                        "`MaxSkew`, `MinSkew` or `NDKL` (natural logarithm); over all: its `mean` or `sum`; "
                        "`top share: G`: group G's share of the top K (not of single heads)",
                    ),
                    Column(
                        "target",
                        "text",
                        "what a share is compared with: `pool` (share of the pool) or `uniform`",
                    ),
                    Column(
                        "mode",
                        "text",
                        "`correct`, or `as-published`: with the faults of the study's released code",
                        among=BIAS_MODES,
                    ),
                    Column("k", "int", "images at the top of the ranking"),
                    *INTERVAL,
                    Column("chance", "float", "mean of the metric over random rankings", True),
                    Column("chance_low", "float", "2.5th percentile over random rankings", True),
                    Column("chance_high", "float", "97.5th percentile over random rankings", True),
                    Column("n", "int", "images in the pool"),
                    *AGAINST_NONE,
                ),
                ("plan", "seed", "dataset", "attribute", "occupation", "metric", "target", "mode"),
            ),
            model_table(
                "effects",
                "Each plan's direct effect (its heads' contributions subtracted from the embedding, which is "
                "then made unit again) beside its total effect (their outputs at zero in the forward pass). "
                "Single heads are in `heads`.",
                (
                    *PLAN,
                    Column("dataset", "text", "the images"),
                    Column("metric", "text", "`top1` or `MaxSkew mean`, whose change is the effect"),
                    Column("factor", "text", "the attribute of a bias metric; empty otherwise"),
                    *effect("direct"),
                    *effect("total"),
                ),
                ("plan", "seed", "dataset", "metric", "factor"),
            ),
            model_table(
                "correlations",
                "How two figures of single heads go together over a model's heads.",
                (
                    Column("between", "text", "the two figures: `direct and total effect`"),
                    Column("dataset", "text", "the images"),
                    Column("metric", "text", "the metric whose change is the effect"),
                    Column("factor", "text", "the attribute of a bias metric; empty otherwise"),
                    Column("method", "text", "`spearman` or `pearson`", among=("spearman", "pearson")),
                    Column("value", "float", "the correlation; empty where all heads are alike", True),
                    Column("low", "float", "lower end of its 95% interval (heads drawn again)", True),
                    Column("high", "float", "upper end of its 95% interval", True),
                    Column("p_value", "float", "two-sided p-value, by permutation", True),
                    Column("n", "int", "heads"),
                ),
                ("between", "dataset", "metric", "factor", "method"),
            ),
            model_table(
                "heads",
                "Single heads: the effect of switching one off, the selectivity for a factor.",
                (
                    *HEAD,
                    Column(
                        "measure",
                        "text",
                        "`total effect` (output at zero in the forward pass), `direct effect` (contribution "
                        "subtracted from the embedding) or `selectivity` (share of its variance)",
                    ),
                    Column("dataset", "text", "the images"),
                    Column("metric", "text", "the metric whose change is the effect; empty for selectivity"),
                    Column(
                        "factor",
                        "text",
                        "the scene's factor, or the attribute of a bias metric; empty otherwise",
                    ),
                    Column("value", "float", "the effect, or the share of variance"),
                    Column("low", "float", "lower end of the 95% interval", True),
                    Column("high", "float", "upper end of the 95% interval", True),
                    Column("chance", "float", "what an unselective head would show (the noise floor)", True),
                    Column("p_value", "float", "p-value of the effect", True),
                    Column(
                        "q_value",
                        "float",
                        "p-value with the false discovery rate controlled over heads",
                        True,
                    ),
                ),
                ("layer", "head", "measure", "dataset", "metric", "factor"),
            ),
        )
    }
)

MANIFEST: Mapping[str, str] = MappingProxyType(
    {
        "schema_version": "version of this description",
        "created": "when the run ended (UTC, ISO 8601)",
        "model": "name, architecture, tag, weights_hash (SHA-256 in full), layers, heads a layer, "
        "heads that can be off, embedding dimension, image size",
        "texts": "the pool: name, fingerprint, count, dropped duplicates, dimension that TEXTSPAN was given",
        "images": "what the moments are of: name, fingerprint, count, source, skipped files",
        "sets": "every evaluation set: name, kind, fingerprint, count, source, templates, skipped",
        "labeler": "name, and whether it is a stand-in for a language model",
        "judges": "the same for each judge",
        "chance_ccs": "CCS@0 to CCS@K of heads with random texts of the pool, if labels and verdicts are by "
        "`tags`, else empty (also in version 1)",
        "settings": "every setting that changes a figure, as given",
        "seeds": "where randomness begins: name to seed",
        "versions": "of this project and of the packages that compute",
        "largest_error": "largest absolute difference seen between a fast path and its slow reference",
        "measured": "of the run itself: seconds a stage, share of the time spent waiting for images, peak "
        "memory, processes, device",
        "absent": "what was asked for and could not be computed, each with its reason",
        "tables": "every table: rows and SHA-256 of its file",
    }
)


def as_markdown() -> str:
    """The text of docs/tables.md."""
    lines = [
        "# Tables",
        "",
        f"Schema version {VERSION}. A model's results are a folder `<model>/` with one parquet file a table",
        "and a `manifest.json`. pandas, DuckDB and `datasets` read them as they are:",
        "",
        "```python",
        "import pandas as pd, datasets",
        "",
        'pd.read_parquet("precomputed/organism/scores.parquet")',
        'datasets.load_dataset("USER/NAME", "scores")  # after python -m batch.publish --repo USER/NAME',
        "# DuckDB:  select * from 'precomputed/*/scores.parquet'",
        "```",
        "",
        "Every row names its model and the model's weights, so tables of several models can be put one",
        "under another. A table that a run did not compute has no file. Empty means unknown or not",
        "applicable, never zero. Intervals are 95%. Shares and accuracies are of 1, not of 100.",
        "This page is printed by `python -m ccs.results.schema`.",
        "",
    ]
    for table in TABLES.values():
        lines += [f"## {table.name}", "", table.meaning, ""]
        lines += [f"One row for each {', '.join(table.key[2:])} of a model.", ""]
        lines += ["| column | type | may be empty | meaning |", "|---|---|---|---|"]
        lines += [
            f"| {c.name} | {c.kind} | {'yes' if c.nullable else ''} | {c.meaning} |" for c in table.columns
        ]
        lines.append("")
    lines += ["## manifest.json", "", "How the tables came about.", "", "| key | meaning |", "|---|---|"]
    lines += [f"| {key} | {meaning} |" for key, meaning in MANIFEST.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
