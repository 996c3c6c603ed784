"""The public API and MCP tools: read-only functions of models, heads, images as base64, and galleries.

Gradio reads the parameters' types at run time, so this module has no postponed annotations. Parameters are
texts, numbers, and lists of them only: nothing here can name a file or an address. Each function returns the
rows of a table, as a list of objects.
"""

import base64
import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, cast

import gradio as gr
import pandas as pd
from fastapi import Request
from fastapi.responses import HTMLResponse
from gradio.context import LocalContext
from pydantic import ConfigDict, Field, StringConstraints, ValidationError, validate_call

import ccs
from ccs.analysis.inputs import embed_occupations, set_question
from ccs.app.html import render
from ccs.app.jobs import keep_quiet
from ccs.app.services.galleries import world
from ccs.app.services.model_cache import describe_kind
from ccs.app.services.uploads import read_images
from ccs.app.session import App
from ccs.app.state import describe_problem, parse_ablation
from ccs.app.views.query import top
from ccs.data import BiasSet
from ccs.errors import InputError
from ccs.heads import TEXT, Head, HeadSet
from ccs.model.handle import ModelHandle

TOY = "organism"  # the model of calls that name none
MAX_QUEUED = 16  # calls
MAX_UNREAD = 256  # answers, kept until they are fetched: up to 0.2 MB each, and Gradio would keep 2,000
FUNCTIONS = dict.fromkeys(("list_models", "head_scores", "describe_head"), 4)
FUNCTIONS |= dict.fromkeys(("find_heads", "classify", "rank_people", "measure_bias"), 1)
"""The public functions. So many calls of all with this number run at a time; those with 1 run a model."""

Name = Annotated[str, StringConstraints(max_length=200)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Heads = Annotated[str, StringConstraints(max_length=12_000)]
EncodedImage = Annotated[str, StringConstraints(max_length=2**20 * 4 // 3 + 100)]  # 1 MB
EncodedImages = Annotated[list[EncodedImage], Field(min_length=1, max_length=8)]
Classes = Annotated[list[Text], Field(min_length=1, max_length=50)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=20)]
Top = Annotated[int, Field(ge=1, le=100)]
Rows = list[dict[str, Any]]


class Api:
    """The functions, for the models and galleries of an app.

    Each function raises InputError for a name, text, or image that it can't use. Their docstrings have no
    section Raises: Gradio builds the schema of the tools from them, and would take it for part of Returns.

    Args:
        app: The app.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    def list_models(self) -> Rows:
        """List the models whose heads can be inspected and ablated.

        Returns:
            Per model: its name (model), its kind (toy model or CLIP), and the number of its scored heads.
        """
        heads = {name: len(self.app.records(name).heads) for name in self.app.models}
        return [{"model": name, "kind": describe_kind(name), "scored_heads": heads[name]} for name in heads]

    def head_scores(self, model: Name = TOY) -> Rows:
        """List the scored attention heads of a model with their concept and Concept Consistency Score (CCS).

        Args:
            model: A name from list_models.

        Returns:
            Per head: its name (L5.H0 is layer 5, head 0), the concept that its texts share, the number of
            texts that fit (ccs), of k texts, the level, and the share of its variance that they explain.
        """
        records = self.app.records(self.app.require_model(model)).heads.values()
        columns = ("concept", "ccs", "k", "level", "share")
        return [{"head": str(r.head)} | {name: getattr(r, name) for name in columns} for r in records]

    def describe_head(self, model: Name = TOY, head: Name = "L7.H4") -> Rows:
        """List the texts that describe what a head encodes, by TEXTSPAN, with the judges' verdicts.

        Args:
            model: A name from list_models.
            head: A name from head_scores, such as L7.H4.

        Returns:
            Per text: its rank, the share of the head's variance that it explains, and each judge's verdict.
        """
        record = self.app.records(self.app.require_model(model)).head(Head.parse(head))
        if not record.texts:
            raise InputError(f"{model} has no scored head {record.head}.")
        rows = [{"rank": rank, "text": t.text, "share": t.share} for rank, t in enumerate(record.texts, 1)]
        verdicts = [{verdict.judge: verdict.word for verdict in text.verdicts} for text in record.texts]
        return [{**row, "verdicts": words} for row, words in zip(rows, verdicts, strict=True)]

    def find_heads(self, text: Text, model: Name = TOY) -> Rows:
        """Rank a model's heads by how strongly they encode a text, strongest first.

        Args:
            text: A text such as "a red background".
            model: A name from list_models.

        Returns:
            Per head: the text's rank among a pool of texts (1: none explains the head better), the share of
            the head's variance along it, and whether the head encodes it by this measure.
        """
        (handle, _), images = self._open(model), self.app.galleries.find(world(model).pictures, keep_quiet)
        key = ("find", handle.weights_hash, text)
        table = self.app.cache.get(key, lambda: ccs.find_heads(handle.load(), text, images).rows)
        return _rows(table[["head", "rank", "share", "encodes"]])

    def classify(
        self,
        images: EncodedImages,
        classes: Classes,
        template: Name = "a photo of a {}",
        ablate: Heads = "",
        model: Name = TOY,
    ) -> Rows:
        """Classify images zero-shot, before and after attention heads are ablated.

        Args:
            images: 1 to 8 images of at most 1 MB, as base64 text or data: URIs. Addresses are not fetched.
            classes: The names of the classes.
            template: The prompt, with {} where the class goes.
            ablate: Heads to turn off, such as "L5.H0 L6.H1", or to scale, such as "L5.H0=0.3"; "" for none.
            model: A name from list_models.

        Returns:
            Per image and class (label): the probability with all heads on (before) and after the ablation.
        """
        handle, heads = self._open(model, ablate)
        try:
            files = [base64.b64decode(i.partition(";base64,")[2] or i, validate=True) for i in images]
        except ValueError:
            raise InputError("An image isn't base64 text or a data: URI. Addresses aren't opened.") from None
        uploads, problems = read_images([(data, f"Image {n}") for n, data in enumerate(files, 1)])
        if problems:
            raise InputError(" ".join(problems))
        pixels = [image.pixels for image in uploads]
        table = ccs.classify(handle.load(), pixels, classes, template, ablate=heads)
        return _rows(table.rows.rename(columns={"class": "label"}))

    def rank_people(
        self, occupation: Text, gallery: Name = "", ablate: Heads = "", top_k: Top = 20, model: Name = TOY
    ) -> Rows:
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
        handle, heads = self._open(model, ablate)
        people = set_question(self._gallery(model, gallery), [occupation])
        embeddings = self.app.galleries.images(people.name).embed(handle, heads)
        prompt = embed_occupations(handle.load(), people, heads.of_encoder(TEXT))[0]
        image = top(embeddings, prompt, min(top_k, len(embeddings)))
        groups = pd.DataFrame(people.groups).iloc[image].astype(str).to_dict("records")
        columns = {"image": image, "groups": groups, "cosine": embeddings[image] @ prompt}
        return _rows(pd.DataFrame(columns, range(1, len(image) + 1)).rename_axis("rank").reset_index())

    def measure_bias(
        self,
        occupations: Texts,
        gallery: Name = "",
        attribute: Name = "",
        ablate: Heads = "",
        model: Name = TOY,
    ) -> Rows:
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
        (handle, heads), people = self._open(model, ablate), self._gallery(model, gallery)
        attribute = attribute or next(iter(people.groups))
        return _rows(ccs.bias(handle.load(), people, occupations, attribute=attribute, ablate=heads).rows)

    def _open(self, model: str, ablate: str = "") -> tuple[ModelHandle, HeadSet]:
        heads = self.app.require_heads(self.app.require_model(model), parse_ablation(ablate))
        return self.app.model_cache.get(model), heads

    def _gallery(self, model: str, name: str) -> BiasSet:
        return self.app.galleries.people(name or self.app.galleries.names(model)[0], keep_quiet)


def _rows(table: pd.DataFrame) -> Rows:
    """Return a table's rows as JSON values, with null for missing numbers."""
    return cast(Rows, json.loads(table.to_json(orient="records", double_precision=15)))


def _checked(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """Return the function with strict type checks. The caller gets its errors as sentences.

    Args:
        function: The function.
        calls: Gets the caller's address while the function runs.
    """
    strict, signature = validate_call(config=ConfigDict(strict=True))(function), inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        request = LocalContext.request.get()
        calls.append(client := request.request.scope["client"][0] if request and request.request else "")
        try:
            return strict(**signature.bind_partial(*args, **kwargs).arguments)
        except (ValidationError, InputError) as error:
            reason = str(error) if isinstance(error, InputError) else describe_problem(error)
            raise gr.Error(reason[:2000], print_exception=False) from None
        finally:
            calls.remove(client)

    return call


def add_to(server: gr.Server, app: App, calls: list[str]) -> None:
    """Register the functions as API endpoints and MCP tools of their names.

    Args:
        server: The server that gets the endpoints.
        app: The models and galleries to answer from.
        calls: Gets the addresses whose calls run a model.
    """
    functions = Api(app)
    for name, at_once in FUNCTIONS.items():
        function = _checked(getattr(functions, name), calls if at_once == 1 else [])
        server.api(function, name=name, concurrency_limit=at_once, concurrency_id=str(at_once))


async def describe_api(request: Request) -> HTMLResponse:
    """Answer with the page "Use via API", made from the schema that Gradio's clients read."""
    info = request.app.get_blocks().get_api_info()
    root = str(request.base_url)
    return HTMLResponse(render("api.html", root=root, endpoints=info["named_endpoints"], functions=FUNCTIONS))
