"""Write the models with planted heads as a folder for the Hub (`publish`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from huggingface_hub import ModelCard, ModelCardData

from ccs.errors import InputError
from ccs.files import sha256, write_text
from ccs_benchmark import planted_models, scoring
from ccs_benchmark.planted_models import CARRIES

LICENSE = Path(__file__).parents[2] / "LICENSE"
TRUTH, CELLS, CROISSANT, CARD = "truth.csv", "cells.parquet", "croissant.json", "README.md"
NAME = "USER/NAME"
"""Placeholder of the repository's name until the folder is published."""
_TEMPLATE = Path(__file__).with_name("card.md")
_COLUMNS = {
    "model": ("sc:Text", "name of the model's file"),
    "base": ("sc:Text", "the base model, from which it differs only in the trained heads"),
    "attribute": ("sc:Text", "attribute of the planted bias; empty for a control"),
    "head": ("sc:Text", "a trained head, such as L5.H1; layers and heads count from 0"),
    "share": (
        "sc:Float",
        "share of the gap between groups removed if only this head gets its original weights",
    ),
    "to_find": ("sc:Boolean", f"whether the share is {CARRIES} or more"),
}


def write(models: Sequence[Path], folder: Path) -> None:
    """Write the folder: models, ground truth, scores of the methods on them, license, card, and metadata.

    Args:
        models: Files of models with planted heads.
        folder: Output folder.

    Raises:
        InputError: If there are no models, or a file isn't one.
    """
    if not models:
        raise InputError("There are no models with planted heads to publish.")
    folder.mkdir(parents=True, exist_ok=True)
    for file in models:
        if file.parent.resolve() != folder.resolve():
            shutil.copy(file, folder)
    truth = truth_of(models)
    truth.to_csv(folder / TRUTH, index=False)
    hashes = {planted_models.weights(str(file)) for file in models}
    cells = scoring.read_cells()
    cells = cells[cells["weights"].isin(hashes)]
    cells.to_parquet(folder / CELLS, index=False, compression="zstd")
    if LICENSE.is_file():
        shutil.copy(LICENSE, folder)
    known = pd.DataFrame() if cells.empty else scoring.table(cells).drop(scoring.PLANTED).reset_index()
    card = ModelCard.from_template(
        ModelCardData(license="mit", tags=["clip", "interpretability", "fairness", "benchmark"]),
        template_path=str(_TEMPLATE),
        repository=NAME,
        models=len(models),
        scores=known.to_dict("records"),
        truth=truth.to_dict("records"),
        carries=CARRIES,
        took=scoring.TOOK,
    )
    write_text(folder / CARD, f"{card}\n")
    write_text(folder / CROISSANT, json.dumps(croissant(folder), indent=1) + "\n")


def truth_of(models: Sequence[Path]) -> pd.DataFrame:
    """Return a row per model, attribute, and trained head."""
    rows = []
    for file in models:
        known = planted_models.truth(str(file))
        for attribute, heads in known.carries.items() or [("", known.heads)]:
            to_find = known.carriers(attribute) if attribute else ()
            shares = known.shares.get(attribute, {})
            model_facts = (file.stem, known.base, attribute)
            rows += [(*model_facts, str(head), shares.get(head), head in to_find) for head in heads]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def croissant(folder: Path) -> dict[str, Any]:
    """Return metadata of the folder in the format Croissant 1.0 (docs.mlcommons.org/croissant)."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".csv", ".parquet")]
    kinds = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}
    return {
        "@context": {
            "@language": "en",
            "@vocab": "https://schema.org/",
            "sc": "https://schema.org/",
            "cr": "http://mlcommons.org/croissant/",
            "dct": "http://purl.org/dc/terms/",
            "conformsTo": "dct:conformsTo",
            "recordSet": "cr:recordSet",
            "field": "cr:field",
            "source": "cr:source",
            "fileObject": "cr:fileObject",
            "extract": "cr:extract",
            "column": "cr:column",
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        },
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "planted-heads",
        "description": "Small CLIPs in which a bias by gender or skin tone was planted in known attention "
        "heads, to score methods that look for such heads.",
        "license": "https://opensource.org/license/mit",
        "url": f"https://huggingface.co/{NAME}",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path.name,
                "name": path.name,
                "contentUrl": path.name,
                "encodingFormat": kinds.get(path.suffix, "application/octet-stream"),
                "sha256": sha256(path),
            }
            for path in files
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "truth",
                "name": "truth",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"truth/{column}",
                        "name": column,
                        "description": meaning,
                        "dataType": kind,
                        "source": {"fileObject": {"@id": TRUTH}, "extract": {"column": column}},
                    }
                    for column, (kind, meaning) in _COLUMNS.items()
                ],
            }
        ],
    }
