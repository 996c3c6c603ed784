"""Labels, judgments, and scores of heads, by tags or by LLMs, which only the first process asks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ccs.batch.compute import Settings
from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges import JudgeSettings
from ccs.judges.panel import Labeled, Labeler, Panel
from ccs.judges.prices import CostEstimate, Spending
from ccs.judges.question import Question
from ccs.results import STAGES
from ccs.texts import score
from ccs.texts.labels import TAGS, score_by_tags
from ccs.texts.pools import REFERENCE, REFERENCE_LONGEST, Pool, find_reference, load_pool, make_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Row = dict[str, Any]
Spans = Mapping[Head, Sequence[Span]]


def known_pool(settings: Settings) -> Pool:
    """Return the pool of texts, or placeholders as long as its longest text if `reference` isn't here."""
    if settings.texts == REFERENCE and find_reference() is None:
        texts = [(str(i).zfill(REFERENCE_LONGEST), None) for i in range(settings.all_ks[-1])]
        return make_pool(REFERENCE, texts)
    return load_pool(settings.texts or "photographs")


class Judging:
    """Labels and judgments of one model's heads.

    Nothing is kept here: LLMs' answers are in their cache, and tags are read in no time.

    Attributes:
        labeler: The labeler, for the manifest.
        judges: The judges, for the manifest.
        spent: The cost of labels and judgments per LLM (see `Caller.spent`), for the manifest.
    """

    def __init__(self, settings: Settings, pool: Pool, spending: Spending | None = None) -> None:
        """Make the judges and, if an LLM labels, the labeler.

        Args:
            settings: The run's settings.
            pool: The texts, with the tags for the judge `tags`.
            spending: A budget, which other models' runs may share (default: a budget by the settings).

        Raises:
            InputError: A judge isn't known, most texts lack the tags that `tags` needs, or the pool has fewer
                texts than a head gets.
        """
        self.pool, self.ks = pool, settings.all_ks
        members = {settings.labeler, *settings.judges.split(",")}
        tagged = sum(concept is not None for concept in pool.concepts)
        unscored = members == {TAGS} and not tagged  # heads get their texts, but no score
        if TAGS in members and 2 * tagged < len(pool) and not unscored:
            raise InputError(
                f"{tagged} of the {len(pool)} texts of {pool.name} have a concept, by which `{TAGS}` labels "
                "and judges: give a CSV with a column `concept` as --texts, or LLMs for both."
            )
        if len(pool) < self.ks[-1]:
            raise InputError(f"The pool {pool.name} has {len(pool)} texts, fewer than --k {self.ks[-1]}.")
        limits = JudgeSettings(
            cache=settings.out / STAGES / "judges.sqlite",
            budget=settings.budget,
            prices=settings.prices,
            max_tokens=settings.max_tokens,
        )
        spending = spending or Spending("estimated" if settings.budget is None else settings.budget)
        self.panel = Panel(settings.judges, limits, tags=pool, spending=spending)
        self.judges: list[Row] = self.panel.manifest_entries()
        self.labeler: Row = {"name": TAGS, "stand_in": True}
        self.llm_labeler: Labeler | None = None
        if settings.labeler != TAGS:
            self.llm_labeler = Labeler(settings.labeler, limits, spending=spending)
            self.labeler = self.llm_labeler.manifest_entry()
        self.spent: list[Row] = []

    @property
    def by_tags(self) -> bool:
        """True if labels and verdicts are by `tags` only."""
        return all(member["name"] == TAGS for member in (self.labeler, *self.judges))

    def require_keys(self) -> None:
        """Raise InputError if a key or package is missing, unless answers are stored that may be enough."""
        for callers in filter(None, (self.panel, self.llm_labeler)):
            if not callers.settings.cache.exists():
                callers.require_keys()

    def estimate(self, heads: int) -> list[CostEstimate]:
        """Estimate the cost of each LLM for this number of heads, if all have the pool's longest texts."""
        texts, k = tuple(sorted(self.pool.texts, key=len)[-self.ks[-1] :]), self.ks[0]
        labels = self.llm_labeler.estimate_cost({Head(0, 0): texts[:k]}) if self.llm_labeler else ()
        judged = self.panel.estimate_cost([Question("Backgrounds", part) for part in (texts[:k], texts[k:])])
        return [CostEstimate.total(part.judge, [part] * heads) for part in (*labels, *judged)]

    def label(self, spans: Spans) -> dict[Head, Labeled]:
        """Label the heads, each by its texts of the main K only: a head has one concept."""
        spans = {head: chosen[: self.ks[0]] for head, chosen in spans.items()}
        if self.llm_labeler is None:
            scores = score_by_tags(spans, self.pool)
            return {head: Labeled(scored.label, scored.label) for head, scored in scores.items()}
        texts = {head: [span.text for span in chosen] for head, chosen in spans.items()}
        self.panel.spending.expect(self.llm_labeler.estimate_cost(texts))
        labeled = self.llm_labeler.label(texts)
        self.spent += [{"role": "labeler"} | spent for spent in self.llm_labeler.spent(texts)]
        return labeled

    def judge(self, spans: Spans, labels: Mapping[Head, str | None]) -> list[Row]:
        """Judge each text once, whatever K there are.

        Args:
            spans: Each head's texts. Those of the main K are one question, the others a second one.
            labels: Each head's label in the labeler's words; heads without one are not judged.

        Returns:
            A row of the table judgments per head, judge, and text.
        """
        k = self.ks[0]
        questions = {
            (head, first): Question(label, texts)
            for head, label in sorted(labels.items())
            for first, last in ((0, k), (k, None))
            if label is not None and (texts := tuple(span.text for span in spans[head][first:last]))
        }
        sent = list(questions.values())
        self.panel.spending.expect(self.panel.estimate_cost(sent))
        answers = zip(questions.items(), self.panel.judge(sent), strict=True)
        self.spent += [{"role": "judge"} | spent for spent in self.panel.spent(sent)]
        return [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": text, "label": question.label}
            | asdict(judgment)
            for ((head, first), question), by_judge in answers
            for judgments in by_judge
            for rank, (text, judgment) in enumerate(zip(question.texts, judgments, strict=True), first)
        ]


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
