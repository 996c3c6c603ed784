"""One model from images and texts to tables: the stages in order, each done once for what it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ccs
from batch import evaluate, headtable, inputs
from batch.checks import largest_errors
from batch.embedding import Embedder, distinct, read_plan
from batch.inputs import EvaluationSet
from batch.judging import Judging
from batch.options import Settings
from batch.processes import Processes
from batch.stages import STAGES, Stage, Store, digest
from ccs import pruning, results, schema, score
from ccs.datasets.sets import ImageSet
from ccs.descriptions import Pool, load_pool
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.labels import Label
from ccs.models import Model
from ccs.paper import figures
from ccs.textspan import Span

Row = dict[str, Any]
_CHECKED_IMAGES = 4


@dataclass
class Outcome:
    """What a model's run came to: its tables' rows and what the manifest needs."""

    model: Model
    settings: Settings
    images: ImageSet
    pool: Pool
    sets: list[EvaluationSet]
    absent: list[inputs.Absent]
    folder: Path
    tables: dict[str, list[Row]] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    labeler: dict[str, Any] = field(default_factory=dict)
    judges: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class Run:
    """The stages of one model. All processes make one and call `go`."""

    def __init__(self, settings: Settings, processes: Processes, tell: Callable[[str], None]) -> None:
        self.settings, self.processes, self.tell = settings, processes, tell

    def open(self) -> Outcome:
        """Load the model and open everything it is to be run on. Raises InputError."""
        settings = self.settings
        model = ccs.load(settings.models[0], device=self.processes.device, precision=settings.precision)
        pool = load_pool(settings.texts or "photographs")
        if len(pool.texts) < settings.k:
            raise InputError(
                f"The pool {pool.name} has {len(pool.texts)} texts, fewer than --k {settings.k}."
            )
        images = inputs.open_moment_images(settings)
        for name in images.skipped:
            self.tell(f"Left out: {name}")
        sets, absent = inputs.open_sets(settings, self.tell)
        folder = settings.out / results.folder_name(model.name)
        self.store = Store(settings.out / STAGES / folder.name, self.processes, self.tell)
        self.embedder = Embedder(model, self.store, settings)
        return Outcome(model, settings, images, pool, sets, absent, folder)

    def go(self) -> Outcome:
        """Do what is not done yet. Raises InputError."""
        outcome = self.open()
        if self.settings.force:
            self.store.forget()
        wanted = set(self.settings.stages)
        outcome.errors = self._checks(outcome)
        moments = outcome.stages["moments"] = self.embedder.moments(outcome.images)
        if wanted == {"moments"}:
            return outcome
        spans, variance = self._spans(outcome, moments)
        if wanted <= {"moments", "spans"}:
            return outcome
        judging = Judging(self.settings, self.store, self.processes, outcome.pool, self.tell)
        if self.settings.dry_run:
            self.tell(f"{outcome.model.name}:\n{judging.estimate(spans)}")
            return outcome
        labeled = judging.labels(spans)
        outcome.labeler = judging.labeler
        outcome.tables["labels"] = [
            {"layer": head.layer, "head": head.head, "label": label.concept, "labeler": label.labeler}
            for head, label in sorted(labeled.items())
        ]
        if wanted <= {"moments", "spans", "labels"}:
            return outcome
        judged = judging.judgments(spans, labeled)
        outcome.judges = judging.judges
        outcome.stages |= judging.stages
        outcome.tables["judgments"] = judged
        scores = self._scores(outcome, spans, labeled, judged, variance)
        if wanted.isdisjoint({"evaluation", "heads"}):
            return outcome
        plans = self._plans(outcome, scores)
        self._evaluate(outcome, plans)
        if "heads" in wanted:
            self._heads(outcome, moments)
        return outcome

    # Stages ---------------------------------------------------------------------------------------------

    def _checks(self, outcome: Outcome) -> dict[str, float]:
        model, images = outcome.model, outcome.images
        stage = self.store.stage("checks", {"weights": model.weights_hash, "images": images.fingerprint})
        outcome.stages["checks"] = stage
        if not stage.done:
            few = [images.images[i] for i in range(min(_CHECKED_IMAGES, len(images.images)))]
            last = model.n_layers - 1
            deeper = HeadSet([Head(max(0, last - 2), 0), Head(last, 0)])
            offs = [model.heads, HeadSet([Head(last, 0)]), deeper]
            self.processes.once(lambda: stage.write_json(0, largest_errors(model, few, offs)))
            stage.finish()
        errors: dict[str, float] = stage.read_json()
        return errors

    def _spans(
        self, outcome: Outcome, moments_stage: Stage
    ) -> tuple[dict[Head, tuple[Span, ...]], dict[Head, float]]:
        texts_stage = outcome.stages["texts"] = self.embedder.texts(outcome.pool)
        about = {"moments": moments_stage.key, "texts": texts_stage.key, "k": self.settings.k}
        stage = outcome.stages["spans"] = self.store.stage("spans", about)
        if not stage.done:

            def choose() -> None:
                embedded = [texts_stage.read_arrays(i)["texts"] for i in range(texts_stage.shards)]
                moments = self.embedder.read_moments(moments_stage)
                found = ccs.textspan(moments, outcome.pool.texts, np.concatenate(embedded), self.settings.k)
                variance = dict(zip(moments.heads, moments.variance().tolist(), strict=True))
                rows = [
                    [str(head), variance[head], [[span.text, span.share, span.index] for span in chosen]]
                    for head, chosen in found.items()
                ]
                stage.write_json(0, rows)

            self.processes.once(choose)
            stage.finish()
        read = {Head.parse(name): (value, chosen) for name, value, chosen in stage.read_json()}
        spans = {head: tuple(Span(*span) for span in chosen) for head, (_, chosen) in read.items()}
        outcome.tables["spans"] = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": span.text}
            | {"concept": outcome.pool.concept_of(span.text), "share": span.share}
            for head, chosen in spans.items()
            for rank, span in enumerate(chosen)
        ]
        return spans, {head: value for head, (value, _) in read.items()}

    def _scores(
        self,
        outcome: Outcome,
        spans: Mapping[Head, Sequence[Span]],
        labeled: Mapping[Head, Label],
        judged: Sequence[Row],
        variance: Mapping[Head, float],
    ) -> dict[Head, score.HeadScore]:
        k = self.settings.k
        verdicts: dict[Head, dict[str, list[bool | None]]] = {head: {} for head in spans}
        for row in judged:
            verdicts[Head(row["layer"], row["head"])].setdefault(row["judge"], []).append(row["verdict"])
        scores, rows = {}, []
        for head, chosen in spans.items():
            by_judge = list(verdicts[head].values())
            label = labeled[head].concept
            # A head without a concept was not judged: its score is unknown, not zero.
            found = score.ccs(by_judge) if by_judge else None
            majority = score.ccs(by_judge, "majority") if by_judge else None
            scores[head] = score.HeadScore(found, label)
            rows.append(
                {"layer": head.layer, "head": head.head, "label": label, "k": k, "ccs": found}
                | {"level": score.level(found, k), "majority": majority}
                | {"share": min(1.0, sum(span.share for span in chosen)), "variance": variance[head]}
            )
        outcome.tables["scores"] = rows
        return scores

    def _plans(self, outcome: Outcome, scores: Mapping[Head, score.HeadScore]) -> list[pruning.Plan]:
        """The study's plans and, for its own models, its published heads; single heads come last."""
        model, settings = outcome.model, self.settings
        notices = outcome.notices.append
        # For this one model the study drew its random heads from all layers.
        everywhere = settings.suite == "paper" and model.name == "ViT-B-32/openai"
        layers = range(0 if everywhere else model.tower.first_prunable_layer, model.n_layers)
        source = HeadSet(Head(layer, head) for layer in layers for head in range(model.n_heads))
        made = pruning.plans(
            scores, settings.k, model.heads, settings.seed, settings.seeds, random_from=source, notice=notices
        )
        paper = [one for one in figures.models() if one.name == model.name]
        if paper:
            levels = figures.head_sets(model.name)
            labels_of = set(figures.head_labels(model.name)["high"].values())
            by_concept = {name: figures.concept_heads(model.name, name) for name in sorted(labels_of)}
            published = pruning.published(levels, by_concept, "tables 12 to 14 of the study")
            singles = [plan for plan in made if plan.name.startswith("single:")]
            made = [plan for plan in made if plan not in singles] + published + singles
        return made

    def _evaluate(self, outcome: Outcome, plans: Sequence[pruning.Plan]) -> None:
        sets_done: dict[str, list[Row]] = {}
        for data in outcome.sets:
            singles = inputs.singles_on(data)
            mine = [plan for plan in plans if singles or not plan.name.startswith("single:")]
            direct = outcome.model.heads if singles and "heads" in self.settings.stages else HeadSet()
            if inputs.kind(data) == "retrieval":
                direct = HeadSet()
            table, rows = self._measure(outcome, data, mine, direct)
            sets_done.setdefault(table, []).extend(rows)
        outcome.tables |= sets_done

    def _measure(
        self, outcome: Outcome, data: EvaluationSet, plans: Sequence[pruning.Plan], direct: HeadSet
    ) -> tuple[str, list[Row]]:
        offs, where = distinct([plan.off for plan in plans])
        about = {
            "embeddings": digest(self.embedder.plans_inputs(data, offs, direct)),
            "plans": [[plan.name, plan.seed, str(plan.off)] for plan in plans],
            "question": inputs.question(data),
            "seed": self.settings.seed,
            "as_published": self.settings.as_published,
            "draws": evaluate.DRAWS,
        }
        stage = outcome.stages[f"measure/{data.name}"] = self.store.stage(f"measure/{data.name}", about)
        if not stage.done:
            embedded = self.embedder.plans(data, offs, direct)
            stage.begin()

            def measure() -> None:
                table, rows = evaluate.rows(
                    outcome.model,
                    data,
                    plans,
                    lambda index: read_plan(embedded, where[index]),
                    self.settings.seed,
                    self.settings.as_published,
                )
                heads = []
                if direct:
                    parts = [read_plan(embedded, index, "direct") for index in range(len(direct))]
                    base = read_plan(embedded, where[0])
                    heads = headtable.direct_effects(
                        outcome.model, data, direct, base, parts, self.settings.seed
                    )
                stage.write_json(0, {"table": table, "rows": rows, "direct": heads})

            self.processes.once(measure)
            stage.finish()
            stage.note(embed_seconds=embedded.seconds(), **embedded.notes())
            if sum(path.stat().st_size for path in embedded.paths.values()) > self.settings.cache:
                embedded.discard()
        found = stage.read_json()
        outcome.tables.setdefault("heads", []).extend(found["direct"])
        return found["table"], found["rows"]

    def _heads(self, outcome: Outcome, moments: Stage) -> None:
        rows = outcome.tables.pop("heads", [])
        for table in ("pruning", "bias"):
            rows += headtable.total_effects(outcome.tables.get(table, []))
        rows += headtable.selectivity(self.store, self.embedder, outcome.images, self.settings)
        if rows:
            outcome.tables["heads"] = rows


def write(outcome: Outcome, manifest: Callable[[dict[str, Any]], dict[str, Any]], store: Store) -> None:
    """Write a model's tables and, last, its manifest. What else lies in the folder is set aside."""
    folder, weights = outcome.folder, outcome.model.weights_hash[:16]
    folder.mkdir(parents=True, exist_ok=True)
    ours = {f"{name}.parquet" for name in schema.TABLES} | {results.MANIFEST_FILE}
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".tmp") and path.is_file():
            path.unlink()
        elif path.name not in ours:
            store.set_aside(path, "is not a table of results")
        elif path.suffix == ".parquet" and not _readable(path):
            store.set_aside(path, "is corrupt")
        elif path.name.removesuffix(".parquet") not in outcome.tables and path.suffix == ".parquet":
            store.set_aside(path, "is of an earlier run that had more stages")
    whole = {}
    for name in schema.TABLES:
        if name in outcome.tables:
            first = {"model": outcome.model.name, "weights": weights}
            whole[name] = [first | row for row in outcome.tables[name]]
    entries = {name: results.write_table(folder, name, rows) for name, rows in whole.items()}
    results.write_manifest(folder, manifest(entries))


def _readable(path: Path) -> bool:
    try:
        results.read_table(path)
    except InputError:
        return False
    return True
