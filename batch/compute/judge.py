"""The stages that name and judge: by tags, or by language models, asked by the first process alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batch.compute.processes import Processes
from batch.compute.settings import Settings
from batch.compute.stages import STAGES, Stage, Store, digest
from ccs.heads import Head
from ccs.judges.labeler import open_labeler
from ccs.judges.panel import check_refresh, open_panel
from ccs.judges.prices import Spending, estimate_table
from ccs.judges.question import Question
from ccs.judges.settings import JudgeSettings
from ccs.judges.tags import TagsJudge
from ccs.texts import concepts
from ccs.texts.labels import TAGS, Label, chance_by_tags, label_by_tags
from ccs.texts.pools import Pool
from ccs.texts.textspan import Span

Row = dict[str, Any]
Spans = Mapping[Head, Sequence[Span]]


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
            per_minute=settings.per_minute,
            concurrency=settings.in_flight,
            timeout=settings.timeout,
            prices=settings.prices,
        )
        self.spending = Spending(settings.budget)
        self.panel = open_panel(
            settings.judges, self.limits, stand_ins={TAGS: TagsJudge(pool, self.tree)}, spending=self.spending
        )
        self.by_model = None
        if settings.labeler != TAGS:
            self.by_model = open_labeler(
                settings.labeler, self.limits, tree=self.tree, spending=self.spending
            )
        self.labeler: dict[str, Any] = {"name": TAGS, "stand_in": True}
        if self.by_model is not None:
            self.labeler = self.by_model.describe()
        self.judges: list[dict[str, Any]] = list(self.panel.describe()["judges"])
        self.stages: dict[str, Stage] = {}

    @property
    def _concepts(self) -> str:
        return digest([self.tree.concepts, [self.tree.parent(concept) for concept in self.tree.concepts]])

    def labels(self, spans: Spans) -> dict[Head, Label]:
        """A concept for each head, None where there is none. What got no answer is asked again next time.

        The labeler is shown the main K texts alone, whatever further K there are: a head has one concept.
        """
        spans = self._named_by(spans)
        texts = {str(head): [span.text for span in chosen] for head, chosen in spans.items()}
        shares = {str(head): [round(span.share, 9) for span in chosen] for head, chosen in spans.items()}
        inputs = {"spans": digest([texts, shares]), "labeler": self.labeler, "concepts": self._concepts}
        inputs["tags"] = self.pool.fingerprint
        stage = self.stages["labels"] = self.store.stage("labels", inputs)
        rows = stage.read_json() if stage.done else []
        if not stage.done or any(cause for *_, cause in rows) or (self.by_model and self.settings.refresh):
            rows = self.processes.once(lambda: self._label(spans))
            if self.processes.first:
                stage.replace_json(0, rows)
            stage.finish()
        if unanswered := sum(bool(cause) for *_, cause in rows):
            self.tell(
                f"{unanswered} heads have no label yet, the labeler did not answer; a later run asks again."
            )
        return {Head.parse(name): Label(concept, by) for name, concept, by, _ in rows}

    def _label(self, spans: Spans) -> list[list[str | None]]:
        """Head, concept, labeler and why there was no answer, if there was none."""
        if self.by_model is None:
            found, causes = label_by_tags(spans, self.pool, self.tree), dict[Head, str]()
        else:
            found = self.by_model.label(
                {head: [span.text for span in chosen] for head, chosen in spans.items()}
            )
            causes = self.by_model.causes
        return [
            [str(head), label.concept, label.labeler, causes.get(head, "")] for head, label in found.items()
        ]

    def _named_by(self, spans: Spans) -> Spans:
        return {head: chosen[: self.settings.k] for head, chosen in spans.items()}

    def chance(self, k: int) -> list[float]:
        """CCS@0 ... CCS@k of random texts where label and verdicts are by tags, else empty."""
        if self.by_model is not None or any(judge["name"] != TAGS for judge in self.judges):
            return []
        stage = self.stages["chance"] = self.store.stage(
            "chance", {"tags": self.pool.fingerprint, "concepts": self._concepts, "k": k}
        )
        if not stage.done:
            self.processes.once(lambda: stage.write_json(0, chance_by_tags(self.pool, k, tree=self.tree)))
            stage.finish()
        found: list[float] = stage.read_json()
        return found

    def estimate(self, spans: Spans) -> str:
        """What a labeler and judges that are language models would be asked, and what it would cost."""
        texts = {head: tuple(span.text for span in chosen) for head, chosen in spans.items()}
        lines = []
        if self.by_model is not None:
            named_by = {head: chosen[: self.settings.k] for head, chosen in texts.items()}
            table = estimate_table([self.by_model.estimate(named_by)], self.by_model.prices)
            lines.append(f"Labels:\n{table}")
        if any(not judge["stand_in"] for judge in self.judges):
            # Which label is asked about hardly changes the length of a question.
            questions = [Question(str(head), "Backgrounds", chosen) for head, chosen in texts.items()]
            lines.append("Judgments:\n" + estimate_table(self.panel.estimate(questions), self.panel.prices))
        return "\n".join(lines) or "No language model would be asked: labels and verdicts are by `tags`."

    def judgments(self, spans: Spans, labeled: Mapping[Head, Label]) -> list[Row]:
        """One row a head, judge and text. What is unscored is asked again by the next run.

        One question holds a head's texts of the largest K, so that each text is judged once for every K.
        """
        asked = [
            (head, Question(str(head), label.concept, tuple(span.text for span in spans[head])))
            for head, label in sorted(labeled.items())
            if label.concept is not None
        ]
        questions = [question for _, question in asked]
        check_refresh(self.limits, self.panel.names, [str(head) for head in spans])
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
