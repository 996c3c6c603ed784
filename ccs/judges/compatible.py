"""Any server that speaks OpenAI's chat completions (vLLM, Ollama, llama.cpp), by its base URL."""

from __future__ import annotations

from typing import Any

from ccs.errors import InputError
from ccs.judges.openai import OpenAIProvider


class CompatibleProvider(OpenAIProvider):
    kind = "compatible"
    keys = ("COMPATIBLE_API_KEY",)
    has_batches = False
    limit_name = "max_tokens"  # the name that local servers know

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"base_url": self.spec.base_url}

    def key(self) -> str:
        try:
            return super().key()
        except InputError:
            return "none"  # local servers want none, the SDK wants a string
