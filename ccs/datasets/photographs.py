"""Photographs from a data set on the Hub: some rows of its parquet files, which a stranger may have written.

Only parquet files of one commit are opened, and only the images' bytes are read from them: a card or a row
may name other files and addresses, which the library `datasets` would follow. No token is sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from ccs.datasets.decoding import scan, spread
from ccs.datasets.hub import explained
from ccs.errors import InputError
from ccs.files import endpoint
from ccs.image_sets import ImageSet

MOST = 5000
"""The most photographs that are read."""
MAX_BYTES, MAX_GROUP_BYTES = 2**30, 2**29
"""The most bytes of all images read, and of the unpacked images of one row group."""
FILES = 4
"""The number of parquet files, evenly spaced, from which rows are read."""
CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps other formats as parquet."""
PREFIX = "hf://datasets/"
_ADDRESS = re.compile(rf"{PREFIX}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?::([\w.-]{{1,96}}))?", re.ASCII)
_COLUMNS = ("image", "img", "jpg", "png", "webp", "picture", "photo")


@dataclass(frozen=True)
class Address:
    """A data set on the Hub, `hf://datasets/USER/NAME:SPLIT`; split "" is `train` or else any."""

    repository: str
    split: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address, written with or without `hf://datasets/`; InputError for any other text."""
        found = _ADDRESS.fullmatch(f"{PREFIX}{text.strip().removeprefix(PREFIX)}")
        if found is None or ".." in found[1]:
            raise InputError(f"{text[:100]!r} is no data set of the Hub; these are written USER/NAME:SPLIT.")
        return cls(found[1], found[2] or "")

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}{f':{self.split}' if self.split else ''}"


def stream(text: str, count: int | None) -> ImageSet:
    """At most `count` photographs, from evenly spaced row groups of the split's files.

    Raises InputError for an invalid address, and for a set that cannot be reached or holds no images as
    parquet.
    """
    address, wanted = Address.parse(text), min(count or MOST, MOST)
    with explained(address.repository, address.repository, copy=False):
        commit, files = _files(address)
        data = _read(address, commit, files, wanted)
    source = f"{address} at {commit[:12]}"
    found = scan(data.__getitem__, range(len(data)), lambda row: f"photograph {row}", source)
    return ImageSet(name=str(address), **found.fields())


def _files(address: Address) -> tuple[str, list[str]]:
    """The commit, and the split's parquet files at that commit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    api = HfApi(endpoint=endpoint(), token=False)
    about = api.dataset_info(address.repository, timeout=10)
    files = _parquet(about)
    if not files:
        try:
            about = api.dataset_info(address.repository, revision=CONVERTED, timeout=10)
        except RevisionNotFoundError:
            raise InputError(f"{address.repository} holds no parquet files.") from None
        files = _parquet(about)
    for split in [address.split] if address.split else ["train", ""]:
        fitting = [path for path in files if re.search(rf"(^|[/_-]){re.escape(split)}([-_./]|$)", path)]
        if fitting:
            return str(about.sha), fitting
    raise InputError(f"{address.repository} holds no parquet files of a split {address.split!r}.")


def _parquet(about: Any) -> list[str]:
    return sorted(each.rfilename for each in about.siblings or [] if each.rfilename.endswith(".parquet"))


def _read(address: Address, commit: str, files: list[str], wanted: int) -> list[bytes]:
    """The encoded images, as many as wanted or as there are."""
    import pyarrow.parquet as pq
    from huggingface_hub import HfFileSystem

    system = HfFileSystem(endpoint=endpoint(), token=False, skip_instance_cache=True)
    found: list[bytes] = []
    chosen = [files[i] for i in spread(len(files), min(FILES, len(files)))]
    with tqdm(total=wanted, desc="photographs", unit="item") as bar:
        for number, path in enumerate(chosen, 1):
            share = -(-wanted * number // len(chosen))
            with system.open(f"datasets/{address.repository}@{commit}/{path}", "rb") as opened:
                file = pq.ParquetFile(opened)
                column, index = _image_column(file.schema_arrow), file.metadata
                rows = max(1, index.num_rows // max(1, index.num_row_groups))
                needed = min(index.num_row_groups, -(-(share - len(found)) // rows))
                for group in spread(index.num_row_groups, needed) if needed else ():
                    _require_size(index.row_group(group), column)
                    cells = file.read_row_group(group, columns=[column])[column]
                    for cell in cells:
                        value = cell.as_py()
                        data = value.get("bytes") if isinstance(value, dict) else value
                        if data and len(found) < share:
                            found.append(bytes(data))
                            bar.update()
                    if sum(map(len, found)) > MAX_BYTES:
                        raise InputError(
                            f"{address.repository} holds images that are too large: {len(found)} of them are "
                            f"more than {MAX_BYTES // 2**20} MB."
                        )
    if not found:
        raise InputError(f"{address.repository} holds no image as bytes in its parquet files.")
    return found


def _image_column(schema: Any) -> str:
    """The first column of records with bytes, or else a column of bytes with a usual name."""
    import pyarrow as pa

    for field in schema:
        if pa.types.is_struct(field.type) and "bytes" in [inner.name for inner in field.type]:
            return str(field.name)
    for name in _COLUMNS:
        if name in schema.names and pa.types.is_binary(schema.field(name).type):
            return name
    raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")


def _require_size(group: Any, column: str) -> None:
    """InputError for a row group whose images would take too much memory."""
    parts = (group.column(i) for i in range(group.num_columns))
    size = sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
    if size > MAX_GROUP_BYTES:
        raise InputError(
            f"A row group of images unpacks to {size:,} bytes; at most {MAX_GROUP_BYTES:,} are read."
        )
