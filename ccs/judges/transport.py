"""The one place where the bytes of a model's reply are read, and no more of them than a reply can have."""

from __future__ import annotations

from typing import Any

import httpx2  # the HTTP client of all three SDKs, and installed with each

MOST_BYTES = 2**20


class BoundedClient(httpx2.AsyncClient):
    """An HTTP client that follows no redirect, takes nothing compressed, and stops reading at MOST_BYTES.

    A redirect would send the key, which is in a header, to another host; a few compressed kilobytes can
    unfold to gigabytes. What is too long ends as a broken connection does.
    """

    async def send(self, request: httpx2.Request, *, stream: bool = False, **more: Any) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await super().send(request, stream=True, **more)
        body = bytearray()
        try:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise httpx2.ReadError("the reply is compressed, though none such was asked for")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise httpx2.ReadError(f"the reply is longer than {MOST_BYTES:,} bytes")
        finally:
            await response.aclose()
        return httpx2.Response(
            response.status_code, headers=response.headers, content=bytes(body), request=request
        )
