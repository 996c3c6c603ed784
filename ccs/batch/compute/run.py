"""The run of one model, from images and texts to tables; each stage is done once for its inputs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

import ccs
from ccs import results
from ccs.analysis.ablation_sets import AblationSet, level_heads, too_many_unscored
from ccs.analysis.result import warn_if_small
from ccs.batch.compute import Precision, Settings, inputs, measure
from ccs.batch.compute.ablations import choose_ablations, count_ablations, make_ablations
from ccs.batch.compute.embed import Embedder, largest_errors, read_embeddings
from ccs.batch.compute.inputs import EvaluationSet, Host, Opened
from ccs.batch.compute.judge import Judging, score_heads
from ccs.batch.compute.measure import Evaluation, Row, unique_heads
from ccs.batch.compute.stages import Processes, Store
from ccs.batch.pages import count
from ccs.data import BiasSet, ClassificationSet, RetrievalSet
from ccs.errors import InputError
from ccs.heads import Head, Intervention
from ccs.judges.prices import Spending
from ccs.metrics import bias, ranking
from ccs.metrics.accuracy import near_chance
from ccs.progress import Bar, BarMaker
from ccs.results import schema
from ccs.texts import labels, score
from ccs.texts.pools import Pool, load_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

KEPT_BYTES = 1e9
"""A dataset's embeddings are kept for later runs if they have at most this many bytes."""


class Run:
    """One model's run. All processes make one and call `go`.

    Attributes:
        tables: The rows of each table.
        errors: The largest errors of fast paths (`largest_errors`).
        precision: The changes that half precision makes on a sample, if it was checked.
        chance: CCS@0 ... CCS@k of random texts, if scored by tags.
        notices: Ablation sets that were left out, and why.
        warnings: Results to doubt, and why.
        alike: The prompts of each bias set that the model encodes identically.
    """

    def __init__(
        self,
        settings: Settings,
        processes: Processes,
        opened: Opened,
        spending: Spending | None = None,
        bar: BarMaker = Bar,
    ) -> None:
        """Load the model.

        Args:
            settings: The settings for this model.
            processes: The processes of the run.
            opened: The images and sets.
            spending: A budget, which other models' runs may share.
            bar: Makes the bars of progress.

        Raises:
            InputError: The model can't be used, or the folder has the results of another one.
        """
        self.processes, self.started = processes, monotonic()
        self.images, self.sets, self.absent = opened
        source = partial(ccs.load, settings.clip)
        if settings.text_encoder:
            source = partial(ccs.extract_image_encoder, settings.models[0], settings.text_encoder)
        automatic: Precision = "bf16" if processes.device.startswith("cuda") else "fp32"
        precision: Precision = automatic if settings.precision == "auto" else settings.precision
        load = partial(source, device=processes.device, precision=precision, layers=settings.layers)
        self.model = processes.together(load)
        self.model.encoder.require_heads(Intervention.parse(settings.ablate))
        if settings.ablate and not self.sets:
            raise InputError("--ablate requires a dataset; give --dataset, --gallery, or --suite.")
        self.folder = settings.out / results.folder_name(self.model.name)
        self.pool = processes.once(partial(self._open_pool, settings))
        self.store = Store(settings.out / results.STAGES / self.folder.name, processes, bar)
        self.judging = Judging(settings, self.pool, spending)
        self.precision: dict[str, Any] = {}
        self.settings = replace(settings, precision=self._checked_precision(settings, precision))
        self.embedder = Embedder(self.model, self.store, self.settings)
        self.tables: dict[str, list[Row]] = {}
        self.errors: dict[str, float] = {}
        self.chance: list[float] = []
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self.alike: dict[str, list[list[str]]] = {}

    def _open_pool(self, settings: Settings) -> Pool:
        """Load the pool. Raises InputError if --out has the results of other weights of this name."""
        ours, theirs = self.model.weights_hash, ""
        with suppress(InputError):  # no results
            theirs = results.read_manifest(self.folder)["model"]["weights_hash"]
        if theirs not in ("", ours):
            raise InputError(
                f"{self.folder} has tables of other weights named {self.model.name!r} ({theirs[:12]}, not "
                f"{ours[:12]}): give another --out, or remove that folder."
            )
        return load_pool(settings.texts or "photographs")

    def _checked_precision(self, settings: Settings, precision: Precision) -> Precision:
        """Measure what a half precision changes; an automatic one that changes much is not used."""
        if precision == "fp32":
            return precision
        stage_inputs = {"model": self.model.fingerprint, "precision": precision}
        stage_inputs |= {data.name: data.fingerprint for data in self.sets}
        work = partial(measure.changes_by_precision, self.model, self.sets)
        changes = self.store.once("precision", stage_inputs, work).read()
        self.precision = {"checked": precision, "images": measure.SAMPLE, "changes": changes}
        too_large = not changes or any(changes[name] > measure.LARGEST_CHANGES[name] for name in changes)
        if settings.precision == "auto" and too_large:
            self.model = self.model.in_float32()
            return "fp32"
        return precision

    def go(self) -> None:
        """Do the stages that are not done yet. Raises InputError."""
        images, model = self.images, self.model
        checked = {"model": model.fingerprint, "images": images.fingerprint, "heads": str(model.heads)}
        work = partial(largest_errors, model.in_float32(), images.images)
        self.errors = self.store.once("checks", checked, work).read()
        spans, variance = self._choose_texts()
        if doubt := warn_if_small("head statistics", len(images.images)):
            self.warnings.append(f"{images.name}: {doubt}")
        scores = self._score(spans, variance)
        if not self.sets:
            return
        ablations = make_ablations(model, self.settings, scores, variance, self.notices.append)
        chosen = {data.name: choose_ablations(ablations, data, self.settings) for data in self.sets}
        hosts = inputs.hosts(self.sets, {name: unique_heads(of_set) for name, of_set in chosen.items()})
        for place, data in enumerate(self.sets):
            host, _ = hosts[data.name]
            embedded_later = any(hosts[later.name][0] is host for later in self.sets[place + 1 :])
            self._measure(data, chosen[data.name], hosts[data.name], embedded_later)
        rows_of_heads = [row for table in ("pruning", "bias") for row in self.tables.get(table, [])]
        if effects := measure.head_effects(rows_of_heads):
            self.tables["heads"] = effects

    def part_lengths(self) -> dict[str, float]:
        """Estimate how long the parts of the run take, in images whose statistics are collected."""
        answers = 1.0 if self.judging.by_tags else 20.0 * len(self.model.heads)
        lengths = {"statistics": float(len(self.images.images)), "texts": len(self.pool.texts) / 20}
        lengths |= {"labels": answers, "judgments": answers}
        for data in self.sets:
            ablations = sum(count_ablations(data, self.settings, len(self.model.heads)))
            length = len(inputs.items(data)) * (1 + ablations / 9)
            lengths |= {f"embed/{data.name}": length, f"measure/{data.name}": length / 4}
        return lengths

    # Stages ---------------------------------------------------------------------------------------------

    def _choose_texts(self) -> tuple[dict[Head, tuple[Span, ...]], dict[Head, float]]:
        """Return the texts of each head, and the variance of its contribution."""
        model, pool = self.model, self.pool
        statistics = self.embedder.statistics(self.images)
        texts = self.store.once(
            "texts",
            {"model": model.fingerprint, "texts": pool.fingerprint},
            lambda: {"texts": model.embed_texts(pool.texts)},
            len(pool.texts),
        )
        k = self.settings.all_ks[-1]  # a greedy choice: the texts of every smaller K come first

        def choose() -> list[Any]:
            moments = self.embedder.read_statistics(statistics)
            spans_by_head = ccs.textspan(moments, pool.texts, texts.read()["texts"], k)
            variance = dict(zip(moments.heads, moments.variance().tolist(), strict=True))
            return [
                [str(head), variance[head], [[span.text, span.share, span.index] for span in chosen]]
                for head, chosen in spans_by_head.items()
            ]

        stage_inputs = {"moments": statistics.key, "texts": texts.key, "k": k}
        rows = self.store.once("spans", stage_inputs, choose).read()
        spans = {Head.parse(name): tuple(Span(*span) for span in chosen) for name, _, chosen in rows}
        self.tables["spans"] = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": span.text}
            | {"concept": self.pool.concept_of(span.text), "share": span.share}
            for head, chosen in spans.items()
            for rank, span in enumerate(chosen)
        ]
        return spans, {Head.parse(name): variance for name, variance, _ in rows}

    def _score(
        self, spans: Mapping[Head, tuple[Span, ...]], variance: Mapping[Head, float]
    ) -> dict[int, dict[Head, HeadScore]]:
        """Label, judge, and score the heads; return their scores at each K."""
        judging, k, once = self.judging, self.settings.k, self.processes.once
        with self.store.working("labels"):
            labeled = once(partial(judging.label, spans))
        causes = Counter(answer.cause for answer in labeled.values() if answer.cause)
        for cause, n in causes.items():
            self.notices.append(f"No label for {count(n, 'head')}: a later run asks again: {cause}")
        self.tables["labels"] = [
            {"layer": head.layer, "head": head.head, "label": answer.label, "given": answer.wording}
            | {"labeler": judging.labeler["name"]}
            for head, answer in sorted(labeled.items())
        ]
        wordings = {head: answer.wording for head, answer in labeled.items()}
        with self.store.working("judgments"):
            judged = self.tables["judgments"] = once(partial(judging.judge, spans, wordings))
        if judging.by_tags and any(self.pool.concepts):
            of_texts = {"tags": self.pool.fingerprint, "tree": labels.tree().parents, "k": k}
            work = partial(labels.chance_by_tags, self.pool, k)
            self.chance = self.store.once("chance", of_texts, work).read()
        scores, self.tables["scores"] = score_heads(spans, wordings, judged, variance, self.settings.all_ks)
        spellings = {
            head: (labeled[head].wording, labeled[head].label) for head in level_heads(scores[k], k)["high"]
        }
        self.tables["ccr"] = score.ccr_rows(spellings, sorted({head.layer for head in labeled}))
        if self.sets:
            self.warnings += filter(None, (too_many_unscored(of_k, k) for k, of_k in scores.items()))
        return scores

    def _measure(
        self, data: EvaluationSet, ablations: Sequence[AblationSet], host: Host, embedded_later: bool
    ) -> None:
        """Measure a dataset in all processes, and add its rows to the tables.

        Args:
            data: The set.
            ablations: Its ablation sets.
            host: The set whose embeddings it uses; see `inputs.hosts`.
            embedded_later: True if a later set uses the host's embeddings.
        """
        head_sets, settings, processes = unique_heads(ablations), self.settings, self.processes
        stage_inputs = self.embedder.inputs(data) | {
            "schema": schema.VERSION,
            "precision": settings.precision,
            "ablations": [[ablation.name, ablation.seed, str(ablation.heads)] for ablation in ablations],
            "question": inputs.question(data),
            "seed": settings.seed,
            "as_published": settings.as_published,
            "draws": [measure.DRAWS, bias.DRAWS],
        }
        stage = self.store.stage(f"measure/{data.name}", stage_inputs)
        if stage.missing:
            embedded = [self.embedder.embed_set(host[0], head_sets)]
            if isinstance(data, RetrievalSet) and settings.as_published and not self.model.is_openai_scaled:
                embedded.append(self.embedder.embed_set(host[0], head_sets, as_published=True))
            readers = [read_embeddings(of_images, head_sets, host[1]) for of_images in embedded]
            with stage.working(len(ablations)):
                evaluation = Evaluation(
                    data=data,
                    ablations=measure.share_of(ablations, processes.rank, processes.size),
                    texts=measure.embed_texts(self.model, data),
                    embeddings=readers[0],
                    published=readers[-1] if settings.as_published else None,
                    logit_scale=self.model.logit_scale,
                    seed=settings.seed,
                )
                shares = processes.gather(processes.together(evaluation.rows))
                joined = measure.join_shares(shares, ablations)
                joined += measure.over_sets(joined, measure.table_of(data))
                alike = ranking.alike(data.occupations, evaluation.texts) if isinstance(data, BiasSet) else ()
                processes.once(lambda: stage.write({"rows": joined, "alike": alike}))
            for of_images in () if embedded_later else embedded:
                processes.once(partial(of_images.discard, KEPT_BYTES))
        measured = stage.read()
        self.tables.setdefault(measure.table_of(data), []).extend(measured["rows"])
        self.alike[data.name] = measured["alike"]
        self.warnings += [f"{data.name}: {doubt}" for doubt in _doubts(data, measured["rows"][0]) if doubt]


def _doubts(data: EvaluationSet, baseline: Row) -> Iterator[str | None]:
    """Warn of a small set, and of an accuracy near chance. baseline: its first row."""
    if isinstance(data, ClassificationSet):
        yield near_chance(baseline["value"], baseline["low"], len(data.classes))
        yield warn_if_small("accuracy", len(data.images))
    elif isinstance(data, BiasSet):
        sizes = [np.unique(cells, return_counts=True)[1].min() for cells in data.groups.values()]
        yield warn_if_small("bias", min(sizes))
