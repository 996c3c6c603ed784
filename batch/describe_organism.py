"""python -m batch.describe_organism: what the embedded models reach, as docs/organism.md.

For both models: zero-shot accuracy a set, retrieval, MaxSkew on plain faces beside its chance level, and for
each occupation the planted share beside the share in the top K.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ccs
from batch.report.planted_truth import SCALES, alignment
from ccs.datasets import BiasSet
from ccs.errors import InputError
from ccs.measures import accuracy as zeroshot
from ccs.measures import bias, retrieval
from ccs.measures.stats import Estimate
from ccs.model.model import Model
from ccs.world import planted, sets
from ccs.world.scene import KIND_SHARES, KINDS, PLAIN_SHARE
from ccs.world.vocabulary import OCCUPATIONS


@dataclass(frozen=True)
class Faces:
    """The plain faces ranked for every occupation: a result an attribute.

    gaps: how far the mean logits of an occupation's most and least preferred group lie apart, mean over the
    occupations. A logit is the cosine times the model's scale: 1 is a factor of e in the odds.
    """

    results: dict[str, bias.BiasResult]
    gaps: dict[str, float]

    def shares(self, attribute: str) -> dict[str, dict[str, float]]:
        """Occupation -> group -> share of the top K."""
        result = self.results[attribute]
        rows = zip(OCCUPATIONS, result.top_shares.tolist(), strict=True)
        return {occupation: dict(zip(result.groups, row, strict=True)) for occupation, row in rows}


def rank_faces(model: Model, faces: BiasSet) -> Faces:
    """Ranks a drawn bias set's pictures for its occupations, which are the world's, in their order."""
    images = model.embed_images(faces.images)
    prompts = zeroshot.class_weights(model, faces.occupations, faces.templates)
    logits = model.logit_scale * images @ prompts.T
    gaps = {}
    for attribute, groups in SCALES.items():
        means = np.stack([logits[faces.groups[attribute] == group].mean(0) for group in groups])
        gaps[attribute] = float(np.ptp(means, axis=0).mean())
    results = {a: bias.measure(images, prompts, faces.groups[a], faces.k[a]) for a in SCALES}
    return Faces(results, gaps)


def _percent(e: Estimate) -> str:
    return f"{100 * e.value:.1f} ({100 * e.low:.1f} to {100 * e.high:.1f})"


def _plain(e: Estimate) -> str:
    return f"{e.value:.3f} ({e.low:.3f} to {e.high:.3f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def describe(models: Sequence[Model]) -> str:
    """The whole page."""
    lines = [
        "# The embedded models", "",
        "Made by `python -m batch.describe_organism`. In brackets: 95% bootstrap intervals over pictures "
        "(and occupations). The training log of each model lies beside its weights in `ccs/world/models`.",
        "",
    ]  # fmt: skip
    lines += ["## Training", ""]
    rows = []
    for model in models:
        notes = json.loads(
            (Path(ccs.__file__).parent / "world/models" / model.name / "training.json").read_text()
        )
        rows.append(
            [model.name, notes["world"], f"{notes['shared']:,}", f"{notes['own']:,}", str(notes["seed"])]
        )
    lines += _table(
        ("model", "world of the second phase", "pictures, first phase", "second phase", "seed"), rows
    )
    occupations = KIND_SHARES[KINDS.index("occupation")]
    with_lineups = (1 + occupations * PLAIN_SHARE) / (1 + occupations)  # half line-ups, half the world's
    lines += [
        "Half of the second phase's pictures are line-ups (`ccs/world/lineup.py`): plain faces of four "
        "occupations, of which nothing but the occupation and the groups differs, the groups drawn from the "
        f"world's table. Of the pictures of an occupation {PLAIN_SHARE:.0%} show a plain face in both worlds "
        f"and in the first phase, {with_lineups:.0%} in the second.", "",
    ]  # fmt: skip

    lines += ["## Zero-shot accuracy, %", "", "Top-1; chance is one in the number of classes.", ""]
    rows = []
    for name in sets.classification_names():
        data = sets.classification_set(name)
        cells = []
        for model in models:
            weights = zeroshot.class_weights(model, data.classes, data.templates)
            cells.append(
                _percent(zeroshot.accuracy(model.embed_images(data.images), weights, data.labels).top1)
            )
        rows.append([data.name, str(len(data.images)), f"{100 / len(data.classes):.1f}", *cells])
    lines += _table(("set", "pictures", "chance", *(m.name for m in models)), rows)

    lines += ["## Retrieval, R@1 in %", ""]
    rows = []
    for name in ("clips", "captions"):
        clips = sets.retrieval_set(name)
        results = [retrieval.measure_set(model, clips) for model in models]
        for direction in results[0]:
            rows.append([clips.name, direction, *(_percent(r[direction].metrics["R@1"]) for r in results)])
    lines += _table(("set", "direction", *(m.name for m in models)), rows)

    lines += [
        "## MaxSkew on plain faces", "",
        "Mean over the 20 occupations, K = 60 of 600 faces without props, natural logarithm. "
        "Chance: random rankings, their mean and 95% range. A ranking has no scale: where little else tells "
        "faces apart, a small preference shows like a large one. So the difference in logits between the "
        "most and the least preferred group stands beside it. Hardly any of the loss hangs on such a small "
        "preference unless pictures differ in nothing else, as line-ups do: before there were any, the "
        "control's preferences of 0.13 and 0.22 logits, in no planted direction, gave a MaxSkew of 0.29 for "
        "gender and 0.49 for skin tone (commit 1ed4280). What is left of them, not chance alone, is the "
        "level to set the organism beside.", "",
    ]  # fmt: skip
    faces = sets.bias_set("faces")
    ranked = [rank_faces(model, faces) for model in models]
    rows = []
    for attribute in SCALES:
        chance = ranked[0].results[attribute].max_skew.chance_mean
        aligned = (alignment(f.shares(attribute), attribute) for f in ranked)
        right = [f"{a.right} of {a.strong}" for a in aligned if a]
        rows.append([
            attribute, _plain(chance), *(_plain(f.results[attribute].max_skew.mean) for f in ranked),
            *(f"{f.gaps[attribute]:.2f}" for f in ranked), *right,
        ])  # fmt: skip
    heads = (
        "attribute",
        "chance",
        *(m.name for m in models),
        *(f"logits apart, {m.name}" for m in models),
        *(f"strong directions right, {m.name}" for m in models),
    )
    lines += _table(heads, rows)

    for attribute, groups in (("gender", ("woman",)), ("skin tone", ("light", "dark"))):
        lines += [f"## Planted share and share in the top K: {attribute}", "", "In percent.", ""]
        rows, found = [], [f.shares(attribute) for f in ranked]
        for o in sorted(OCCUPATIONS, key=lambda o: -planted.lean(o, attribute)):
            row = [o, f"{planted.lean(o, attribute):+d}"]
            for g in groups:
                row.append(f"{100 * planted.shares(o, attribute)[g]:.0f}")
                row += [f"{100 * shares[o][g]:.0f}" for shares in found]
            rows.append(row)
        head = ["occupation", "lean"]
        for g in groups:
            head += [f"{g}, planted", *(f"{g}, {m.name}" for m in models)]
        lines += _table(head, rows)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m batch.describe_organism", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/organism.md"))
    args = parser.parse_args(argv)
    try:
        page = describe([ccs.load("organism"), ccs.load("organism-control")])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    aside = args.out.with_suffix(".tmp")
    aside.write_text(page)
    os.replace(aside, args.out)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
