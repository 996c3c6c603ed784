"""The stages that label, judge, and score heads, by tags or by LLMs, which only the first process asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ccs.batch.compute import Settings
from ccs.batch.compute.stages import Store, digest
from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges import JudgeSettings
from ccs.judges.panel import Labeled, Labeler, Panel
from ccs.judges.prices import Spending
from ccs.judges.question import Question
from ccs.progress import BAR
from ccs.results import STAGES
from ccs.texts import labels, score
from ccs.texts.labels import TAGS, chance_by_tags, score_by_tags
from ccs.texts.pools import REFERENCE, REFERENCE_LONGEST, Pool, find_reference, load_pool, make_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Row = dict[str, Any]
Spans = Mapping[Head, Sequence[Span]]


def known_pool(settings: Settings) -> Pool:
    """The pool of texts; texts as long as the longest of `reference` where that is not here yet."""
    name = settings.texts or "photographs"
    if name == REFERENCE and find_reference() is None:
        return make_pool(name, [(f"{i:0{REFERENCE_LONGEST}d}", None) for i in range(settings.all_ks[-1])])
    return load_pool(name)


def check(settings: Settings) -> None:
    """Refuse judges, keys (unless answers are cached) or a pool by which no head could be scored."""
    pool = known_pool(settings)
    panel, labeler = judges_of(settings, pool)
    if not panel.settings.cache.exists():
        panel.require_keys()
        if labeler is not None:
            labeler.require_keys()
    pool, most = load_pool(settings.texts or "photographs"), settings.all_ks[-1]
    if len(pool) < most:
        raise InputError(f"The pool {pool.name} has {len(pool)} texts, fewer than --k {most}.")


def judges_of(
    settings: Settings, pool: Pool, spending: Spending | None = None
) -> tuple[Panel, Labeler | None]:
    """The panel and, if labels are by a language model, the labeler: with one budget. Raises InputError."""
    asked = {settings.labeler, *settings.judges.split(",")}
    tagged = sum(concept is not None for concept in pool.concepts)
    unscored = asked == {TAGS} and not tagged  # the heads' texts are found, and no head is scored
    if TAGS in asked and 2 * tagged < len(pool) and not unscored:
        raise InputError(
            f"{tagged} of the {len(pool)} texts of {pool.name} have a concept, by which `{TAGS}` labels and "
            "judges: give a CSV with a column `concept` as --texts, or models as --labeler and --judges."
        )
    limits = JudgeSettings(
        cache=settings.out / STAGES / "judges.sqlite",
        budget=settings.budget,
        prices=settings.prices,
        concurrency=settings.in_flight,
        timeout=settings.timeout,
        max_tokens=settings.max_tokens,
        repaired_examples=settings.repaired_examples,
    )
    spending = spending or Spending("estimated" if settings.budget is None else settings.budget)
    panel = Panel(settings.judges, limits, tags=pool, spending=spending)
    if settings.labeler == TAGS:
        return panel, None
    return panel, Labeler(settings.labeler, limits, spending=spending)


class Judging:
    """Labels and judgments of one model's heads. labeler, judges: for the manifest. unlabeled: why the
    labeler gave no answer, for how many heads. normal: the others' labels in one spelling for one concept.
    spent: what labels and judgments have cost, per model (see `Caller.spent`), for the manifest.
    """

    def __init__(
        self, settings: Settings, store: Store, pool: Pool, spending: Spending | None = None
    ) -> None:
        self.settings, self.store, self.pool = settings, store, pool
        self.panel, self.by_model = judges_of(settings, pool, spending)
        self.unlabeled = Counter[str]()
        self.spent: list[Row] = []
        self.normal: dict[Head, str | None] = {}
        self.labeler: dict[str, Any] = {"name": TAGS, "stand_in": True}
        if self.by_model is not None:
            self.labeler = self.by_model.describe()
        self.judges: list[dict[str, Any]] = list(self.panel.describe()["judges"])
        parents = labels.tree().parents
        tree = digest([list(parents), list(parents.values())])
        self._tags = {"concepts": tree, "tags": pool.fingerprint}

    @property
    def by_tags(self) -> bool:
        """True if labels and verdicts are by `tags` alone."""
        return self.by_model is None and all(judge["name"] == TAGS for judge in self.judges)

    def labels(self, spans: Spans) -> dict[Head, str | None]:
        """The label of each head as given, or None; what is unanswered is asked next time. The labeler is
        shown the main K texts alone, whatever further K there are: a head has one concept.
        """
        spans = {head: chosen[: self.settings.k] for head, chosen in spans.items()}
        texts = {str(head): [span.text for span in chosen] for head, chosen in spans.items()}
        shares = {str(head): [round(span.share, 9) for span in chosen] for head, chosen in spans.items()}
        inputs = {"spans": digest([texts, shares]), "labeler": self.labeler, **self._tags}
        rows = self._answers("labels", inputs, lambda: self._label(spans), self.by_model is not None)
        self.unlabeled = Counter(row["cause"] for row in rows if row["cause"])
        self.normal = {Head.parse(row["head"]): row["label"] for row in rows}
        return {Head.parse(row["head"]): row["given"] for row in rows}

    def _label(self, spans: Spans) -> Row:
        spent: list[Row] = []
        if self.by_model is None:
            scores = score_by_tags(spans, self.pool).items()
            labeled = {head: Labeled(scored.label, scored.label) for head, scored in scores}
        else:
            texts = {head: [span.text for span in chosen] for head, chosen in spans.items()}
            self.panel.spending.expect([self.by_model.estimate(texts)])
            labeled = self.by_model.label(texts)
            spent = [{"role": "labeler"} | self.by_model.spent(texts)]
        rows = [{"head": str(head), **label._asdict()} for head, label in labeled.items()]
        return {"rows": rows, "spent": spent}

    def judgments(self, spans: Spans, labeled: Mapping[Head, str | None]) -> list[Row]:
        """A row per head, judge and text, each judged once for every K: those of the main K in a question of
        their own, all others in a second one. What is unscored is asked again by the next run.
        """
        asked: list[tuple[Head, int, Question]] = []
        for head, label in sorted(labeled.items()):
            texts, k = tuple(span.text for span in spans[head]), self.settings.k
            if label is not None:
                asked += [
                    (head, first, Question(str(head), label, some))
                    for first, some in ((0, texts[:k]), (k, texts[k:]))
                    if some
                ]
        questions = [[one.head_key, one.label, list(one.texts)] for *_, one in asked]
        inputs = {"questions": digest(questions), "judges": self.panel.describe(), **self._tags}
        by_model = any(not judge["stand_in"] for judge in self.judges)
        return self._answers("judgments", inputs, lambda: self._judge(asked), by_model)

    def _judge(self, asked: Sequence[tuple[Head, int, Question]]) -> Row:
        """asked: with each question the rank of its first text."""
        questions = [question for *_, question in asked]
        self.panel.spending.expect(self.panel.estimate(questions))
        answers = self.panel.judge(questions)
        rows = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": text, "label": question.label}
            | asdict(judgment)
            for (head, first, question), by_judge in zip(asked, answers, strict=True)
            for judgments in by_judge
            for rank, (text, judgment) in enumerate(zip(question.texts, judgments, strict=True), first)
        ]
        return {"rows": rows, "spent": [{"role": "judge"} | spent for spent in self.panel.spent(questions)]}

    def _answers(
        self, name: str, inputs: Mapping[str, Any], ask: Callable[[], Row], by_model: bool
    ) -> list[Row]:
        """Return the rows of a stage, and keep what they cost. Only the first process asks.

        Args:
            name: The stage.
            inputs: All that its rows depend on.
            ask: Returns `rows` and what was `spent` on them.
            by_model: True if rows with a `cause`, which have no answer, are asked again.
        """
        stage = self.store.stage(name, inputs)
        answers: Row = stage.read_json() if stage.done else {}
        if not answers or (by_model and any(row["cause"] for row in answers["rows"])):
            with BAR.get()(desc=name, total=1) as bar:
                self.store.processes.once(lambda: stage.write_json(ask()))
                bar.update(1)
            stage.finish()
            answers = stage.read_json()
        self.spent += answers["spent"]
        rows: list[Row] = answers["rows"]
        return rows

    def chance(self, k: int) -> list[float]:
        """CCS@0 ... CCS@k of random texts where label and verdicts are by tags, else empty."""
        if not self.by_tags or not any(self.pool.concepts):
            return []
        found: list[float] = self.store.json(
            "chance", {**self._tags, "k": k}, lambda: chance_by_tags(self.pool, k)
        )
        return found


def score_heads(
    spans: Spans,
    labels: Mapping[Head, str | None],
    judged: Sequence[Row],
    variance: Mapping[Head, float],
    ks: Sequence[int],
) -> tuple[dict[int, dict[Head, HeadScore]], list[Row]]:
    """Each head's score at each K, and the rows of the table scores, the main K's first.

    labels: as given, of the main K texts. spans: as many texts per head as the largest K, of which a smaller
    K has the first. judged: rows of the table judgments, each judge's in the order of the texts.
    """
    verdicts: dict[Head, dict[str, list[bool | None]]] = {head: {} for head in spans}
    for row in judged:
        verdicts[Head(row["layer"], row["head"])].setdefault(row["judge"], []).append(row["verdict"])
    scores: dict[int, dict[Head, HeadScore]] = {k: {} for k in ks}
    rows = []
    for head, chosen in spans.items():
        by_judge = list(verdicts[head].values())
        label = labels[head]
        # A head without a concept was not judged: its score is unknown, not zero.
        unanimous, majority = (
            {k: score.ccs([said[:k] for said in by_judge], rule) if by_judge else None for k in ks}
            for rule in score.RULES
        )
        for k in ks:
            scores[k][head] = HeadScore(unanimous[k], label)
            rows.append(
                {"layer": head.layer, "head": head.head, "label": label, "k": k, "ccs": unanimous[k]}
                | {"level": score.level(unanimous[k], k), "majority": majority[k]}
                | {"share": min(1.0, sum(span.share for span in chosen[:k])), "variance": variance[head]}
            )
    return scores, sorted(rows, key=lambda row: row["k"])
