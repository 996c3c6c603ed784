"""One model from images and texts to tables: the stages in order, each done once for what it depends on."""

from __future__ import annotations

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
from ccs.analysis.ablation_sets import Plan, level_heads
from ccs.batch.compute import Settings, inputs, measure
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
    """InputError where the folder has the results of other weights, such as of a folder of the same name."""
    try:
        there = results.read_manifest(folder)["model"]
    except InputError:
        return
    if there["weights_hash"] != model.weights_hash:
        raise InputError(
            f"{folder} has tables of other weights named {there['name']!r} ({there['weights_hash'][:12]}, "
            f"not {model.weights_hash[:12]}): give another --out, or remove that folder."
        )


class Run:
    """One model's run, of which all processes make one and call `go`. `errors`: see `largest_errors`.
    `notices`: on plans that were left out. `warnings`: on figures to doubt. `alike`: prompts of each bias set
    that are one text to the model.
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
        named = partial(ccs.load, settings.clip)
        if settings.text_encoder:
            named = partial(ccs.extract_image_encoder, settings.models[0], settings.text_encoder)
        load = partial(named, device=processes.device, precision=settings.precision, layers=settings.layers)
        self.model = processes.together(load)
        self.model.tower.require(Intervention.parse(settings.ablate))
        if settings.ablate and not (inputs.names_of_sets(settings) or settings.galleries):
            raise InputError("--ablate requires a dataset; give --dataset, --gallery, or --suite.")
        self.pool = processes.once(lambda: load_pool(settings.texts or "photographs"))
        self.folder = settings.out / results.folder_name(self.model.name)
        processes.once(partial(_refuse_others, self.folder, self.model))
        self.store = Store(settings.out / results.STAGES / self.folder.name, processes, bar)
        self.judging = Judging(settings, self.store, self.pool, spending)
        self.images, self.sets, self.absent = sets(replace(settings, models=()))
        self.embedder = Embedder(self.model, self.store, settings)
        self.tables: dict[str, list[Row]] = {}
        self.errors: dict[str, float] = {}
        self.chance: list[float] = []
        self.notices: list[str] = []
        self.warnings: list[str] = []
        self.alike: dict[str, list[list[str]]] = {}
        self._hosts: dict[str, tuple[EvaluationSet, np.ndarray | None]] = {}

    def go(self) -> None:
        """Do what is not done yet. Raises InputError."""
        model, images = self.model, self.images
        about = {"weights": model.weights_hash, "images": images.fingerprint, "heads": str(model.heads)}
        self.errors = self.store.json("checks", about, lambda: largest_errors(model, images.images))
        moments = self.embedder.moments(images)
        spans, variance = self._spans(moments)
        labeled = self.judging.labels(spans)
        for cause, n in self.judging.unlabeled.items():
            self.notices.append(
                f"The labeler named no concept for {count(n, 'head')}, a later run asks again: {cause}"
            )
        self.tables["labels"] = [
            {"layer": head.layer, "head": head.head, "label": self.judging.normal[head], "given": given}
            | {"labeler": self.judging.labeler["name"]}
            for head, given in sorted(labeled.items())
        ]
        judged = self.tables["judgments"] = self.judging.judgments(spans, labeled)
        self.chance = self.judging.chance(self.settings.k)
        scores, rows = score_heads(spans, labeled, judged, variance, self.settings.all_ks)
        self.tables["scores"] = rows
        high = level_heads(scores[self.settings.k], self.settings.k)["high"]
        both = {head: (labeled[head], self.judging.normal[head]) for head in high}
        self.tables["ccr"] = score.ccr_rows(both, sorted({head.layer for head in labeled}))
        if not self.sets:
            return
        self.warnings += filter(
            None, (ablation_sets.too_many_unscored(scores[k], k) for k in self.settings.all_ks)
        )
        plans = make_plans(model, self.settings, scores, variance, self.notices.append)
        asked = {data.name: plans.on(data, self.settings) for data in self.sets}
        offs = {name: list(dict.fromkeys(plan.off for plan in some)) for name, some in asked.items()}
        self._hosts = inputs.hosts(self.sets, offs)
        for place, data in enumerate(self.sets):
            self._measure(data, asked[data.name], self.sets[place + 1 :])
        measured = [row for table in ("pruning", "bias") for row in self.tables.get(table, [])]
        if rows := measure.head_effects(measured):
            self.tables["heads"] = rows

    def parts(self) -> dict[str, float]:
        """How long the parts of the run that take time are, in images whose moments are collected."""
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
        """The texts of each head, and the variance of its contribution."""
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

        about = {"moments": moments_stage.key, "texts": texts_stage.key, "k": k}
        read = [(Head.parse(name), *rest) for name, *rest in self.store.json("spans", about, choose)]
        spans = {head: tuple(Span(*span) for span in chosen) for head, _, chosen in read}
        self.tables["spans"] = [
            {"layer": head.layer, "head": head.head, "rank": rank, "text": span.text}
            | {"concept": self.pool.concept_of(span.text), "share": span.share}
            for head, chosen in spans.items()
            for rank, span in enumerate(chosen)
        ]
        return spans, {head: variance for head, variance, _ in read}

    def _measure(self, data: EvaluationSet, plans: Sequence[Plan], later: Sequence[EvaluationSet]) -> None:
        """Add a set's figures to the tables. later: the sets that come after it."""
        settings, (host, rows) = self.settings, self._hosts[data.name]
        offs = list(dict.fromkeys(plan.off for plan in plans))
        about = {
            "schema": schema.VERSION,
            "embeddings": digest(self.embedder.plans_inputs(data, offs)),
            "plans": [[plan.name, plan.seed, str(plan.off)] for plan in plans],
            "question": inputs.question(data),
            "seed": settings.seed,
            "as_published": settings.as_published,
            "draws": [measure.DRAWS, bias.DRAWS],
        }
        stage = self.store.stage(f"measure/{data.name}", about)
        if not stage.done:
            embedded = self.embedder.plans(host, offs)
            stage.begin()
            with self.store.bar(desc=f"figures/{data.name}", total=len(plans)) as bar:
                found = self._figures(data, plans, embedded, offs, rows)
                self.processes.once(lambda: stage.write_json(found))
                bar.update(len(plans))
            stage.finish()
            size = sum(path.stat().st_size for path in embedded.paths.values())
            if size > KEPT_BYTES and not any(self._hosts[other.name][0] is host for other in later):
                embedded.discard()
        found = stage.read_json()
        self.tables.setdefault(found["table"], []).extend(found["rows"])
        whole = found["rows"][0]
        if isinstance(data, ClassificationSet) and (
            said := near_chance(whole["value"], whole["low"], len(data.classes))
        ):
            self.warnings.append(f"{data.name}: {said}")
        self.alike[data.name] = found["alike"]
        if "moved" in found:
            name = f"mean MaxSkew in {settings.precision}"
            self.errors[name] = max(found["moved"], self.errors.get(name, 0.0))

    def _figures(
        self,
        data: EvaluationSet,
        plans: Sequence[Plan],
        embedded: Stage,
        offs: Sequence[HeadSet],
        rows: np.ndarray | None,
    ) -> dict[str, Any]:
        """The figures of every plan, each process's share by itself. offs: the sets of heads in the stage.
        rows: the images in it (default: all).
        """
        mine = measure.shares(plans, self.processes.size)[self.processes.rank]
        order = list(dict.fromkeys(plan.off for plan in mine))
        texts = measure.embed_texts(self.model, data)
        alike = ranking.alike(data.occupations, texts) if isinstance(data, BiasSet) else []
        scaled = self.embedder.scaled_as_published(data)
        names = ["plans"] + ["published"] * scaled
        ours, *other = [PlanReader(embedded, offs, order, name, rows) for name in names]
        table, found = self.processes.together(
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
        made = measure.joined(self.processes.gather(found), plans)
        made += measure.over_sets(made, table)
        figures = {"table": table, "rows": made, "alike": alike}
        if self.settings.precision == "fp32" or not isinstance(data, BiasSet) or len(data.images) > SAMPLED:
            return figures
        # How far another precision moves mean MaxSkew, on a sample: with no and with the high heads off.
        some = [plan.off for plan in plans if plan.name in ("none", "high")]
        exact = self.embedder.in_float32().plans(data, some, "float32")
        ours, theirs = PlanReader(embedded, offs, some, rows=rows), PlanReader(exact, some, some)
        pairs = ((ours(off), theirs(off)) for off in some)
        return figures | {"moved": self.processes.once(lambda: measure.moved(texts, data, pairs))}


SAMPLED = 20_000
"""Images at most of a set that is embedded in both precisions: FairFace has 10,954."""
SINGLE_HEADS = {"world/subjects", "world/colors", "world/occupations", "world/faces", "world/counterfactuals"}
"""Drawn sets on which every head is switched off alone, and all random sets are: most of a set's cost."""
FURTHER_K_SETS = {
    *("cifar10", "cifar10-jpeg", "cifar100", "cifar100-joined"),
    *("world/subjects", "world/colors"),
}
"""Sets with plans at further K: those of the study's table 3, and two drawn ones in their place."""
FURTHER_KINDS = ("high", "low", "random")
"""Plans at a further K: what the study prints (high), and what to hold it against."""
FEW_SETS = 20
"""Random sets at most at a further K, and on drawn sets that are not among SINGLE_HEADS."""


@dataclass(frozen=True)
class Plans:
    """`main`: of every set, `none` first. `random`: random sets of each kind. `further`: at further K, random
    ones too. `singles`: each head alone.
    """

    main: tuple[Plan, ...]
    random: tuple[Plan, ...]
    further: tuple[Plan, ...]
    singles: tuple[Plan, ...]

    def on(self, data: EvaluationSet, settings: Settings) -> list[Plan]:
        """The plans measured on a set. A set that was asked for by name has those at further K too."""
        more, whole = data.name in FURTHER_K_SETS or data.name in settings.datasets, _singles_on(data)
        few = [plan for plan in self.random if plan.name == "random"][:FEW_SETS]
        return [
            *self.main,
            *(self.random if whole and not isinstance(data, RetrievalSet) else few),
            *(self.further if more else ()),
            *(self.singles if whole else ()),
        ]


def _singles_on(data: EvaluationSet | DatasetRecord) -> bool:
    """True if each head is switched off alone on a set; not for retrieval, where no such effect is shown."""
    known = not data.name.startswith("world/") or data.name in SINGLE_HEADS
    return known and not isinstance(data, RetrievalSet)


def n_plans(data: EvaluationSet | DatasetRecord, settings: Settings, heads: int) -> int:
    """About how many plans will be measured on a set, before the scores are known that make them."""
    whole, random = _singles_on(data), settings.random_sets or FEW_SETS
    return 10 + 20 * (settings.suite == "paper") + (heads + 3 * random if whole else min(random, FEW_SETS))


def make_plans(
    model: Model,
    settings: Settings,
    scores: Mapping[int, Mapping[Head, HeadScore]],
    variance: Mapping[Head, float],
    notice: Callable[[str], None],
) -> Plans:
    """All plans of a model, from its heads' scores at each K and variances; `notice`: of those left out."""
    made: dict[int, list[Plan]] = {}
    sets = settings.random_sets or FEW_SETS
    for k in settings.all_ks:
        main = k == settings.k
        kinds: Collection[str] = set(ablation_sets.KINDS) - {"single"} if main else FURTHER_KINDS
        if sentence := ablation_sets.too_many_unscored(scores[k], k):
            notice(sentence)
            kinds = ("none",)
        made[k] = ablation_sets.plans(
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
    further = [plan for k in settings.all_ks[1:] for plan in made[k][1:]]  # each begins with `none`
    main_plans = [plan for plan in made[settings.k] if plan.kind != "random"]
    chosen = Intervention.parse(settings.ablate)
    own = [Plan("chosen", None, chosen, "named by --ablate")] if chosen else []
    return Plans(
        (*main_plans, *own, *ablation_sets.of_the_study(model.name)),
        tuple(plan for plan in made[settings.k] if plan.kind == "random"),
        tuple(further),
        tuple(ablation_sets.singles(model.heads)),
    )
