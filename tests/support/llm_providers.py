"""Local HTTP servers that speak the protocols of OpenAI, Anthropic and Google, asked by the real SDKs."""

from __future__ import annotations

import email
import json
import time
from collections.abc import Mapping
from typing import Any

from tests.support.llm_server import Answer, LLMServer, yes


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
