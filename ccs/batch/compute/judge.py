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
from ccs.judges.prices import CostEstimate, Spending
from ccs.judges.question import Question
from ccs.results import STAGES
from ccs.texts import labels, score
from ccs.texts.labels import TAGS, chance_by_tags, score_by_tags
from ccs.texts.pools import REFERENCE, REFERENCE_LONGEST, Pool, find_reference, load_pool, make_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Row = dict[str, Any]
Spans = Mapping[Head, Sequence[Span]]


def known_pool(settings: Settings) -> Pool:
    """Return the pool of texts, or as many texts as long as the longest of `reference` if that isn't here."""
    name = settings.texts or "photographs"
    if name == REFERENCE and find_reference() is None:
        return make_pool(name, [(f"{i:0{REFERENCE_LONGEST}d}", None) for i in range(settings.all_ks[-1])])
    return load_pool(name)


def require_judges(settings: Settings) -> None:
    """Refuse judges, keys (unless answers are cached), or a pool by which no head could be scored."""
    panel, labeler = judges_of(settings, known_pool(settings))
    if not panel.settings.cache.exists():
        panel.require_keys()
        if labeler is not None:
            labeler.require_keys()
    pool, k = load_pool(settings.texts or "photographs"), settings.all_ks[-1]
    if len(pool) < k:
        raise InputError(f"The pool {pool.name} has {len(pool)} texts, fewer than --k {k}.")


def estimate_costs(settings: Settings, heads: int) -> list[CostEstimate]:
    """Estimate the cost of each LLM, if all heads have the pool's longest texts.

    Args:
        settings: The run's settings.
        heads: The number of heads.
    """
    pool = known_pool(settings)
    panel, labeler = judges_of(settings, pool)
    texts = tuple(sorted(pool.texts, key=len)[-settings.all_ks[-1] :])
    one_head = [] if labeler is None else [labeler.estimate_cost({Head(0, 0): texts[: settings.k]})]
    parts = filter(None, (texts[: settings.k], texts[settings.k :]))
    one_head += panel.estimate_cost([Question("L0.H0", "Backgrounds", part) for part in parts])
    return [estimate.repeated(heads) for estimate in one_head]


def judges_of(
    settings: Settings, pool: Pool, spending: Spending | None = None
) -> tuple[Panel, Labeler | None]:
    """Make the panel and, if an LLM labels, the labeler.

    Args:
        settings: The run's settings.
        pool: The texts, with the tags for the judge `tags`.
        spending: The budget of both (default: that of the settings).

    Raises:
        InputError: A judge isn't known, or most texts lack the tags that `tags` needs.
    """
    members = {settings.labeler, *settings.judges.split(",")}
    tagged = sum(concept is not None for concept in pool.concepts)
    unscored = members == {TAGS} and not tagged  # heads get their texts, but no score
    if TAGS in members and 2 * tagged < len(pool) and not unscored:
        raise InputError(
            f"{tagged} of the {len(pool)} texts of {pool.name} have a concept, by which `{TAGS}` labels and "
            "judges: give a CSV with a column `concept` as --texts, or models as --labeler and --judges."
        )
    limits = JudgeSettings(
        cache=settings.out / STAGES / "judges.sqlite",
        budget=settings.budget,
        prices=settings.prices,
        max_tokens=settings.max_tokens,
    )
    spending = spending or Spending("estimated" if settings.budget is None else settings.budget)
    panel = Panel(settings.judges, limits, tags=pool, spending=spending)
    if settings.labeler == TAGS:
        return panel, None
    return panel, Labeler(settings.labeler, limits, spending=spending)


class Judging:
    """Labels and judgments of one model's heads.

    Attributes:
        labeler: The labeler, for the manifest.
        judges: The judges, likewise.
        spent: What labels and judgments have cost, per LLM (see `Caller.spent`), likewise.
        normal: Each head's label in one spelling per concept, after `labels`.
        unlabeled: How many heads have no label, by the labeler's reason, after `labels`.
    """

    def __init__(
        self, settings: Settings, store: Store, pool: Pool, spending: Spending | None = None
    ) -> None:
        """Make labeler and judges.

        Args:
            settings: The run's settings.
            store: The stages that keep the answers.
            pool: The texts.
            spending: A budget, which other models' runs may share.
        """
        self.settings, self.store, self.pool = settings, store, pool
        self.panel, self.llm_labeler = judges_of(settings, pool, spending)
        self.unlabeled = Counter[str]()
        self.spent: list[Row] = []
        self.normal: dict[Head, str | None] = {}
        self.labeler: Row = {"name": TAGS, "stand_in": True}
        if self.llm_labeler is not None:
            self.labeler = self.llm_labeler.manifest_entry()
        self.judges: list[Row] = list(self.panel.manifest_entry()["judges"])
        parents = labels.tree().parents
        self._tags = {"concepts": digest([list(parents), list(parents.values())]), "tags": pool.fingerprint}

    @property
    def by_tags(self) -> bool:
        """True if labels and verdicts are by `tags` only."""
        return self.llm_labeler is None and all(judge["name"] == TAGS for judge in self.judges)

    def labels(self, spans: Spans) -> dict[Head, str | None]:
        """Label the heads in the labeler's words, None without an answer, which the next run asks for again.

        The labeler gets the texts of the main K only, whatever further K there are: a head has one concept.
        """
        spans = {head: head_spans[: self.settings.k] for head, head_spans in spans.items()}
        picked = {
            str(head): [[span.text, round(span.share, 9)] for span in head_spans]
            for head, head_spans in spans.items()
        }
        inputs = {"texts": digest(picked), "labeler": self.labeler, **self._tags}
        rows = self._answers("labels", inputs, lambda: self._label(spans), self.llm_labeler is not None)
        self.unlabeled = Counter(row["cause"] for row in rows if row["cause"])
        self.normal = {Head.parse(row["head"]): row["label"] for row in rows}
        return {Head.parse(row["head"]): row["wording"] for row in rows}

    def _label(self, spans: Spans) -> Row:
        spent: list[Row] = []
        if self.llm_labeler is None:
            scores = score_by_tags(spans, self.pool).items()
            labeled = {head: Labeled(scored.label, scored.label) for head, scored in scores}
        else:
            texts = {head: [span.text for span in head_spans] for head, head_spans in spans.items()}
            self.panel.spending.expect([self.llm_labeler.estimate_cost(texts)])
            labeled = self.llm_labeler.label(texts)
            spent = [{"role": "labeler"} | self.llm_labeler.spent(texts)]
        rows = [
            {"head": str(head), "label": label, "wording": wording, "cause": cause}
            for head, (label, wording, cause) in labeled.items()
        ]
        return {"rows": rows, "spent": spent}

    def judgments(self, spans: Spans, labeled: Mapping[Head, str | None]) -> list[Row]:
        """Judge each text once, whatever K there are. The next run asks again for what is unscored.

        Args:
            spans: Each head's texts. Those of the main K are one question, the others a second one.
            labeled: Each head's label; heads without one are not judged.

        Returns:
            A row of the table judgments per head, judge, and text.
        """
        items: list[tuple[Head, int, Question]] = []
        for head, label in sorted(labeled.items()):
            texts, k = tuple(span.text for span in spans[head]), self.settings.k
            if label is not None:
                parts = ((0, texts[:k]), (k, texts[k:]))
                items += [(head, first, Question(str(head), label, part)) for first, part in parts if part]
        questions = [[question.head_key, question.label, list(question.texts)] for *_, question in items]
        inputs = {"questions": digest(questions), "judges": self.panel.manifest_entry(), **self._tags}
        by_llm = any(not judge["stand_in"] for judge in self.judges)
        return self._answers("judgments", inputs, lambda: self._judge(items), by_llm)

    def _judge(self, items: Sequence[tuple[Head, int, Question]]) -> Row:
        """Ask the judges; items: head, rank of the question's first text, and question."""
        questions = [question for *_, question in items]
        self.panel.spending.expect(self.panel.estimate_cost(questions))
        rows = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": text, "label": question.label}
            | asdict(judgment)
            for (head, first, question), by_judge in zip(items, self.panel.judge(questions), strict=True)
            for judgments in by_judge
            for rank, (text, judgment) in enumerate(zip(question.texts, judgments, strict=True), first)
        ]
        return {"rows": rows, "spent": [{"role": "judge"} | spent for spent in self.panel.spent(questions)]}

    def _answers(
        self, name: str, inputs: Mapping[str, Any], ask: Callable[[], Row], by_llm: bool
    ) -> list[Row]:
        """Return the rows of a stage, and keep what they cost. Only the first process asks.

        Args:
            name: The stage.
            inputs: All that its rows depend on.
            ask: Returns `rows` and what was `spent` on them.
            by_llm: True if rows with a `cause`, which have no answer, are asked again.
        """
        stage = self.store.stage(name, inputs)
        answers: Row = stage.read_json() if stage.done else {}
        if not answers or (by_llm and any(row["cause"] for row in answers["rows"])):
            with self.store.bar(desc=name, total=1) as bar:
                self.store.processes.once(lambda: stage.write_json(ask()))
                bar.update(1)
            stage.finish()
            answers = stage.read_json()
        self.spent += answers["spent"]
        rows: list[Row] = answers["rows"]
        return rows

    def chance(self, k: int) -> list[float]:
        """Return CCS@0 ... CCS@k of random texts if label and verdicts are by tags, else an empty list."""
        if not self.by_tags or not any(self.pool.concepts):
            return []
        inputs = {**self._tags, "k": k}
        shares: list[float] = self.store.json("chance", inputs, lambda: chance_by_tags(self.pool, k))
        return shares


def score_heads(
    spans: Spans,
    labels: Mapping[Head, str | None],
    judged: Sequence[Row],
    variance: Mapping[Head, float],
    ks: Sequence[int],
) -> tuple[dict[int, dict[Head, HeadScore]], list[Row]]:
    """Score the heads at each K.

    Args:
        spans: As many texts per head as the largest K; those of a smaller K come first.
        labels: Each head's label in the labeler's words, of the main K texts.
        judged: Rows of the table judgments, each judge's in the order of the texts.
        variance: Each head's variance.
        ks: All K, the main one first.

    Returns:
        Each head's score at each K, and the rows of the table scores, the main K's first.
    """
    verdicts: dict[Head, dict[str, list[bool | None]]] = {head: {} for head in spans}
    for row in judged:
        verdicts[Head(row["layer"], row["head"])].setdefault(row["judge"], []).append(row["verdict"])
    scores: dict[int, dict[Head, HeadScore]] = {k: {} for k in ks}
    rows = []
    for head, head_spans in spans.items():
        by_judge = list(verdicts[head].values())
        label = labels[head]
        # A head without a concept was not judged: its score is unknown, not zero.
        unanimous, majority = (
            {k: score.ccs([texts[:k] for texts in by_judge], rule) if by_judge else None for k in ks}
            for rule in score.RULES
        )
        for k in ks:
            scores[k][head] = HeadScore(unanimous[k], label)
            rows.append(
                {"layer": head.layer, "head": head.head, "label": label, "k": k, "ccs": unanimous[k]}
                | {"level": score.level(unanimous[k], k), "majority": majority[k]}
                | {"share": min(1.0, sum(span.share for span in head_spans[:k])), "variance": variance[head]}
            )
    return scores, sorted(rows, key=lambda row: row["k"])
