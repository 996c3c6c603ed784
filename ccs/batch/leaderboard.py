"""A table of audited models, and its dataset on the Hub with a leaderboard.

The Hub's leaderboards are decentralized: a benchmark dataset registers tasks in `eval.yaml`, and each model's
repository has its results in `.eval_results/*.yaml` (https://huggingface.co/docs/hub/eval-results).
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from huggingface_hub import DatasetCard, DatasetCardData, EvalResultEntry, eval_result_entries_to_yaml
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]  # lazily exported

from ccs.batch.pages import TEMPLATES, markdown_table
from ccs.files import write_text
from ccs.results.hub_repository import Repository

METRICS = ("MaxSkew", "AUC", "largest gap", "accuracy")
"""Metrics in the table."""
FILES = ("audit.html", "audit.json", "audit.md")
TASK = {"config": "default", "split": "test"}
"""The part of the dataset that every task names: models.csv."""
AuditJson = Mapping[str, Any]
"""Contents of audit.json."""


def main_numbers(audit: AuditJson) -> pd.DataFrame:
    """Return the rows of an audit's main numbers.

    Args:
        audit: Contents of audit.json.

    Returns:
        Rows as in `ccs.audit`, with the columns `number` (its name in the table) and `model`.
    """
    rows = pd.DataFrame(audit["rows"])
    rows = rows[rows["metric"].isin(METRICS) & (rows["section"] != "worst class")]
    parts = rows[["metric", "prompts", "attribute"]].fillna("").to_numpy()
    names = [" · ".join(filter(None, cells)) for cells in parts]
    return rows.assign(number=names, model=audit["about"]["model"])


def compare_models(audits: Iterable[AuditJson]) -> pd.DataFrame:
    """Return a table with one row per model and one column per main number."""
    rows = pd.concat([main_numbers(audit) for audit in audits])
    return rows.pivot_table(index="model", columns="number", values="after", sort=False)


def task_id(number: str) -> str:
    """Return the id of a number's task: "MaxSkew · traits · gender" is `maxskew-traits-gender`."""
    return re.sub(r"[^a-z0-9]+", "-", number.lower()).strip("-")


def publish_audits(out: Path, audits: Mapping[str, AuditJson], name: str, *, public: bool) -> None:
    """Publish audits as a dataset with a leaderboard, and write each model's results for its repository.

    Models that the dataset already has stay in the table if they were audited under the same conditions.

    Args:
        out: Folder of the audits.
        audits: Contents of audit.json by the name of the model's folder.
        name: The dataset on the Hub, USER/NAME.
        public: Make a new dataset public.

    Raises:
        InputError: If the Hub refuses.
    """
    repository = Repository(name, "dataset")
    files: dict[str, Path | bytes] = {}
    for folder, audit in audits.items():
        entries = eval_result_entries_to_yaml(result_entries(audit, name, folder))
        file = out / folder / ".eval_results" / f"{name.replace('/', '--')}.yaml"
        write_text(file, yaml_dump(entries, sort_keys=False))
        for path in (*(out / folder / file_name for file_name in FILES), file):
            files[path.relative_to(out).as_posix()] = path
    numbers = compare_models({**_published(repository, audits), **audits}.values())
    files["models.csv"] = numbers.to_csv().encode()
    files["eval.yaml"] = yaml_dump(benchmark(name, numbers.columns), sort_keys=False).encode()
    files["README.md"] = card(name, numbers, next(iter(audits.values()))).encode()
    commit = repository.push(files, f"Audits of {', '.join(audits)}", public=public)
    print(f"Published as https://huggingface.co/datasets/{name}, commit {commit}.")


def _published(repository: Repository, audits: Mapping[str, AuditJson]) -> dict[str, AuditJson]:
    """Return the other audits in the dataset that were made under the same conditions."""
    conditions = _conditions(next(iter(audits.values())))
    paths = [path for path in repository.files if path.endswith("/audit.json")]
    names = [name for path in paths if (name := path.removesuffix("/audit.json")) not in audits]
    others = {name: json.loads(repository.fetch(f"{name}/audit.json")) for name in names}
    return {name: audit for name, audit in others.items() if _conditions(audit) == conditions}


def _conditions(audit: AuditJson) -> dict[str, str]:
    return {key: value for key, value in audit["settings"].items() if key != "model"}


def result_entries(audit: AuditJson, repository: str, folder: str) -> list[EvalResultEntry]:
    """Return a model's main numbers as entries of the Hub's leaderboard.

    Args:
        audit: Contents of audit.json.
        repository: The benchmark dataset, USER/NAME.
        folder: The model's folder in it.
    """
    page = f"https://huggingface.co/datasets/{repository}/blob/main/{folder}/audit.html"
    return [
        EvalResultEntry(
            dataset_id=repository,
            task_id=task_id(row["number"]),
            value=round(row["after"], 4),
            source_url=page,
            source_name="clip-ccs audit",
            notes=f"n {row['n']}, chance {row['chance']:.4f}",
        )
        for row in main_numbers(audit).to_dict("records")
    ]


def benchmark(repository: str, numbers: Iterable[str]) -> dict[str, Any]:
    """Return the contents of eval.yaml, with a task for each number.

    Args:
        repository: The benchmark dataset, USER/NAME.
        numbers: Columns of the leaderboard.
    """
    return {
        "name": repository.partition("/")[2],
        "description": f"Bias audits of CLIP models by clip-ccs. Tasks: {'; '.join(numbers)}.",
        "evaluation_framework": "clip-ccs",
        "tasks": [{"id": task_id(number), **TASK} for number in numbers],
    }


def card(repository: str, numbers: pd.DataFrame, audit: AuditJson) -> str:
    """Return the dataset's card.

    Args:
        repository: The dataset, USER/NAME.
        numbers: The table of models.
        audit: Contents of one model's audit.json.
    """
    data_files = [{"split": TASK["split"], "path": "models.csv"}]
    configs = [{"config_name": TASK["config"], "data_files": data_files}]
    command = ["clip-ccs", "audit", "--model", "MODEL", "--gallery", audit["settings"]["gallery"]]
    command += ["--publish", repository]
    values = {"gallery": audit["about"]["gallery"], "command": shlex.join(command), "repository": repository}
    table = markdown_table(numbers.round(3).reset_index())
    return fill_card(TEMPLATES / "leaderboard.md", "benchmark", configs, **values, table=table)


def fill_card(template: Path, tag: str, configs: Sequence[Mapping[str, Any]], **values: Any) -> str:
    """Fill in the card of a dataset.

    Args:
        template: Its template.
        tag: Tag of this kind of dataset, in addition to the common ones.
        configs: The configurations of the dataset.
        **values: Values of the template's fields.
    """
    tags = ["clip", "fairness", tag, "arxiv:2503.11103"]
    data = DatasetCardData(license="mit", tags=tags, configs=configs)
    return str(DatasetCard.from_template(data, template_path=str(template), **values))
