"""The stages that name and judge: by tags, or by language models, asked by the first process alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batch.options import Settings
from batch.processes import Processes
from batch.stages import STAGES, Stage, Store, digest
from ccs import concepts
from ccs.descriptions import Pool
from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges.base import Question
from ccs.judges.estimates import estimate_table
from ccs.judges.panel import check_refresh, open_panel
from ccs.judges.prices import Spending
from ccs.judges.settings import TAGS, JudgeSettings
from ccs.judges.tags import TagsJudge
from ccs.labels import Label, label_by_tags
from ccs.textspan import Span

Row = dict[str, Any]
Spans = Mapping[Head, Sequence[Span]]


class NothingSent(Exception):
    """A dry run has said what it would ask; there is nothing more to do."""


class Judging:
    """Labels and judgments of one model's heads."""

    def __init__(
        self, settings: Settings, store: Store, processes: Processes, pool: Pool, tell: Callable[[str], None]
    ) -> None:
        self.settings, self.store, self.processes, self.pool, self.tell = (
            settings,
            store,
            processes,
            pool,
            tell,
        )
        self.tree = concepts.tree()
        self.limits = JudgeSettings(
            cache=settings.out / STAGES / "judges.sqlite",
            budget=settings.budget,
            refresh=settings.refresh,
            batch=settings.batch,
        )
        self.spending = Spending(settings.budget)
        self.panel = open_panel(
            settings.judges, self.limits, stand_ins={TAGS: TagsJudge(pool, self.tree)}, spending=self.spending
        )
        self.labeler: dict[str, Any] = {"name": TAGS, "stand_in": True}
        self.judges: list[dict[str, Any]] = list(self.panel.describe()["judges"])
        self.stages: dict[str, Stage] = {}

    @property
    def _concepts(self) -> str:
        return digest([self.tree.concepts, [self.tree.parent(concept) for concept in self.tree.concepts]])

    def labels(self, spans: Spans) -> dict[Head, Label]:
        """A concept for each head, None where there is none."""
        texts = {str(head): [span.text for span in chosen] for head, chosen in spans.items()}
        shares = {str(head): [round(span.share, 9) for span in chosen] for head, chosen in spans.items()}
        inputs = {
            "spans": digest([texts, shares]),
            "labeler": self.settings.labeler,
            "concepts": self._concepts,
        }
        inputs["tags"] = self.pool.fingerprint
        stage = self.stages["labels"] = self.store.stage("labels", inputs)
        if not stage.done:
            found = self.processes.once(lambda: self._label(spans))
            if self.processes.first:
                stage.write_json(
                    0, [[str(head), label.concept, label.labeler] for head, label in found.items()]
                )
            stage.finish()
        return {Head.parse(name): Label(concept, by) for name, concept, by in stage.read_json()}

    def _label(self, spans: Spans) -> dict[Head, Label]:
        if self.settings.labeler != TAGS:
            raise InputError(f"The labeler {self.settings.labeler!r} is not available here; use {TAGS}.")
        return label_by_tags(spans, self.pool, self.tree)

    def judgments(self, spans: Spans, labeled: Mapping[Head, Label]) -> list[Row]:
        """One row a head, judge and text. What is unscored is asked again by the next run."""
        asked = [
            (head, Question(str(head), label.concept, tuple(span.text for span in spans[head])))
            for head, label in sorted(labeled.items())
            if label.concept is not None
        ]
        questions = [question for _, question in asked]
        check_refresh(self.limits, self.panel.names, [str(head) for head in spans])
        if self.settings.dry_run:
            self.tell(estimate_table(self.panel.estimate(questions), self.panel.prices))
            raise NothingSent
        inputs = {
            "questions": digest([[q.head_key, q.label, list(q.texts)] for q in questions]),
            "judges": self.panel.describe(),
            "concepts": self._concepts,
            "tags": self.pool.fingerprint,
        }
        stage = self.stages["judgments"] = self.store.stage("judgments", inputs)
        rows: list[Row] = stage.read_json() if stage.done else []
        llm = any(not judge["stand_in"] for judge in self.judges)
        if not stage.done or self.settings.refresh or (llm and any(row["verdict"] is None for row in rows)):
            answers = self.processes.once(lambda: self.panel.judge(questions))
            rows = [
                {"layer": head.layer, "head": head.head, "rank": rank, "text": text, "label": question.label}
                | {"judge": said.judge, "verdict": said.verdict, "reason": said.reason, "cause": said.cause}
                for (head, question), by_judge in zip(asked, answers, strict=True)
                for judgments in by_judge
                for rank, (text, said) in enumerate(zip(question.texts, judgments, strict=True))
            ]
            if self.processes.first:
                stage.replace_json(0, rows)
            stage.finish()
        return rows
