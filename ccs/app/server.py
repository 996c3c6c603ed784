"""The server: the page's routes on `gradio.Server`, next to the API and MCP of `api`."""

import json
import logging
import secrets
import time
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from gradio.context import LocalContext
from starlette.concurrency import run_in_threadpool

from ccs.app import api, page
from ccs.app.controls import apply_form, open_screen, parse_query
from ccs.app.guard import Guard
from ccs.app.html import render
from ccs.app.jobs import UNWATCHED_SECONDS, Job, Jobs, Work
from ccs.app.routes import ROUTES
from ccs.app.session import App, Screen, Session, Sessions
from ccs.app.views import VIEWS
from ccs.errors import InputError

log = logging.getLogger(__name__)

OPEN_SECONDS, CLICK_SECONDS, POLL_SECONDS = 0.05, 1.5, 2.0  # that each waits for work to be done


class Pages:
    """The page's routes.

    Args:
        app: The app.
    """

    def __init__(self, app: App) -> None:
        self.app, self.sessions, self.jobs = app, Sessions(), Jobs()

    async def open(self, request: Request) -> Response:
        """Answer with the whole page, of a new visitor."""
        key, session = secrets.token_urlsafe(16), Session(request.scope["client"][0])

        def work(job: Job) -> dict[str, str]:
            job.tell(0.0, "Opening this page")
            return page.work(open_screen(self.app, session, dict(request.query_params)), job)

        await self._start(request, key, session, work).finished(OPEN_SECONDS)
        regions = page.fragment(session.jobs, {}, whole=True)
        return HTMLResponse(render("page.html", key=key, regions=regions))

    async def click(self, request: Request, path: str) -> Response:
        """Apply a form to the screen that it was sent from, and answer with what changed or why nothing did.

        Args:
            request: The request.
            path: The form's path.
        """
        async with request.form(max_fields=100) as form:
            files = [file for file in form.getlist("files") if getattr(file, "filename", "")]
            fields: dict[str, Any] = {"page": "", "at": "", **form, "files": files}
            key = str(fields["page"])
            if (session := self.sessions.find(key)) is None:
                key, session = secrets.token_urlsafe(16), Session(request.scope["client"][0])
            screen = await run_in_threadpool(open_screen, self.app, session, parse_query(str(fields["at"])))
            before, analysis, session.notices = screen.state, None, ()
            try:
                analysis = await run_in_threadpool(apply_form, screen, path, fields)
            except InputError as error:
                session.notify(str(error))
            except Exception:
                log.exception("a form failed")
                session.notify("That didn't work; the error was logged.")
        session.jobs = {kind: job for kind, job in session.jobs.items() if not job.stopped}
        if analysis is not None:
            self._start(request, key, session, analysis, "analysis")
        same = (before.tab, before.model) == (screen.state.tab, screen.state.model)
        work = partial(page.work, screen, fresh=not same)
        await self._start(request, key, session, work).finished(CLICK_SECONDS)
        return _answer(request, session, **{"x-address": f"?{screen.state.query()}", "x-page": key})

    def _start(self, request: Request, key: str, session: Session, work: Work, kind: str = "view") -> Job:
        """Start work for a page in place of its last work of the kind."""
        LocalContext.request.set(gr.Request(request))  # its thread asks ZeroGPU in the visitor's name
        if kind in session.jobs:
            session.jobs[kind].stopped = True
        session.jobs[kind] = job = Job(session.client, work, kind)
        self.sessions.keep(key, session)
        self.jobs.start(job)
        return job

    async def watch(self, request: Request) -> Response:
        """Answer with the new results of a page's work, as soon as they are there. A POST cancels it."""
        fields = request.query_params if request.method == "GET" else await request.form()
        if (session := self.sessions.find(str(fields.get("page")))) is None:
            raise InputError("Nothing is under way.")
        self.jobs.start_waiting()
        running = [job for job in session.jobs.values() if not job.done]
        for job in running:
            job.last_poll, job.stopped = time.monotonic(), job.stopped or request.method == "POST"
        if running:
            await running[0].finished(POLL_SECONDS if running[0].kind == "analysis" else 0.25)
        return _answer(request, session)

    def program(self, request: Request) -> Response:
        """Answer with a program that prints what a screen shows."""
        screen = self._screen(request)
        return PlainTextResponse(VIEWS[screen.state.tab].program(screen))

    async def save_figure(self, request: Request) -> Response:
        """Answer with a figure of a screen as CSV. Its values wait their turn unless they are kept."""
        screen = await run_in_threadpool(self._screen, request)
        name = request.query_params.get("figure", "")
        LocalContext.request.set(gr.Request(request))
        self.jobs.start(job := Job(screen.session.client, partial(page.csv, screen, name), "csv"))
        await job.finished(UNWATCHED_SECONDS)
        job.stopped = True
        if name not in job.regions:
            raise InputError("This figure can't be computed now.")
        return Response(job.regions[name], media_type="text/csv")

    def _screen(self, request: Request) -> Screen:
        """Return the screen that an address names, of the visitor whose page it also names."""
        query = dict(request.query_params)
        session = self.sessions.find(query.pop("page", "")) or Session(request.scope["client"][0])
        return open_screen(self.app, session, query)

    def tables(self, key: str) -> Response:
        """Answer with tables that were computed here, zipped."""
        return FileResponse(self.app.analyses.archive(key))


def _answer(request: Request, session: Session, **headers: str) -> Response:
    """Answer with the regions that differ from the browser's."""
    have = parse_query(request.headers.get("x-have", ""))
    return HTMLResponse(page.fragment(session.jobs, have), headers=headers)


async def refuse(_: Request, error: Exception) -> Response:
    """Answer with the sentence of an InputError.

    Args:
        _: The request.
        error: The error.
    """
    return PlainTextResponse(str(error), 404)


def make_server(app: App) -> gr.Server:
    """Return the server of an app: its page, API, and MCP behind the request filter.

    Gradio's own routes come after these, at its launch.
    """
    server = gr.Server(title="CLIP heads", docs_url=None, redoc_url=None, openapi_url=None)
    server.add_exception_handler(InputError, refuse)
    server.add_middleware(Guard, forms=[*ROUTES, "cancel"], functions=[*api.FUNCTIONS])
    pages = Pages(app)
    server.state.jobs = pages.jobs
    server.api_route("/", methods=["GET", "HEAD"])(pages.open)
    server.get("/api")(api.describe_api)
    server.add_route("/work", pages.watch)
    server.add_route("/cancel", pages.watch, ["POST"])
    server.get("/program")(pages.program)
    server.get("/figure.csv")(pages.save_figure)
    server.get("/tables/{key}.zip")(pages.tables)
    server.mount("/assets", StaticFiles(directory=Path(__file__).parent / "static"))
    for path in ROUTES:
        server.add_route(f"/{path}", partial(pages.click, path=path), ["POST"])
    api.add_to(server, app, pages.jobs.calls)
    return server


def launch(server: gr.Server, host: str | None, port: int | None) -> str:
    """Start to serve in the background.

    Args:
        server: The server from `make_server`.
        host: The address to serve at.
        port: The port, by default the first free one from 7860.

    Returns:
        The address of the page.
    """
    # It asks only itself, over HTTP, so it needs no certificates.
    unused = ("share", "ssr_mode", "pwa", "enable_monitoring", "_frontend", "ssl_verify")
    off: Any = dict.fromkeys(unused, False)
    on: Any = dict.fromkeys(("mcp_server", "quiet", "prevent_thread_lock"), True)
    _, url, _ = server.launch(server_name=host, server_port=port, num_workers=0, **off, **on)
    blocks = server.get_blocks()
    blocks._queue.max_size = api.MAX_QUEUED
    blocks._queue.pending_messages_per_session.max_size = api.MAX_UNREAD
    blocks._queue.ANALYTICS_MAX_EVENTS = api.MAX_QUEUED  # Gradio makes a table of them after each call
    blocks.server.config.timeout_keep_alive = 75  # seconds; clients and proxies reuse a connection for less
    blocks.server.config.timeout_graceful_shutdown = 1  # else a stop waits for open streams
    mcp: Any = blocks.mcp_server_obj

    def to_json(outputs: list[Any], _: str) -> list[Any]:
        """Write results as JSON. Gradio would write Python literals, and open files that they name.

        Args:
            outputs: The results of a call.
            _: The server's address, which isn't needed.

        Returns:
            A text for each result.
        """
        return [mcp.types.TextContent(type="text", text=json.dumps(output)) for output in outputs]

    mcp.postprocess_output_data = to_json
    return str(url)
