"""The stages that measure: every set under all its plans, once for what the figures depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batch.compute import effecttable, evaluate, headtable, inputs
from batch.compute.embed import Embedder, distinct, read_plan
from batch.compute.inputs import EvaluationSet
from batch.compute.outcome import Outcome
from batch.compute.plans import Plans
from batch.compute.stages import Stage, Store, digest
from ccs.heads import HeadSet
from ccs.plans import Plan
from ccs.results import schema

Row = dict[str, Any]


class Measuring:
    """Fills an outcome's tables pruning, retrieval, bias, effects, heads and correlations."""

    def __init__(self, outcome: Outcome, store: Store, embedder: Embedder) -> None:
        self.outcome, self.store, self.embedder = outcome, store, embedder
        self.settings = outcome.settings
        self.direct: list[Row] = []

    def sets(self, plans: Plans) -> None:
        """Measure every set."""
        for data in self.outcome.sets:
            mine, kept = plans.on(data, self.settings), plans.kept(data, self.settings)
            found = self._measure(data, mine, kept).read_json()
            self.outcome.tables.setdefault(found["table"], []).extend(found["rows"])
            self.direct += found["direct"]

    def heads(self) -> None:
        """Direct beside total effects, of plans and of single heads, and what each head is selective for."""
        tables = self.outcome.tables
        total = [row for table in ("pruning", "bias") for row in tables.get(table, [])]
        rows = headtable.effects_of(self.direct, "direct effect")
        rows += headtable.effects_of(total, "total effect")
        made = {
            "effects": effecttable.plan_effects(self.direct, total),
            "correlations": effecttable.correlations(rows, self.settings.seed),
        }
        images = self.outcome.images
        made["heads"] = rows + headtable.selectivity(self.store, self.embedder, images, self.settings)
        tables |= {name: found for name, found in made.items() if found}

    def _measure(self, data: EvaluationSet, plans: Sequence[Plan], kept: HeadSet) -> Stage:
        settings = self.settings
        offs, where = distinct([plan.off for plan in plans])
        name = f"measure/{data.name}"
        about = {
            "schema": schema.VERSION,
            "embeddings": digest(self.embedder.plans_inputs(data, offs, kept)),
            "plans": [[plan.name, plan.seed, str(plan.off)] for plan in plans],
            "question": inputs.question(data),
            "seed": settings.seed,
            "as_published": settings.as_published,
            "draws": evaluate.DRAWS,
        }
        stage = self.outcome.stages[name] = self.store.stage(name, about)
        if stage.done:
            return stage
        embedded = self.embedder.plans(data, offs, kept)
        stage.begin()

        def measure() -> None:
            model = evaluate.ReadOnce(self.outcome.model)
            table, rows = evaluate.rows(
                model,
                data,
                plans,
                lambda index: read_plan(embedded, where[index]),
                settings.seed,
                settings.as_published,
            )
            direct: list[Row] = []
            if kept:
                shown = effecttable.direct_embeddings(embedded, kept, plans, where[0])
                _, direct = evaluate.rows(model, data, plans, shown, settings.seed, False, few=True)
            stage.write_json(0, {"table": table, "rows": rows, "direct": direct})

        self.store.processes.once(measure)
        stage.finish()
        stage.note(embed_seconds=embedded.seconds(), **embedded.notes())
        if sum(path.stat().st_size for path in embedded.paths.values()) > settings.cache:
            embedded.discard()
        return stage
