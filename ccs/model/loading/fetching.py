"""Files of a model in a folder or in a repository on the Hub, read up to a limit of bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ccs.files import endpoint


@dataclass(frozen=True)
class Place:
    """A folder on this machine, or a repository on the Hub.

    Attributes:
        folder: The folder; None for a repository.
        repository: The repository, "" for a folder.
    """

    folder: Path | None = None
    repository: str = ""

    def __str__(self) -> str:
        return f"the Hub's {self.repository}" if self.folder is None else f"the folder {self.folder.name}"

    def file(self, name: str, limit: int) -> Path | None:
        """Return the path of a file, downloaded if necessary; None if there is no file of that name.

        Args:
            name: The file's name.
            limit: The largest size in bytes.

        Raises:
            ValueError: If the file is larger. The Hub's client raises other errors.
        """
        if self.folder is None:
            return self._fetched(name, limit)
        path = self.folder / name
        if not path.exists():
            return None
        if not path.is_file():
            raise ValueError(f"{name} is not a file")
        return _bounded(path, path.stat().st_size, limit)

    def read(self, name: str, limit: int) -> bytes | None:
        """Return the content of a file; None if there is no file of that name.

        Args:
            name: As in `file`.
            limit: As in `file`.
        """
        path = self.file(name, limit)
        return None if path is None else path.read_bytes()

    def folder_of(self, names: Sequence[str], limit: int) -> Path | None:
        """Return the folder on this machine with the files that exist; None if none does.

        Args:
            names: The files' names.
            limit: As in `file`.
        """
        paths = [path for name in names if (path := self.file(name, limit)) is not None]
        return paths[0].parent if paths else None

    def _fetched(self, name: str, limit: int) -> Path | None:
        import huggingface_hub as hub
        from huggingface_hub.errors import RemoteEntryNotFoundError

        cached = hub.try_to_load_from_cache(self.repository, name)
        if cached is not None:  # a path, or a record that there is no such file
            return Path(cached) if isinstance(cached, str) else None
        try:
            require_connection()
            size = hub.hf_hub_download(self.repository, name, endpoint=endpoint(), dry_run=True).file_size
            _bounded(Path(name), size, limit)
            return Path(hub.hf_hub_download(self.repository, name, endpoint=endpoint()))
        except RemoteEntryNotFoundError:
            return None


def _bounded(path: Path, size: int | None, limit: int) -> Path:
    if size is None or size > limit:
        raise ValueError(f"{path.name} has {size} bytes; at most {limit} are read")
    return path


def require_connection() -> None:
    """Raise the connection's error, if there is one; the Hub's client would try for a minute first."""
    import huggingface_hub

    huggingface_hub.get_session().head(endpoint(), timeout=5)
