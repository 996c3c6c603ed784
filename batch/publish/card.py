"""The card (README.md) of a published data set of results, written from the models' manifests alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccs.results import schema

Manifest = Mapping[str, Any]

_ABOUT = """\
Concept Consistency Scores (CCS) of CLIP's attention heads, and what happens to zero-shot accuracy,
retrieval and bias when heads are switched off. One configuration a table:
"""
_HOW = """\
## How it was made

The images' contributions of every head are summed into second moments, TEXTSPAN picks the K texts that
explain most of them, a labeler names the concept that the texts share, judges say of each text whether it
shows the concept, and the CCS of a head is the number of texts that all judges accept. Heads are switched
off by setting their output to zero in the forward pass.

Settings, seeds, versions and checksums are in each model's `manifest.json`; `model` and `weights` in every
row say which model it is of.
"""
_LICENCES_AND_CITATION = """
## Licences

The tables are under the MIT licence. They hold figures and descriptions, no images; images and weights keep
their own licences, see the sources above.

## Citation

The method: *Pruning the Paradox: How CLIP's Most Informative Heads Enhance Performance While Amplifying
Bias*, arXiv 2503.11103. TEXTSPAN: Gandelsman et al., *Interpreting CLIP's Image Representation via
Text-Based Decomposition*, 2024. Please cite them, and this data set by its address and revision.
"""


def card(repository: str, manifests: Mapping[str, Manifest]) -> str:
    """The card's text: one configuration a table that any model has. `manifests`: folder -> manifest."""
    ordered = sorted(manifests.values(), key=lambda manifest: str(manifest["model"]["name"]))
    present = [name for name in schema.TABLES if any(name in manifest["tables"] for manifest in ordered)]
    example = present[0] if present else "scores"
    sections = [
        _front(present),
        f"# {repository.split('/')[-1]}\n",
        _ABOUT,
        f'```python\nimport datasets\ndatasets.load_dataset("{repository}", "{example}")\n```\n',
        "| table | what | rows |\n|---|---|---|",
        *(f"| {name} | {schema.TABLES[name].meaning} | {_rows(name, ordered)} |" for name in present),
        "\n## Models\n",
        *(line for manifest in ordered for line in _model(manifest)),
        _HOW,
        "## Limits\n",
        *_limits(ordered),
        _LICENCES_AND_CITATION,
    ]
    return "\n".join(sections)


def _front(tables: list[str]) -> str:
    lines = ["---", "license: mit", "tags:", "- clip", "- interpretability", "- fairness", "configs:"]
    for name in tables:
        lines += [f"- config_name: {name}", f'  data_files: "*/{name}.parquet"']
        if name == "scores":
            lines.append("  default: true")
    return "\n".join([*lines, "---", ""])


def _rows(name: str, manifests: list[Manifest]) -> int:
    return sum(int(manifest["tables"].get(name, {}).get("rows", 0)) for manifest in manifests)


def _names(entries: list[Mapping[str, Any]]) -> str:
    return (
        ", ".join(f"`{e['name']}`" + (" (a stand-in)" if e.get("stand_in") else "") for e in entries)
        or "none"
    )


def _model(manifest: Manifest) -> list[str]:
    model, texts, images = manifest["model"], manifest["texts"], manifest["images"]
    settings = manifest["settings"]
    ks = [settings["k"], *settings.get("further_k", ())]
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    lines = [
        f"### {model['name']}",
        "",
        f"- architecture {model['architecture']}, weights {str(model['weights_hash'])[:16]}, "
        f"computed {str(manifest['created'])[:10]}",
        f"- texts: {texts['name']}, {texts['count']} ({str(texts['fingerprint'])[:12]})",
        f"- images: {images['name']}, {images['count']}, {images['source']} "
        f"({str(images['fingerprint'])[:12]})",
        f"- K: {', '.join(map(str, ks))} texts a head; labeler {_names([manifest['labeler']])}; "
        f"judges {_names(list(manifest['judges']))}",
    ]
    evaluated: dict[str, list[str]] = {}
    for entry in manifest["sets"]:
        evaluated.setdefault(entry["source"], []).append(f"{entry['name']} ({entry['count']})")
    lines += [f"- evaluated on {', '.join(sets)}, from: {source}" for source, sets in evaluated.items()]
    errors = manifest["largest_error"].values()
    if errors:
        lines.append(f"- largest difference between a fast path and its slow reference: {max(errors):.1e}")
    lines += [f"- not there: {absent['name']}: {absent['reason']}" for absent in manifest["absent"]]
    lines += [f"- made with {versions}", ""]
    return lines


def _limits(manifests: list[Manifest]) -> list[str]:
    lines = [
        "- A CCS says how consistent a head's texts are under these judges and this pool of texts; other "
        "pools, judges or images give other scores. The share of variance that the texts explain says how "
        "far to trust them.",
        "- MaxSkew is above zero for a random ranking too: compare it with the chance columns.",
        "- An empty score is unknown (a judge gave no verdict), not zero.",
    ]
    if any(e.get("stand_in") for m in manifests for e in [m["labeler"], *m["judges"]]):
        lines.append(
            "- Where the labeler or a judge is a stand-in, no language model was asked: concepts are tags."
        )
    return lines
