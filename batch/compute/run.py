"""One model from images and texts to tables: the stages in order, each done once for what it depends on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ccs
from batch.compute import inputs, plans
from batch.compute.checks import largest_errors
from batch.compute.embed import Embedder
from batch.compute.judge import Judging
from batch.compute.measure import Measuring
from batch.compute.outcome import Outcome
from batch.compute.processes import Processes
from batch.compute.scoring import score_heads
from batch.compute.settings import Settings
from batch.compute.stages import STAGES, Stage, Store
from ccs import results
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.texts.pools import load_pool
from ccs.texts.textspan import Span

_CHECKED_IMAGES = 4


class Run:
    """The stages of one model. All processes make one and call `go`."""

    def __init__(self, settings: Settings, processes: Processes, tell: Callable[[str], None]) -> None:
        self.settings, self.processes, self.tell = settings, processes, tell

    def open(self) -> Outcome:
        """Load the model and open everything it is to be run on. Raises InputError."""
        settings = self.settings
        model = ccs.load(settings.models[0], device=self.processes.device, precision=settings.precision)
        pool = load_pool(settings.texts or "photographs")
        most = settings.all_ks[-1]
        if len(pool.texts) < most:
            raise InputError(f"The pool {pool.name} has {len(pool.texts)} texts, fewer than --k {most}.")
        images = inputs.open_moment_images(settings)
        for name in images.skipped:
            self.tell(f"Left out: {name}")
        sets, absent = inputs.open_sets(settings, self.tell)
        folder = settings.out / results.folder_name(model.name)
        self.store = Store(settings.out / STAGES / folder.name, self.processes, self.tell)
        self.embedder = Embedder(model, self.store, settings)
        # Opened before anything is computed: a mistake in a judge's name is told at once.
        self.judging = Judging(settings, self.store, self.processes, pool, self.tell)
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
        judging = self.judging
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
        outcome.chance = judging.chance(self.settings.k)
        outcome.stages |= judging.stages
        outcome.tables["judgments"] = judged
        scores, rows = score_heads(spans, labeled, judged, variance, self.settings.all_ks)
        outcome.tables["scores"] = rows
        if wanted.isdisjoint({"evaluation", "heads"}):
            return outcome
        measuring = Measuring(outcome, self.store, self.embedder)
        measuring.sets(plans.make(outcome.model, self.settings, scores, outcome.notices.append))
        if "heads" in wanted:
            measuring.heads()
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
        k = self.settings.all_ks[-1]  # a greedy choice: the texts of every smaller K come first
        about = {"moments": moments_stage.key, "texts": texts_stage.key, "k": k}
        stage = outcome.stages["spans"] = self.store.stage("spans", about)
        if not stage.done:

            def choose() -> None:
                embedded = [texts_stage.read_arrays(i)["texts"] for i in range(texts_stage.shards)]
                moments = self.embedder.read_moments(moments_stage)
                found = ccs.textspan(moments, outcome.pool.texts, np.concatenate(embedded), k)
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
