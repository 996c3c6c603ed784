"""Local HTTP servers that speak the protocols of OpenAI, Anthropic and Google, to be asked by the real SDKs.

A server answers every question with `answer(user, schema)`; the acts queued in `acts` come first, one a
request. Batches are worked on until `end_batches()`.
"""

from __future__ import annotations

import contextlib
import email
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

Answer = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True)
class Act:
    """What a server does with one request.

    kind: "reply" (`text`, or the server's answer), "status" (with `status`, `headers`, `message`),
    "hang" (no reply), "cut" (half a reply, then the connection ends), "drip" (a reply that never ends),
    "garbage" (status 200, no JSON, of the content type `message`), "empty" (status 200, an empty JSON
    object), "refuse", "truncate" (half of the answer, marked as such by the protocol); in a batch also
    "expire" (no result). `before` is called when the request has arrived.
    """

    kind: str
    text: str | None = None
    status: int = 500
    message: str = "the server is at fault"
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] | None = None


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; `system`, `user` and `schema` are those of a question, else empty."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    at: float
    system: str = ""
    user: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)


def yes(user: str, schema: Mapping[str, Any]) -> str:
    """Answer every text with yes."""
    return verdicts(dict.fromkeys(schema["required"], True))


def verdicts(by_name: Mapping[str, bool]) -> str:
    return json.dumps({name: {"reason": f"It is {v}.", "verdict": v} for name, v in by_name.items()})


class LLMServer:
    """A server of one protocol, listening while the context is open."""

    kind: ClassVar[str]
    model: ClassVar[str]

    def __init__(self, answer: Answer = yes) -> None:
        self.answer = answer
        self.acts: deque[Act] = deque()
        self.batch_acts: deque[Act] = deque()  # for the items of batches, in order
        self.submit_acts: deque[Act] = deque()  # for requests that create a batch
        self.seen: list[Seen] = []
        self.batches: dict[str, dict[str, Any]] = {}
        self.faults: list[BaseException] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._lock = threading.Lock()
        self._released = threading.Event()

    def __enter__(self) -> LLMServer:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server._handle(self)

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                import sys

                error = sys.exc_info()[1]
                if not isinstance(error, ConnectionError):
                    server.faults.append(error)  # type: ignore[arg-type]

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        assert not self.faults, self.faults

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def base_url(self) -> str:
        return self.root

    @property
    def spec(self) -> str:
        """The judge of this server, as the command line names it."""
        return f"{self.kind}:{self.model}@{self.base_url}"

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.model}"

    @property
    def asked(self) -> list[Seen]:
        """The requests that were questions."""
        return [seen for seen in self.seen if seen.user]

    def end_batches(self) -> None:
        """Let every batch end with what its items get."""
        for batch in self.batches.values():
            batch["ended"] = True

    def end_hanging(self) -> None:
        """Let go of requests that hang."""
        self._released.set()

    # One request

    def _handle(self, http: BaseHTTPRequestHandler) -> None:
        raw = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        path = urlsplit(http.path).path
        headers = {name.lower(): value for name, value in http.headers.items()}
        body = self.upload(raw, headers) if "multipart" in headers.get("content-type", "") else None
        if body is None and raw:
            body = json.loads(raw)
        is_question = http.command == "POST" and self.is_question(path)
        system, user, schema = self.read(body) if is_question else ("", "", {})
        with self._lock:
            self.seen.append(Seen(http.command, path, headers, body, time.monotonic(), system, user, schema))
            queue = self.acts if is_question else deque()
            if http.command == "POST" and self.creates_batch(path):
                queue = self.submit_acts
            act = queue.popleft() if queue else Act("reply")
            self.in_flight += is_question
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if act.before is not None:
                act.before()
            self._act(http, act, path, body, user, schema)
        finally:
            with self._lock:
                self.in_flight -= is_question

    def _act(
        self, http: BaseHTTPRequestHandler, act: Act, path: str, body: Any, user: str, schema: Any
    ) -> None:
        if act.kind == "status":
            self._send(http, act.status, json.dumps(self.error(act.status, act.message)), act.headers)
        elif act.kind == "hang":
            self._released.wait(30)
            http.close_connection = True
        elif act.kind == "drip":
            http.send_response(200)
            http.send_header("Content-Type", "application/json")
            http.send_header("Content-Length", "1000000")
            http.end_headers()
            with contextlib.suppress(OSError):
                while not self._released.wait(0.02):
                    http.wfile.write(b" ")
                    http.wfile.flush()
            http.close_connection = True
        elif act.kind == "garbage":
            self._send(http, 200, "<html>not what was asked for", {"Content-Type": act.message})
        elif act.kind == "empty":
            self._send(http, 200, "{}")
        else:
            status, value = 200, None
            if user:
                value = self.reply(act, user, schema)
            else:
                status, value = self.other(http.command, path, body)
            text = value if isinstance(value, str) else json.dumps(value)
            if act.kind == "cut":
                half = text.encode()
                http.send_response(200)
                http.send_header("Content-Type", "application/json")
                http.send_header("Content-Length", str(len(half)))
                http.end_headers()
                http.wfile.write(half[: len(half) // 2])
                http.wfile.flush()
                http.connection.shutdown(socket.SHUT_RDWR)
                http.close_connection = True
            else:
                self._send(http, status, text)

    def _send(
        self, http: BaseHTTPRequestHandler, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        data = text.encode()
        http.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | dict(headers or {})).items():
            http.send_header(name, value)
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def reply(self, act: Act, user: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        if act.kind == "refuse":
            return self.refusal()
        text = self.answer(user, schema) if act.text is None else act.text
        if act.kind == "truncate":
            return self.success(text[: len(text) // 2], truncated=True)
        return self.success(text)

    def item(self, body: Any) -> tuple[Act, dict[str, Any]]:
        """Answer one item of a batch."""
        act = self.batch_acts.popleft() if self.batch_acts else Act("reply")
        _, user, schema = self.read(body)
        return act, self.reply(act, user, schema)

    # What a protocol fills in

    def upload(self, raw: bytes, headers: Mapping[str, str]) -> Any:
        raise NotImplementedError

    def is_question(self, path: str) -> bool:
        raise NotImplementedError

    def creates_batch(self, path: str) -> bool:
        return False

    def read(self, body: Any) -> tuple[str, str, Mapping[str, Any]]:
        raise NotImplementedError

    def success(self, text: str, truncated: bool = False) -> dict[str, Any]:
        raise NotImplementedError

    def refusal(self) -> dict[str, Any]:
        raise NotImplementedError

    def error(self, status: int, message: str) -> dict[str, Any]:
        raise NotImplementedError

    def other(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        return 404, self.error(404, f"no {path}")


class OpenAIServer(LLMServer):
    kind = "openai"
    model = "gpt-4o"

    def __init__(self, answer: Answer = yes) -> None:
        super().__init__(answer)
        self.files: dict[str, str] = {}

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def is_question(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def creates_batch(self, path: str) -> bool:
        return path == "/v1/batches"

    def read(self, body: Any) -> tuple[str, str, Mapping[str, Any]]:
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        form = body["response_format"]
        assert form["type"] == "json_schema"
        assert form["json_schema"]["strict"] is True
        return system["content"], user["content"], form["json_schema"]["schema"]

    def success(self, text: str, truncated: bool = False) -> dict[str, Any]:
        return self._completion({"content": text}, "length" if truncated else "stop")

    def refusal(self) -> dict[str, Any]:
        return self._completion({"content": None, "refusal": "I can't help with that."}, "stop")

    def _completion(self, message: Mapping[str, Any], finish: str) -> dict[str, Any]:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [choice],
            "usage": usage,
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "t", "code": None}}

    def upload(self, raw: bytes, headers: Mapping[str, str]) -> Any:
        form = email.message_from_bytes(f"Content-Type: {headers['content-type']}\n\n".encode() + raw)
        parts = {part.get_param("name", header="content-disposition"): part for part in form.get_payload()}  # type: ignore[union-attr]
        assert parts["purpose"].get_payload() == "batch"  # type: ignore[union-attr]
        return parts["file"].get_payload(decode=True).decode()  # type: ignore[union-attr]

    def other(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = path.removeprefix("/v1/").split("/")
        if (method, parts) == ("POST", ["files"]):
            name = f"file-{len(self.files)}"
            self.files[name] = body
            file = {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "f"}
            return 200, file | {"purpose": "batch", "status": "processed"}
        if (method, parts) == ("POST", ["batches"]):
            name = f"batch_{len(self.batches)}"
            self.batches[name] = {"body": body, "at": int(time.time())}
            return 200, self._batch(name)
        if (method, parts) == ("GET", ["batches"]):
            listed = [self._batch(name) for name in reversed(self.batches)]
            return 200, {"object": "list", "data": listed, "has_more": False}
        if method == "GET" and parts[0] == "batches" and parts[1] in self.batches:
            return 200, self._batch(parts[1])
        if method == "GET" and parts[0] == "files" and parts[1] in self.files:
            return 200, self.files[parts[1]]
        return super().other(method, path, body)

    def _batch(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        if batch.get("ended") and "output" not in batch:
            lines, errors = [], []
            for line in self.files[batch["body"]["input_file_id"]].splitlines():
                entry = json.loads(line)
                assert entry["url"] == "/v1/chat/completions"
                act, reply = self.item(entry["body"])
                result: dict[str, Any] = {"id": "r", "custom_id": entry["custom_id"], "error": None}
                if act.kind == "status":
                    result["response"] = {"status_code": act.status, "body": self.error(0, act.message)}
                    errors.append(json.dumps(result))
                elif act.kind != "expire":
                    result["response"] = {"status_code": 200, "request_id": "q", "body": reply}
                    lines.append(json.dumps(result))
            batch["output"], batch["errors"] = f"out-{name}", f"err-{name}" if errors else None
            self.files[batch["output"]] = "\n".join(reversed(lines)) + "\n"  # in no promised order
            if errors:
                self.files[batch["errors"]] = "\n".join(errors) + "\n"
        return {
            "id": name,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "created_at": batch["at"],
            "input_file_id": batch["body"]["input_file_id"],
            "metadata": batch["body"]["metadata"],
            "status": "completed" if batch.get("ended") else "in_progress",
            "output_file_id": batch.get("output"),
            "error_file_id": batch.get("errors"),
        }


class CompatibleServer(OpenAIServer):
    kind = "compatible"
    model = "org/local-model:8b"


class AnthropicServer(LLMServer):
    kind = "anthropic"
    model = "claude-sonnet-5-5"

    def is_question(self, path: str) -> bool:
        return path == "/v1/messages"

    def creates_batch(self, path: str) -> bool:
        return path == "/v1/messages/batches"

    def read(self, body: Any) -> tuple[str, str, Mapping[str, Any]]:
        assert "temperature" not in body
        (user,) = body["messages"]
        form = body["output_config"]["format"]
        assert (user["role"], form["type"]) == ("user", "json_schema")
        return body["system"], user["content"], form["schema"]

    def success(self, text: str, truncated: bool = False) -> dict[str, Any]:
        return self._message([{"type": "text", "text": text}], "max_tokens" if truncated else "end_turn")

    def refusal(self) -> dict[str, Any]:
        return self._message([], "refusal")

    def _message(self, content: list[dict[str, Any]], stop: str) -> dict[str, Any]:
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 20},
        }

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "t", "message": message}}

    def other(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = path.removeprefix("/v1/messages/batches").strip("/").split("/")
        if method == "POST" and self.creates_batch(path):
            name = f"msgbatch_{len(self.batches)}"
            self.batches[name] = {"body": body, "at": time.gmtime()}
            return 200, self._batch(name)
        if method == "GET" and self.creates_batch(path):
            listed = [self._batch(name) for name in reversed(self.batches)]
            return 200, {"data": listed, "has_more": False, "first_id": None, "last_id": None}
        if method == "GET" and parts[0] in self.batches:
            if parts[1:] == ["results"]:
                return 200, self._results(self.batches[parts[0]])
            return 200, self._batch(parts[0])
        return super().other(method, path, body)

    def _results(self, batch: dict[str, Any]) -> str:
        if "results" not in batch:
            lines = []
            for entry in batch["body"]["requests"]:
                act, reply = self.item(entry["params"])
                result: dict[str, Any] = {"type": "succeeded", "message": reply}
                if act.kind == "expire":
                    result = {"type": "expired"}
                elif act.kind == "status":
                    result = {"type": "errored", "error": self.error(act.status, act.message)}
                lines.append(json.dumps({"custom_id": entry["custom_id"], "result": result}) + "\n")
            batch["results"] = "".join(reversed(lines))  # in no promised order
        return str(batch["results"])

    def _batch(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        count, ended = len(batch["body"]["requests"]), bool(batch.get("ended"))
        counts = {"canceled": 0, "errored": 0, "expired": 0}
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", batch["at"])
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts
            | {"processing": 0 if ended else count, "succeeded": count if ended else 0},
            "created_at": when,
            "expires_at": when,
            "ended_at": when if ended else None,
            "results_url": f"{self.root}/v1/messages/batches/{name}/results" if ended else None,
        }


class GoogleServer(LLMServer):
    kind = "google"
    model = "gemini-3.8-flash"

    def is_question(self, path: str) -> bool:
        return path.endswith(f"/models/{self.model}:generateContent")

    def creates_batch(self, path: str) -> bool:
        return path.endswith(f"/models/{self.model}:batchGenerateContent")

    def read(self, body: Any) -> tuple[str, str, Mapping[str, Any]]:
        (content,) = body["contents"]
        form = body["generationConfig"]
        assert form["responseMimeType"] == "application/json"
        system = body["systemInstruction"]["parts"][0]["text"]
        return system, content["parts"][0]["text"], form["responseJsonSchema"]

    def success(self, text: str, truncated: bool = False) -> dict[str, Any]:
        content = {"role": "model", "parts": [{"text": text}]}
        return self._response({"content": content, "finishReason": "MAX_TOKENS" if truncated else "STOP"})

    def refusal(self) -> dict[str, Any]:
        return self._response({"finishReason": "SAFETY"})

    def _response(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 15, "thoughtsTokenCount": 5}
        return {"candidates": [dict(candidate)], "usageMetadata": usage, "modelVersion": self.model}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": "S"}}

    def other(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "POST" and self.creates_batch(path):
            name = f"batches/{len(self.batches)}"
            self.batches[name] = {"body": body["batch"], "at": time.gmtime()}
            return 200, self._batch(name)
        name = path.lstrip("/").partition("/")[2]  # after the version, which is the SDK's choice
        if method == "GET" and name == "batches":
            return 200, {"operations": [self._batch(name) for name in reversed(self.batches)]}
        if method == "GET" and name in self.batches:
            return 200, self._batch(name)
        return super().other(method, path, body)

    def _batch(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        ended = bool(batch.get("ended"))
        if ended and "output" not in batch:
            batch["output"] = []
            for entry in batch["body"]["inputConfig"]["requests"]["requests"]:
                act, reply = self.item(entry["request"])
                result: dict[str, Any] = {"metadata": entry["metadata"], "response": reply}
                if act.kind == "status":
                    result = {"metadata": entry["metadata"], "error": {"code": 3, "message": act.message}}
                if act.kind != "expire":
                    batch["output"].append(result)
        metadata = {
            "displayName": batch["body"]["displayName"],
            "state": "BATCH_STATE_SUCCEEDED" if ended else "BATCH_STATE_RUNNING",
            "createTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", batch["at"]),
            "model": f"models/{self.model}",
        }
        if ended:
            metadata["output"] = {"inlinedResponses": {"inlinedResponses": batch["output"]}}
        return {"name": name, "metadata": metadata, "done": ended}


SERVERS: dict[str, type[LLMServer]] = {
    server.kind: server for server in (OpenAIServer, AnthropicServer, GoogleServer, CompatibleServer)
}
