"""The server: the page's routes on `gradio.Server`, next to the API and MCP of `api`."""

from __future__ import annotations

import contextvars
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import gradio as gr
from fastapi import Form as FormFields
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from gradio.context import LocalContext
from starlette.concurrency import run_in_threadpool

from ccs.app import api, page
from ccs.app.controls import new_key
from ccs.app.guard import Guard, client_of
from ccs.app.html import render
from ccs.app.jobs import Job, Jobs, Work
from ccs.app.links import open_screen, parse_query
from ccs.app.routes import ROUTES, Form, Route
from ccs.app.session import App, Screen, Session, Sessions
from ccs.app.views import VIEWS
from ccs.errors import InputError

log = logging.getLogger(__name__)

TITLE = "CLIP heads"
PURPOSE = "See what an attention head of CLIP encodes, turn it off, and measure what changes."
FIRST, SOON, POLL = 0.4, 1.5, 2.0  # seconds that a page, a click, and a poll wait for work to be done
CANCELED = "Canceled. What is shown may not match what is chosen; any click computes it."


class Pages:
    """The page's routes.

    Args:
        app: What visitors share.
    """

    def __init__(self, app: App) -> None:
        self.app, self.sessions, self.jobs = app, Sessions(), Jobs()

    def add_to(self, server: gr.Server) -> None:
        """Register the routes. Gradio's own come after them, at its launch."""
        server.api_route("/", methods=["GET", "HEAD"])(self.open)
        server.get("/api")(api.describe)
        server.get("/work")(self.poll)
        server.get("/program")(self.program)
        server.get("/tables/{name}")(self.tables)
        server.post("/cancel")(self.cancel)
        server.mount("/assets", StaticFiles(directory=Path(__file__).parent / "static"))
        for route in ROUTES:
            server.post(f"/{route.path}")(self._endpoint(route))
        server.add_exception_handler(RequestValidationError, _refuse_fields)

    def _endpoint(self, route: Route) -> Callable[..., Any]:
        async def endpoint(request: Request, form: Any) -> Response:
            """Answer a form with what changed on its page.

            Args:
                request: The request.
                form: The filled-in form.
            """
            return await self.change(request, form, lambda screen: route.handle(screen, form))

        kind = "multipart/form-data" if "files" in route.form.model_fields else None
        fields: Any = Annotated[route.form, FormFields(media_type=kind) if kind else FormFields()]
        endpoint.__annotations__ = {"request": Request, "form": fields, "return": Response}
        return endpoint

    async def open(self, request: Request) -> Response:
        """Answer with the whole page. A visitor without JavaScript carries the page's key in the address."""
        query, client = dict(request.query_params), client_of(request.scope)
        key = query.pop("page", "")
        session = self.sessions.find(key, client) if key else None
        if session is None:
            key, session = new_key(), Session()
        screen = await run_in_threadpool(open_screen, self.app, session, query)
        job = self._start(request, key, screen, partial(page.work, screen))
        await job.finished(FIRST)
        address = screen.state.query()
        empty = dict.fromkeys(("top", "strip", "left", "main"), "")
        html = page.fragment({**empty, **job.regions, "status": page.status([job])}, {}, key, address)
        body = render(
            "page.html",
            title=TITLE,
            purpose=PURPOSE,
            tab=screen.state.tab,
            done=job.done,
            key=key,
            at=address,
            regions=html,
            again=f"?{address}&{urlencode({'page': key})}",
        )
        return HTMLResponse(body, headers={"cache-control": "no-store"})

    async def change(self, request: Request, form: Form, handle: Callable[[Screen], Any]) -> Response:
        """Apply a form to the screen that it was sent from, and answer with what changed.

        If the handler fails, the screen stays as it was, and a notice gives the reason.

        Args:
            request: The request.
            form: The filled-in form.
            handle: Function that changes the screen, and returns None or work to start.
        """
        key, screen = await run_in_threadpool(self._screen, form)
        before, session = screen.state, dict(vars(screen.session))
        analysis = None
        try:
            analysis = await run_in_threadpool(handle, screen)
        except Exception as error:
            screen.state = before
            vars(screen.session).update(session)
            if isinstance(error, InputError):
                screen.session.notify(str(error))
            else:
                log.exception("a form failed")
                screen.session.notify("That didn't work; the error was logged.")
        if analysis is not None:
            self._start(request, key, screen, analysis, "analysis")
        same = (before.tab, before.model) == (screen.state.tab, screen.state.model)
        job = self._start(request, key, screen, partial(page.work, screen, fresh=not same))
        await job.finished(SOON)
        return self._answer(request, key, screen.state.query(), job)

    def _screen(self, form: Form) -> tuple[str, Screen]:
        """Return the page's key, and the screen that a form was sent from."""
        key, session = form.page or new_key(), self.sessions.find(form.page) or Session()
        screen = open_screen(self.app, session, parse_query(form.at))
        session.notices = ()
        return key, screen

    def _start(self, request: Request, key: str, screen: Screen, work: Work, kind: str = "view") -> Job:
        client = client_of(request.scope)
        self.sessions.keep(key, client, screen.session)
        job = Job(key, kind, client, work, _visitor_context(request))
        try:
            self.jobs.start(job)
        except InputError as error:
            job.end.set()
            screen.session.notify(str(error))
        return job

    def _answer(self, request: Request, key: str, address: str, job: Job) -> Response:
        if "x-have" not in request.headers:
            return RedirectResponse(_root(request) + f"?{address}&{urlencode({'page': key})}", 303)
        html = {**job.regions, "status": page.status(self.jobs.latest_jobs(key))}
        body = page.fragment(html, parse_query(request.headers["x-have"]), key, address)
        headers = {"x-address": f"?{address}" if address else "?", "x-page": key, "cache-control": "no-store"}
        return HTMLResponse(body, headers=headers)

    async def poll(self, request: Request) -> Response:
        """Answer with the new results of a page's work, as soon as they are there."""
        key, address = request.query_params.get("page", ""), request.query_params.get("at", "")
        jobs = {job.kind: job for job in self.jobs.latest_jobs(key)}
        if "view" not in jobs:
            return PlainTextResponse("Nothing is under way.", 404)
        running = [job for job in jobs.values() if not job.done]
        if running:
            await running[0].finished(POLL if running[0].kind == "analysis" else 0.25)
        return self._answer(request, key, address.removeprefix("?"), jobs["view"])

    async def cancel(self, request: Request, form: Annotated[Form, FormFields()]) -> Response:
        """Stop a page's work.

        Args:
            request: The request.
            form: The form, with the page's key and address.
        """
        for job in self.jobs.latest_jobs(form.page):
            job.stopped = True
            await job.finished(5)
        key, screen = await run_in_threadpool(self._screen, form)
        screen.session.budget = None
        screen.session.notify(CANCELED)
        job = self._start(request, key, screen, lambda tell: page.canceled(screen))
        await job.finished(SOON)
        return self._answer(request, key, screen.state.query(), job)

    def program(self, request: Request) -> Response:
        """Answer with a program that prints what a screen shows."""
        query = dict(request.query_params)
        session = self.sessions.find(query.pop("page", "")) or Session()
        screen = open_screen(self.app, session, query)
        try:
            return PlainTextResponse(VIEWS[screen.state.tab].program(screen))
        except InputError as error:
            return PlainTextResponse(str(error), 422)

    def tables(self, name: str) -> Response:
        """Answer with tables that were computed here, zipped."""
        try:
            return FileResponse(self.app.analyses.archive(name.removesuffix(".zip")))
        except InputError as error:
            return PlainTextResponse(str(error), 404)


def _root(request: Request) -> str:
    """Return the address of the page relative to a form's."""
    depth = len(re.findall("/", request.scope["path"].removeprefix(request.scope.get("root_path") or ""))) - 1
    return "../" * depth or "./"


def _visitor_context(request: Request) -> contextvars.Context:
    """Return a context in which a thread of ours asks for a GPU in the visitor's name, as Gradio's do."""
    context = contextvars.copy_context()
    context.run(LocalContext.request.set, gr.Request(request))
    return context


async def _refuse_fields(request: Request, error: Any) -> Response:
    problems = "; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()[:5])
    return PlainTextResponse(f"A field of the form can't be used: {problems}", 422)


def make_server(app: App) -> gr.Server:
    """Return the server of an app: its page, API, and MCP behind the request filter."""
    server = gr.Server(title=TITLE, docs_url=None, redoc_url=None, openapi_url=None)
    forms = [*(route.path for route in ROUTES), "cancel"]
    server.add_middleware(Guard, forms=forms, functions=api.FUNCTIONS)
    Pages(app).add_to(server)
    api.add_to(server, app)
    return server


def launch(server: gr.Server, host: str | None, port: int | None) -> str:
    """Start to serve in the background.

    Args:
        server: From `make_server`.
        host: The address to serve at.
        port: The port, by default the first free one from 7860.

    Returns:
        The address of the page.
    """
    _, url, _ = server.launch(
        server_name=host,
        server_port=port,
        share=False,
        ssr_mode=False,
        pwa=False,
        enable_monitoring=False,
        mcp_server=True,
        quiet=True,
        prevent_thread_lock=True,
        num_workers=0,
        _frontend=False,
    )
    blocks = server.get_blocks()
    blocks._queue.max_size = api.WAITING
    blocks.server.config.timeout_graceful_shutdown = 1  # else a stop waits for open streams
    api.answer_in_json(blocks)
    return str(url)
