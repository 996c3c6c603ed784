"""Files of a repository on the Hub: from its client's cache, or fetched now once their size is known."""

from __future__ import annotations

import os
from pathlib import Path


def fetched(repository: str, file: str, limit: int) -> Path:
    """A file of a repository on the Hub, from the cache or fetched now unless it is larger than `limit`.

    Raises whatever the Hub's client raises, and ValueError for a file that is too large.
    """
    import huggingface_hub

    if not cached(repository, file):
        address = huggingface_hub.hf_hub_url(repository, file, endpoint=endpoint())
        size = huggingface_hub.get_hf_file_metadata(address, endpoint=endpoint()).size
        if size is None or size > limit:
            raise ValueError(f"{file} has {size} bytes; at most {limit} are fetched")
    return Path(huggingface_hub.hf_hub_download(repository, file, endpoint=endpoint()))


def cached(repository: str, file: str) -> bool:
    """True where the file is on this machine already."""
    import huggingface_hub

    return isinstance(huggingface_hub.try_to_load_from_cache(repository, file), str)


def require_connection(repository: str, *files: str) -> None:
    """Raise what the connection says, unless one of the files is cached.

    Without a connection the Hub's client tries for a minute; this looks once.
    """
    import huggingface_hub

    if not any(cached(repository, file) for file in files):
        huggingface_hub.get_session().head(endpoint(), timeout=5)


def endpoint() -> str:
    """The Hub's address, looked up now: its client reads it once, when it is imported."""
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
