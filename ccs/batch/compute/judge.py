"""Labels, judgments, and scores of heads, by tags or by LLMs, which only the first process asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
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
    if settings.texts == REFERENCE and find_reference() is None:
        return make_pool(
            REFERENCE, [(f"{i:0{REFERENCE_LONGEST}d}", None) for i in range(settings.all_ks[-1])]
        )
    return load_pool(settings.texts or "photographs")


class Judging:
    """Labels and judgments of one model's heads.

    Attributes:
        labeler: The labeler, for the manifest.
        judges: The judges, likewise.
        spent: What labels and judgments have cost, per LLM (see `Caller.spent`), likewise.
        normal: Each head's label in one spelling per concept, after `label`.
        unlabeled: How many heads have no label, by the labeler's reason, after `label`.
    """

    def __init__(self, settings: Settings, pool: Pool, spending: Spending | None = None) -> None:
        """Make the judges and, if an LLM labels, the labeler.

        Args:
            settings: The run's settings.
            pool: The texts, with the tags for the judge `tags`.
            spending: A budget, which other models' runs may share (default: that of the settings).

        Raises:
            InputError: A judge isn't known, most texts lack the tags that `tags` needs, or the pool has fewer
                texts than a head gets.
        """
        self.settings, self.pool, self.k = settings, pool, settings.k
        members = {settings.labeler, *settings.judges.split(",")}
        tagged = sum(concept is not None for concept in pool.concepts)
        unscored = members == {TAGS} and not tagged  # heads get their texts, but no score
        if TAGS in members and 2 * tagged < len(pool) and not unscored:
            raise InputError(
                f"{tagged} of the {len(pool)} texts of {pool.name} have a concept, by which `{TAGS}` labels "
                "and judges: give a CSV with a column `concept` as --texts, or LLMs for both."
            )
        if len(pool) < settings.all_ks[-1]:
            raise InputError(
                f"The pool {pool.name} has {len(pool)} texts, fewer than --k {settings.all_ks[-1]}."
            )
        limits = JudgeSettings(
            cache=settings.out / STAGES / "judges.sqlite",
            budget=settings.budget,
            prices=settings.prices,
            max_tokens=settings.max_tokens,
        )
        spending = spending or Spending("estimated" if settings.budget is None else settings.budget)
        self.panel = Panel(settings.judges, limits, tags=pool, spending=spending)
        self.llm_labeler = (
            None if settings.labeler == TAGS else Labeler(settings.labeler, limits, spending=spending)
        )
        self.labeler: Row = (
            self.llm_labeler.manifest_entry() if self.llm_labeler else {"name": TAGS, "stand_in": True}
        )
        self.judges: list[Row] = list(self.panel.manifest_entry()["judges"])
        self.spent: list[Row] = []
        self.unlabeled = Counter[str]()
        self.normal: dict[Head, str | None] = {}
        parents = labels.tree().parents
        self._tags = {"concepts": digest([list(parents), list(parents.values())]), "tags": pool.fingerprint}

    @property
    def by_tags(self) -> bool:
        """True if labels and verdicts are by `tags` only."""
        return self.llm_labeler is None and all(judge["name"] == TAGS for judge in self.judges)

    def require_keys(self) -> None:
        """Raise InputError if a key or package is missing, unless answers are stored that may be enough."""
        if not self.panel.settings.cache.exists():
            self.panel.require_keys()
            if self.llm_labeler:
                self.llm_labeler.require_keys()

    def estimate(self, heads: int) -> list[CostEstimate]:
        """Estimate the cost of each LLM for so many heads, if all of them have the pool's longest texts."""
        texts = tuple(sorted(self.pool.texts, key=len)[-self.settings.all_ks[-1] :])
        labels = self.llm_labeler.estimate_cost({Head(0, 0): texts[: self.k]}) if self.llm_labeler else ()
        parts = (texts[: self.k], texts[self.k :])
        judged = self.panel.estimate_cost([Question("L0.H0", "Backgrounds", part) for part in parts])
        return [estimate.repeated(heads) for estimate in (*labels, *judged)]

    def label(self, spans: Spans, store: Store) -> dict[Head, str | None]:
        """Label the heads in the labeler's words, None without an answer, which the next run asks for again.

        The labeler gets the texts of the main K only, whatever further K there are: a head has one concept.

        Args:
            spans: Each head's texts.
            store: The stages that keep the answers.
        """
        spans = {head: head_spans[: self.k] for head, head_spans in spans.items()}
        picked = {
            str(head): [[span.text, round(span.share, 9)] for span in head_spans]
            for head, head_spans in spans.items()
        }
        inputs = {"texts": digest(picked), "labeler": self.labeler, **self._tags}
        rows = self._answers(store, "labels", inputs, partial(self._label, spans))
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
            self.panel.spending.expect(self.llm_labeler.estimate_cost(texts))
            labeled = self.llm_labeler.label(texts)
            spent = [{"role": "labeler"} | spent for spent in self.llm_labeler.spent(texts)]
        return {
            "rows": [{"head": str(head)} | answer._asdict() for head, answer in labeled.items()],
            "spent": spent,
        }

    def judge(self, spans: Spans, labeled: Mapping[Head, str | None], store: Store) -> list[Row]:
        """Judge each text once, whatever K there are. The next run asks again for what is unscored.

        Args:
            spans: Each head's texts. Those of the main K are one question, the others a second one.
            labeled: Each head's label; heads without one are not judged.
            store: The stages that keep the answers.

        Returns:
            A row of the table judgments per head, judge, and text.
        """
        questions = {
            (head, first): Question(str(head), label, texts)
            for head, label in sorted(labeled.items())
            for first, last in ((0, self.k), (self.k, None))
            if label is not None and (texts := tuple(span.text for span in spans[head][first:last]))
        }
        sent = [[question.head_key, question.label, list(question.texts)] for question in questions.values()]
        inputs = {"questions": digest(sent), "judges": self.panel.manifest_entry(), **self._tags}
        return self._answers(store, "judgments", inputs, partial(self._judge, questions))

    def _judge(self, questions: Mapping[tuple[Head, int], Question]) -> Row:
        """Ask the judges; questions: by head and rank of the question's first text."""
        sent = list(questions.values())
        self.panel.spending.expect(self.panel.estimate_cost(sent))
        rows = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": text, "label": question.label}
            | asdict(judgment)
            for ((head, first), question), by_judge in zip(
                questions.items(), self.panel.judge(sent), strict=True
            )
            for judgments in by_judge
            for rank, (text, judgment) in enumerate(zip(question.texts, judgments, strict=True), first)
        ]
        return {"rows": rows, "spent": [{"role": "judge"} | spent for spent in self.panel.spent(sent)]}

    def _answers(
        self, store: Store, name: str, inputs: Mapping[str, Any], ask: Callable[[], Row]
    ) -> list[Row]:
        """Return the rows of a stage, and keep what they cost; LLMs get rows with a `cause` again."""

        def is_final(answers: Row) -> bool:
            return not (answers["spent"] and any(row["cause"] for row in answers["rows"]))

        answers: Row = store.once(name, inputs, ask, is_final=is_final).read()
        self.spent += answers["spent"]
        rows: list[Row] = answers["rows"]
        return rows

    def chance(self, store: Store) -> list[float]:
        """Return CCS@0 ... CCS@K of random texts if label and verdicts are by tags, else an empty list."""
        if not self.by_tags or not any(self.pool.concepts):
            return []
        inputs = {**self._tags, "k": self.k}
        shares: list[float] = store.once("chance", inputs, partial(chance_by_tags, self.pool, self.k)).read()
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
    for k in ks:
        for head, head_spans in spans.items():
            by_judge, label = [texts[:k] for texts in verdicts[head].values()], labels[head]
            # A head without a concept was not judged: its score is unknown, not zero.
            unanimous, majority = (score.ccs(by_judge, rule) if by_judge else None for rule in score.RULES)
            scores[k][head] = HeadScore(unanimous, label)
            rows.append(
                {"layer": head.layer, "head": head.head, "label": label, "k": k, "ccs": unanimous}
                | {"level": score.level(unanimous, k), "majority": majority}
                | {"share": min(1.0, sum(span.share for span in head_spans[:k])), "variance": variance[head]}
            )
    return scores, rows
