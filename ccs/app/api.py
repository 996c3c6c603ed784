"""The public API and MCP tools: read-only functions of models, heads, images as base64, and galleries.

Gradio reads the parameters' types at run time, so this module has no postponed annotations. Parameters are
texts, numbers, and lists of them only: nothing here can name a file or an address.
"""

import base64
import binascii
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, TypedDict

import gradio as gr
import pandas as pd
from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import ConfigDict, Field, StringConstraints, ValidationError, validate_call

import ccs
from ccs.app.html import render
from ccs.app.services.cache import Memory, result
from ccs.app.services.galleries import world
from ccs.app.services.model_cache import PHOTO, saw_drawings_only
from ccs.app.services.uploads import read_images
from ccs.app.session import App, Screen, Session
from ccs.app.state import State, parse_ablation
from ccs.app.views.query import BiasQuery, top
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.model.model import Model

WAITING = 16  # calls in line
IMAGE_BYTES, IMAGES, CLASSES, OCCUPATIONS, TOP = 2**20, 8, 50, 20, 100
HEAVY = ("find_heads", "classify", "rank_people", "measure_bias")
FUNCTIONS = ("list_models", "head_scores", "describe_head", *HEAVY)

Name = Annotated[str, StringConstraints(max_length=200)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Heads = Annotated[str, StringConstraints(max_length=12_000)]
Image = Annotated[str, StringConstraints(max_length=IMAGE_BYTES * 4 // 3 + 100)]


class ModelRow(TypedDict):
    model: str
    kind: str
    scored_heads: int


class HeadRow(TypedDict):
    head: str
    concept: str
    ccs: int | None
    texts: int
    level: str
    share_of_variance: float | None


class TextRow(TypedDict):
    rank: int
    text: str
    share_of_variance: float
    verdicts: dict[str, str]


class FoundRow(TypedDict):
    head: str
    rank: int
    share: float
    encodes: bool


class ClassRow(TypedDict):
    image: int
    label: str
    before: float
    after: float


class PersonRow(TypedDict):
    rank: int
    image: int
    groups: dict[str, str]
    cosine: float


BiasRow = dict[str, str | float | None]


class Api:
    """The functions, for the models and galleries of an app."""

    def __init__(self, app: App) -> None:
        self.app = app

    def list_models(self) -> list[ModelRow]:
        """List the models whose heads can be inspected and ablated.

        Returns:
            Per model: its name, whether it is a toy model or a real CLIP, and the number of its scored heads.
        """
        kinds = {name: "toy model, drawings" for name in self.app.models if saw_drawings_only(name)}
        kinds[PHOTO] = "toy model, photographs"
        return [
            ModelRow(model=name, kind=kinds.get(name, "CLIP"), scored_heads=len(self.app.records(name).heads))
            for name in self.app.models
        ]

    def head_scores(self, model: Name = "organism") -> list[HeadRow]:
        """List the scored attention heads of a model with their concept and Concept Consistency Score (CCS).

        Args:
            model: A name from list_models.

        Returns:
            Per head: its name (L5.H0 is layer 5, head 0), the concept that its texts share, the number of
            texts that fit (CCS), of all texts, the level, and the share of its variance that they explain.
        """
        records = self.app.records(self.app.require_model(model)).heads
        return [
            HeadRow(
                head=str(head),
                concept=record.concept,
                ccs=record.ccs,
                texts=record.k,
                level=record.level,
                share_of_variance=record.share,
            )
            for head, record in records.items()
        ]

    def describe_head(self, model: Name = "organism", head: Name = "L7.H4") -> list[TextRow]:
        """List the texts that describe what a head encodes, by TEXTSPAN, with the judges' verdicts.

        Args:
            model: A name from list_models.
            head: A name from head_scores, such as L7.H4.

        Returns:
            Per text: its rank, the share of the head's variance that it explains, and each judge's verdict.
        """
        records, known = self.app.records(self.app.require_model(model)), Head.parse(head)
        if known not in records.heads:
            raise InputError(f"{model} has no scored head {known}.")
        return [
            TextRow(
                rank=rank,
                text=text.text,
                share_of_variance=text.share,
                verdicts={verdict.judge: verdict.word for verdict in text.verdicts},
            )
            for rank, text in enumerate(records.head(known).texts, 1)
        ]

    def find_heads(self, text: Text, model: Name = "organism") -> list[FoundRow]:
        """Rank a model's heads by how strongly they encode a text, strongest first.

        Args:
            text: A text such as "a red background".
            model: A name from list_models.

        Returns:
            Per head: the text's rank among a pool of texts (1: none explains the head better), the share of
            the head's variance along it, and whether the head encodes it by this measure.
        """
        loaded, galleries = self._model(model), self.app.galleries
        name = world(model).pictures
        for _ in galleries.fetched(name):
            pass
        images = galleries.find(name)
        key = ("find", loaded.weights_hash, text)
        table = self.app.cache.get(key, lambda: ccs.find_heads(loaded, text, images).rows)
        columns = zip(table["head"], table["rank"], table["share"], table["encodes"], strict=True)
        return [FoundRow(head=str(h), rank=int(r), share=float(s), encodes=bool(a)) for h, r, s, a in columns]

    def classify(
        self,
        images: Annotated[list[Image], Field(min_length=1, max_length=IMAGES)],
        classes: Annotated[list[Text], Field(min_length=1, max_length=CLASSES)],
        template: Name = "a photo of a {}",
        ablate: Heads = "",
        model: Name = "organism",
    ) -> list[ClassRow]:
        """Classify images zero-shot, before and after attention heads are ablated.

        Args:
            images: 1 to 8 images of at most 1 MB, as base64 text or data: URIs. Addresses are not fetched.
            classes: The names of the classes.
            template: The prompt, with {} where the class goes.
            ablate: Heads to turn off, such as "L5.H0 L6.H1", or to scale, such as "L5.H0=0.3"; "" for none.
            model: A name from list_models.

        Returns:
            Per image and class: the probability with all heads on (before) and after the ablation.
        """
        loaded, heads = self._model(model), self._heads(model, ablate)
        pixels, problems = read_images([(_decode(image), f"Image {n}") for n, image in enumerate(images, 1)])
        if problems:
            raise InputError(" ".join(problems))
        table = ccs.classify(loaded, [image.pixels for image in pixels], classes, template, ablate=heads)
        columns = zip(*(table.rows[name] for name in ("image", "class", "before", "after")), strict=True)
        return [
            ClassRow(image=int(i), label=str(label), before=float(before), after=float(after))
            for i, label, before, after in columns
        ]

    def rank_people(
        self,
        occupation: Text,
        gallery: Name = "",
        ablate: Heads = "",
        top_k: Annotated[int, Field(ge=1, le=TOP)] = 20,
        model: Name = "organism",
    ) -> list[PersonRow]:
        """Rank the people of a gallery by how well they fit an occupation.

        Args:
            occupation: Any text, such as "judge".
            gallery: A gallery of the app, "" for the model's default.
            ablate: Heads to turn off, such as "L5.H0 L6.H1"; "" for none.
            top_k: The number of people to list.
            model: A name from list_models.

        Returns:
            Per person, best first: the rank, the image's number in the gallery, the groups, and the cosine.
        """
        loaded, heads = self._model(model), self._heads(model, ablate)
        screen, query = self._query(model, gallery, (occupation,), "", heads)
        name = query.gallery.name
        images = result(self.app.galleries.pruned(loaded, name, heads))
        prompt = query.texts(screen.session, loaded, heads)[0]
        rows = top(images, prompt, min(top_k, len(images)))
        groups = query.gallery.groups
        return [
            PersonRow(
                rank=rank,
                image=int(i),
                groups={attribute: str(values[i]) for attribute, values in groups.items()},
                cosine=float(images[i] @ prompt),
            )
            for rank, i in enumerate(rows, 1)
        ]

    def measure_bias(
        self,
        occupations: Annotated[list[Text], Field(min_length=1, max_length=OCCUPATIONS)],
        gallery: Name = "",
        attribute: Name = "",
        ablate: Heads = "",
        model: Name = "organism",
    ) -> list[BiasRow]:
        """Measure the bias of a model's rankings of people for occupations, before and after ablation.

        Args:
            occupations: 1 to 20 texts, such as ["judge", "nurse"].
            gallery: A gallery of the app, "" for the model's default.
            attribute: The attribute of people, such as "gender"; "" for the gallery's main one.
            ablate: Heads to turn off, such as "L5.H0 L6.H1"; "" for none.
            model: A name from list_models.

        Returns:
            The rows of ccs.bias: per occupation and metric (MaxSkew, NDKL, AUC, logit gap), and their mean,
            the values with intervals and the level of random rankings.
        """
        loaded, heads = self._model(model), self._heads(model, ablate)
        _, query = self._query(model, gallery, tuple(occupations), attribute, heads)
        people = self.app.galleries.get(query.gallery.name)
        table = ccs.bias(loaded, people, list(occupations), attribute=query.attribute, ablate=heads)
        rows = table.rows.astype(object).where(pd.notna(table.rows), None)
        return [
            {str(name): float(v) if isinstance(v, float) else v for name, v in row.items()}
            for row in rows.to_dict("records")
        ]

    def _model(self, name: str) -> Model:
        return self.app.model_cache.get(self.app.require_model(name))

    def _heads(self, model: str, text: str) -> HeadSet:
        heads = parse_ablation(text)
        if unknown := heads - self.app.heads(model):
            raise InputError(f"{HeadSet(unknown)} isn't in {model}.")
        return heads

    def _query(
        self, model: str, gallery: str, occupations: Sequence[str], attribute: str, heads: HeadSet
    ) -> tuple[Screen, BiasQuery]:
        names = self.app.galleries.names(model)
        name = gallery or names[0]
        if name not in names:
            raise InputError(f"There is no gallery {name[:60]!r}; choose from {', '.join(names)}.")
        for _ in self.app.galleries.fetched(name):
            pass
        state = State(
            model=model, gallery=name, occupations=tuple(occupations), attribute=attribute, ablate=heads
        )
        query = BiasQuery.of(self.app, state)
        if attribute and attribute != query.attribute:
            known = ", ".join(query.gallery.groups)
            raise InputError(f"{name} has no attribute {attribute[:60]!r}; choose from {known}.")
        return Screen(self.app, Session(Memory(self.app.cache)), state), query


def _decode(image: str) -> bytes:
    try:
        return base64.b64decode(image.partition(";base64,")[2] or image, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(
            "An image isn't base64 text or a data: URI. Addresses and paths aren't opened."
        ) from None


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with strict types, whose errors the caller sees as sentences."""
    strict = validate_call(config=ConfigDict(strict=True))(function)
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return strict(**dict(zip(names, args, strict=False)), **kwargs)
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
            raise gr.Error("; ".join(problems), print_exception=False) from None
        except InputError as error:
            raise gr.Error(str(error)[:2000], print_exception=False) from None

    return call


def add_to(server: gr.Server, app: App) -> None:
    """Register the functions as API endpoints and MCP tools of their names."""
    api = Api(app)
    for name in FUNCTIONS:
        heavy = name in HEAVY
        server.api(
            _checked(getattr(api, name)),
            name=name,
            concurrency_limit=1 if heavy else 4,
            concurrency_id="model" if heavy else "tables",
        )


async def describe(request: Request) -> HTMLResponse:
    """Answer with the page "Use via API", made from the schema that Gradio's clients read."""
    info = request.app.get_blocks().get_api_info()
    root = str(request.base_url)
    return HTMLResponse(render("api.html", root=root, endpoints=info["named_endpoints"], functions=FUNCTIONS))
