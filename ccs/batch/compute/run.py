"""One model from images and texts to tables: the stages in order, each done once for what it depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

import ccs
from ccs import results
from ccs.analysis import ablation_sets
from ccs.analysis.ablation_sets import AblationSet, level_heads
from ccs.analysis.sample_size import warn_if_small
from ccs.batch.compute import Precision, Settings, inputs, measure
from ccs.batch.compute.embed import Embedder, PlanReader, largest_errors
from ccs.batch.compute.inputs import EvaluationSet, Opened
from ccs.batch.compute.judge import Judging, score_heads
from ccs.batch.compute.stages import Processes, Stage, Store, digest
from ccs.batch.pages import count
from ccs.data import BiasSet, ClassificationSet, DatasetRecord, RetrievalSet
from ccs.errors import InputError
from ccs.heads import Head, HeadSet, Intervention
from ccs.judges.prices import Spending
from ccs.metrics import bias, ranking
from ccs.metrics.accuracy import near_chance
from ccs.model.model import Model
from ccs.progress import Bar, BarMaker
from ccs.results import schema
from ccs.texts import score
from ccs.texts.pools import load_pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Row = dict[str, Any]
KEPT_BYTES = 1e9
"""Largest embeddings of a dataset that a run keeps for the next one."""


def _refuse_others(folder: Path, model: Model) -> None:
    """Raise InputError if the folder has the results of other weights, as of a folder of the same name."""
    try:
        earlier = results.read_manifest(folder)["model"]
    except InputError:
        return
    if earlier["weights_hash"] != model.weights_hash:
        raise InputError(
            f"{folder} has tables of other weights named {earlier['name']!r} "
            f"({earlier['weights_hash'][:12]}, not {model.weights_hash[:12]}): give another --out, or remove "
            "that folder."
        )


class Run:
    """One model's run. All processes make one and call `go`.

    Attributes:
        tables: The rows of each table.
        errors: How exact fast paths are; see `largest_errors`.
        precision: What half precision changes on a sample, if it was checked.
        chance: CCS@0 ... CCS@k of random texts, if scored by tags.
        notices: Ablation sets that were left out, and why.
        warnings: Results to doubt, and why.
        alike: The prompts of each bias set that the model encodes identically.
    """

    def __init__(
        self,
        settings: Settings,
        processes: Processes,
        sets: Callable[[Settings], Opened],
        spending: Spending | None = None,
        bar: BarMaker = Bar,
    ) -> None:
        """Load the model and open its images and sets.

        Args:
            settings: The settings for this model.
            processes: The processes of the run.
            sets: Opens images and sets.
            spending: A budget, which other models' runs may share.
            bar: Makes the bars of progress.

        Raises:
            InputError: The model or its images can't be used.
        """
        self.settings, self.processes, self.started = settings, processes, monotonic()
        source = partial(ccs.load, settings.clip)
        if settings.text_encoder:
            source = partial(ccs.extract_image_encoder, settings.models[0], settings.text_encoder)
        automatic: Precision = "bf16" if processes.device.startswith("cuda") else "fp32"
        precision: Precision = automatic if settings.precision == "auto" else settings.precision
        load = partial(source, device=processes.device, precision=precision, layers=settings.layers)
        self.model = processes.together(load)
        self.model.encoder.require(Intervention.parse(settings.ablate))
        if settings.ablate and not (inputs.names_of_sets(settings) or settings.galleries):
            raise InputError("--ablate requires a dataset; give --dataset, --gallery, or --suite.")
        self.pool = processes.once(lambda: load_pool(settings.texts or "photographs"))
        self.folder = settings.out / results.folder_name(self.model.name)
        processes.once(partial(_refuse_others, self.folder, self.model))
        self.store = Store(settings.out / results.STAGES / self.folder.name, processes, bar)
        self.judging = Judging(settings, self.store, self.pool, spending)
        self.images, self.sets, self.absent = sets(replace(settings, models=()))
        self.precision: dict[str, Any] = {}
        if settings.precision == "auto":
            self._choose_precision(precision)
        self.embedder = Embedder(self.model, self.store, self.settings)
        self.tables: dict[str, list[Row]] = {}
        self.errors: dict[str, float] = {}
        self.chance: list[float] = []
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self.alike: dict[str, list[list[str]]] = {}
        self._hosts: dict[str, tuple[EvaluationSet, np.ndarray | None]] = {}

    def _choose_precision(self, precision: Precision) -> None:
        """Keep a half precision if it changes little on a sample, else use float32."""
        if precision != "fp32":
            stage_inputs = {"weights": self.model.weights_hash, "precision": precision}
            stage_inputs |= {data.name: data.fingerprint for data in self.sets}
            changes = self.store.json(
                "precision", stage_inputs, lambda: measure.changes_by_precision(self.model, self.sets)
            )
            self.precision = {"checked": precision, "images": measure.SAMPLE, "changes": changes}
            if not changes or any(changes[name] > measure.LARGEST_CHANGES[name] for name in changes):
                self.model = self.model.in_float32()
                precision = "fp32"
        self.settings = replace(self.settings, precision=precision)

    def _warn_if_small(self, result: str, name: str, n: int) -> None:
        if warning := warn_if_small(result, n):
            self.warnings.append(f"{name}: {warning}")

    def go(self) -> None:
        """Do the stages that are not done yet. Raises InputError."""
        model, images = self.model, self.images
        inputs_of_checks = {"weights": model.weights_hash, "images": images.fingerprint}
        inputs_of_checks |= {"heads": str(model.heads)}
        self.errors = self.store.json(
            "checks", inputs_of_checks, lambda: largest_errors(model.in_float32(), images.images)
        )
        moments = self.embedder.moments(images)
        self._warn_if_small("head statistics", images.name, len(images.images))
        spans, variance = self._spans(moments)
        labeled = self.judging.labels(spans)
        for cause, n in self.judging.unlabeled.items():
            self.notices.append(
                f"The labeler named no concept for {count(n, 'head')}, a later run asks again: {cause}"
            )
        self.tables["labels"] = [
            {"layer": head.layer, "head": head.head, "label": self.judging.normal[head], "given": label}
            | {"labeler": self.judging.labeler["name"]}
            for head, label in sorted(labeled.items())
        ]
        judged = self.tables["judgments"] = self.judging.judgments(spans, labeled)
        self.chance = self.judging.chance(self.settings.k)
        scores, rows = score_heads(spans, labeled, judged, variance, self.settings.all_ks)
        self.tables["scores"] = rows
        high = level_heads(scores[self.settings.k], self.settings.k)["high"]
        spellings = {head: (labeled[head], self.judging.normal[head]) for head in high}
        self.tables["ccr"] = score.ccr_rows(spellings, sorted({head.layer for head in labeled}))
        if not self.sets:
            return
        self.warnings += filter(
            None, (ablation_sets.too_many_unscored(scores[k], k) for k in self.settings.all_ks)
        )
        plans = make_plans(model, self.settings, scores, variance, self.notices.append)
        by_set = {data.name: plans.on(data, self.settings) for data in self.sets}
        offs = {name: list(dict.fromkeys(plan.heads for plan in of_set)) for name, of_set in by_set.items()}
        self._hosts = inputs.hosts(self.sets, offs)
        for place, data in enumerate(self.sets):
            self._measure(data, by_set[data.name], self.sets[place + 1 :])
        measured = [row for table in ("pruning", "bias") for row in self.tables.get(table, [])]
        if rows := measure.head_effects(measured):
            self.tables["heads"] = rows

    def parts(self) -> dict[str, float]:
        """Estimate how long the parts of the run take, in images whose statistics are collected."""
        lengths = {"moments": float(len(self.images.images)), "texts": len(self.pool.texts) / 20}
        if not self.judging.by_tags:
            lengths |= {"labels": 20.0 * len(self.model.heads), "judgments": 20.0 * len(self.model.heads)}
        plans = {data.name: n_plans(data, self.settings, len(self.model.heads)) for data in self.sets}
        hosts = inputs.hosts(self.sets, plans)
        for data in self.sets:
            n = sum(map(len, data.clips)) if isinstance(data, RetrievalSet) else len(data.images)
            time = n * (1 + plans[data.name] / 9)
            lengths |= {} if hosts[data.name][0] is not data else {f"embed/{data.name}": time}
            lengths[f"figures/{data.name}"] = time * (0.4 if isinstance(data, BiasSet) else 0.1)
        return lengths

    # Stages ---------------------------------------------------------------------------------------------

    def _spans(self, moments_stage: Stage) -> tuple[dict[Head, tuple[Span, ...]], dict[Head, float]]:
        """Return the texts of each head, and the variance of its contribution."""
        texts_stage = self.embedder.texts(self.pool)
        k = self.settings.all_ks[-1]  # a greedy choice: the texts of every smaller K come first

        def choose() -> list[Any]:
            moments = self.embedder.read_moments(moments_stage)
            spans_by_head = ccs.textspan(moments, self.pool.texts, texts_stage.read_rows("texts"), k)
            variance = dict(zip(moments.heads, moments.variance().tolist(), strict=True))
            return [
                [str(head), variance[head], [[span.text, span.share, span.index] for span in chosen]]
                for head, chosen in spans_by_head.items()
            ]

        stage_inputs = {"moments": moments_stage.key, "texts": texts_stage.key, "k": k}
        rows = self.store.json("spans", stage_inputs, choose)
        spans = {Head.parse(name): tuple(Span(*span) for span in chosen) for name, _, chosen in rows}
        self.tables["spans"] = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": span.text}
            | {"concept": self.pool.concept_of(span.text), "share": span.share}
            for head, chosen in spans.items()
            for rank, span in enumerate(chosen)
        ]
        return spans, {Head.parse(name): variance for name, variance, _ in rows}

    def _measure(
        self, data: EvaluationSet, plans: Sequence[AblationSet], later: Sequence[EvaluationSet]
    ) -> None:
        """Add a set's results to the tables. later: the sets that come after it."""
        settings, (host, rows) = self.settings, self._hosts[data.name]
        offs = list(dict.fromkeys(plan.heads for plan in plans))
        stage_inputs = {
            "schema": schema.VERSION,
            "embeddings": digest(self.embedder.plans_inputs(data, offs)),
            "plans": [[plan.name, plan.seed, str(plan.heads)] for plan in plans],
            "question": inputs.question(data),
            "seed": settings.seed,
            "as_published": settings.as_published,
            "draws": [measure.DRAWS, bias.DRAWS],
        }
        stage = self.store.stage(f"measure/{data.name}", stage_inputs)
        if not stage.done:
            embedded = self.embedder.plans(host, offs)
            stage.begin()
            with self.store.bar(desc=f"figures/{data.name}", total=len(plans)) as bar:
                results_of_set = self._results(data, plans, embedded, offs, rows)
                self.processes.once(lambda: stage.write_json(results_of_set))
                bar.update(len(plans))
            stage.finish()
            size = sum(path.stat().st_size for path in embedded.paths.values())
            if size > KEPT_BYTES and not any(self._hosts[other.name][0] is host for other in later):
                embedded.discard()
        measured = stage.read_json()
        self.tables.setdefault(measured["table"], []).extend(measured["rows"])
        baseline = measured["rows"][0]
        if isinstance(data, ClassificationSet) and (
            doubt := near_chance(baseline["value"], baseline["low"], len(data.classes))
        ):
            self.warnings.append(f"{data.name}: {doubt}")
        if isinstance(data, ClassificationSet):
            self._warn_if_small("accuracy", data.name, len(data.images))
        elif isinstance(data, BiasSet):
            groups = [size for cells in data.groups.values() for size in Counter(cells.tolist()).values()]
            self._warn_if_small("bias", data.name, min(groups))
        self.alike[data.name] = measured["alike"]
        if "moved" in measured:
            name = f"mean MaxSkew in {settings.precision}"
            self.errors[name] = max(measured["moved"], self.errors.get(name, 0.0))

    def _results(
        self,
        data: EvaluationSet,
        plans: Sequence[AblationSet],
        embedded: Stage,
        offs: Sequence[HeadSet],
        rows: np.ndarray | None,
    ) -> dict[str, Any]:
        """Measure all ablation sets, each process its share. offs: the stage's. rows: the images read."""
        mine = measure.shares(plans, self.processes.size)[self.processes.rank]
        order = list(dict.fromkeys(plan.heads for plan in mine))
        texts = measure.embed_texts(self.model, data)
        alike = ranking.alike(data.occupations, texts) if isinstance(data, BiasSet) else []
        scaled = self.embedder.scaled_as_published(data)
        names = ["plans"] + ["published"] * scaled
        ours, *other = [PlanReader(embedded, offs, order, name, rows) for name in names]
        table, own_rows = self.processes.together(
            lambda: measure.of_plans(
                texts,
                data,
                mine,
                ours,
                self.settings.seed,
                logit_scale=self.model.logit_scale,
                as_published=self.settings.as_published,
                published=other[0] if scaled else None,
            )
        )
        set_rows = measure.joined(self.processes.gather(own_rows), plans)
        set_rows += measure.over_sets(set_rows, table)
        measured = {"table": table, "rows": set_rows, "alike": alike}
        if self.settings.precision == "fp32" or not isinstance(data, BiasSet) or len(data.images) > SAMPLED:
            return measured
        # How far another precision moves mean MaxSkew, on a sample: with no and with the high heads ablated.
        compared = [plan.heads for plan in plans if plan.name in ("none", "high")]
        exact = self.embedder.in_float32().plans(data, compared, "float32")
        ours, theirs = PlanReader(embedded, offs, compared, rows=rows), PlanReader(exact, compared, compared)
        pairs = ((ours(off), theirs(off)) for off in compared)
        return measured | {"moved": self.processes.once(lambda: measure.moved(texts, data, pairs))}


SAMPLED = 20_000
"""Images at most of a set that is embedded in both precisions: FairFace has 10,954."""
SINGLE_HEADS = {"world/subjects", "world/colors", "world/occupations", "world/faces", "world/counterfactuals"}
"""Synthetic sets on which each head is ablated alone, and all random sets are: most of a set's cost."""
FURTHER_K_SETS = {
    *("cifar10", "cifar10-jpeg", "cifar100", "cifar100-joined"),
    *("world/subjects", "world/colors"),
}
"""Sets with ablation sets at further K: those of the paper's table 3, and two synthetic ones."""
FURTHER_KINDS = ("high", "low", "random")
"""Ablation sets at a further K: what the paper prints (high), and what to compare it with."""
FEW_SETS = 20
"""Random sets at most at a further K, and on synthetic sets that are not among SINGLE_HEADS."""


@dataclass(frozen=True)
class Plans:
    """Ablation sets of a model.

    Attributes:
        main: For all data, `none` first.
        random: Random sets of each kind.
        further: At further K, random ones too.
        singles: Each head alone.
    """

    main: tuple[AblationSet, ...]
    random: tuple[AblationSet, ...]
    further: tuple[AblationSet, ...]
    singles: tuple[AblationSet, ...]

    def on(self, data: EvaluationSet, settings: Settings) -> list[AblationSet]:
        """Choose the ablation sets that are measured on some data.

        Args:
            data: The evaluation set; one that the user names has ablation sets at further K, too.
            settings: The run's settings.
        """
        at_further_k = data.name in FURTHER_K_SETS or data.name in settings.datasets
        whole = _singles_on(data)
        few = [plan for plan in self.random if plan.name == "random"][:FEW_SETS]
        return [
            *self.main,
            *(self.random if whole and not isinstance(data, RetrievalSet) else few),
            *(self.further if at_further_k else ()),
            *(self.singles if whole else ()),
        ]


def _singles_on(data: EvaluationSet | DatasetRecord) -> bool:
    """Return True if each head is ablated alone on a set; not for retrieval, where no effect is expected."""
    known = not data.name.startswith("world/") or data.name in SINGLE_HEADS
    return known and not isinstance(data, RetrievalSet)


def n_plans(data: EvaluationSet | DatasetRecord, settings: Settings, heads: int) -> int:
    """Estimate how many ablation sets will be measured, before the scores are known that make them.

    Args:
        data: The evaluation set, or its record.
        settings: The run's settings.
        heads: The number of heads.
    """
    whole, random = _singles_on(data), settings.random_sets or FEW_SETS
    return 10 + 20 * (settings.suite == "paper") + (heads + 3 * random if whole else min(random, FEW_SETS))


def make_plans(
    model: Model,
    settings: Settings,
    scores: Mapping[int, Mapping[Head, HeadScore]],
    variance: Mapping[Head, float],
    notice: Callable[[str], None],
) -> Plans:
    """Make all ablation sets of a model.

    Args:
        model: The model.
        settings: The run's settings.
        scores: The heads' scores at each K.
        variance: The heads' variances.
        notice: Called with a sentence for sets that are left out.
    """
    by_k: dict[int, list[AblationSet]] = {}
    sets = settings.random_sets or FEW_SETS
    for k in settings.all_ks:
        main = k == settings.k
        kinds: Collection[str] = set(ablation_sets.KINDS) - {"single"} if main else FURTHER_KINDS
        if sentence := ablation_sets.too_many_unscored(scores[k], k):
            notice(sentence)
            kinds = ("none",)
        by_k[k] = ablation_sets.make_ablation_sets(
            scores[k],
            k,
            model.heads,
            settings.seed,
            sets if main else min(sets, FEW_SETS),
            kinds=kinds,
            variance=variance if main else None,
            at_k=None if main else k,
            notice=notice,
        )
    further = [plan for k in settings.all_ks[1:] for plan in by_k[k][1:]]  # each begins with `none`
    main_plans = [plan for plan in by_k[settings.k] if plan.kind != "random"]
    chosen = Intervention.parse(settings.ablate)
    custom = [AblationSet("chosen", None, chosen, "named by --ablate")] if chosen else []
    return Plans(
        (*main_plans, *custom, *ablation_sets.published_sets(model.name)),
        tuple(plan for plan in by_k[settings.k] if plan.kind == "random"),
        tuple(further),
        tuple(ablation_sets.single_head_sets(model.heads)),
    )
