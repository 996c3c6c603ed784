"""The stages that measure: every set under all its plans, once for what the figures depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batch import evaluate, headtable, inputs
from batch.embedding import Embedder, distinct, read_plan
from batch.inputs import EvaluationSet
from batch.outcome import Outcome
from batch.plans import Plans
from batch.stages import Stage, Store, digest
from ccs import schema
from ccs.heads import HeadSet
from ccs.pruning import Plan

Row = dict[str, Any]


class Measuring:
    """Fills an outcome's tables pruning, retrieval, bias and heads."""

    def __init__(self, outcome: Outcome, store: Store, embedder: Embedder) -> None:
        self.outcome, self.store, self.embedder = outcome, store, embedder
        self.settings = outcome.settings

    def sets(self, plans: Plans) -> None:
        """Measure every set."""
        for data in self.outcome.sets:
            found = self._measure(data, plans.on(data, self.settings)).read_json()
            self.outcome.tables.setdefault(found["table"], []).extend(found["rows"])
            self.outcome.tables.setdefault("heads", []).extend(found["direct"])

    def heads(self) -> None:
        """Add to the single heads' direct effects their total ones and what they are selective for."""
        tables = self.outcome.tables
        rows = tables.pop("heads", [])
        for table in ("pruning", "bias"):
            rows += headtable.total_effects(tables.get(table, []))
        rows += headtable.selectivity(self.store, self.embedder, self.outcome.images, self.settings)
        if rows:
            tables["heads"] = rows

    def _direct(self, data: EvaluationSet) -> HeadSet:
        """The heads whose contributions are wanted on a set."""
        wanted = inputs.singles_on(data) and "heads" in self.settings.stages
        return self.outcome.model.heads if wanted and inputs.kind(data) != "retrieval" else HeadSet()

    def _measure(self, data: EvaluationSet, plans: Sequence[Plan]) -> Stage:
        model, settings = self.outcome.model, self.settings
        offs, where = distinct([plan.off for plan in plans])
        direct = self._direct(data)
        name = f"measure/{data.name}"
        about = {
            "schema": schema.VERSION,
            "embeddings": digest(self.embedder.plans_inputs(data, offs, direct)),
            "plans": [[plan.name, plan.seed, str(plan.off)] for plan in plans],
            "question": inputs.question(data),
            "seed": settings.seed,
            "as_published": settings.as_published,
            "draws": evaluate.DRAWS,
        }
        stage = self.outcome.stages[name] = self.store.stage(name, about)
        if stage.done:
            return stage
        embedded = self.embedder.plans(data, offs, direct)
        stage.begin()

        def measure() -> None:
            table, rows = evaluate.rows(
                model,
                data,
                plans,
                lambda index: read_plan(embedded, where[index]),
                settings.seed,
                settings.as_published,
            )
            heads = []
            if direct:
                parts = [read_plan(embedded, index, "direct") for index in range(len(direct))]
                base = read_plan(embedded, where[0])
                heads = headtable.direct_effects(model, data, direct, base, parts, settings.seed)
            stage.write_json(0, {"table": table, "rows": rows, "direct": heads})

        self.store.processes.once(measure)
        stage.finish()
        stage.note(embed_seconds=embedded.seconds(), **embedded.notes())
        if sum(path.stat().st_size for path in embedded.paths.values()) > settings.cache:
            embedded.discard()
        return stage
