"""Rows from files that a stranger may have written: uploads, and any data set on the Hub.

Only images' bytes and plain cells are read, row by row within bounds. A card or a row may name other files
and addresses, which the library `datasets` would follow; here none is. No token is sent.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zipfile import ZipFile

from PIL import Image, UnidentifiedImageError

from ccs.datasets.fetching import explained
from ccs.datasets.rows import IMAGE_COLUMNS, LABELS, Rows, members, of_files, spread
from ccs.errors import InputError
from ccs.files import endpoint
from ccs.progress import BAR

MOST_FILES, MOST_BYTES, MOST_PIXELS = 2000, 64 * 2**20, 40_000_000
"""The most that an upload may hold: images, bytes once unpacked, pixels of one image."""
CODECS = ("UNCOMPRESSED", "SNAPPY")  # others may compress a stranger's gigabyte into nothing
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MOST, MAX_BYTES, MAX_GROUP_BYTES = 5000, 2**30, 2**29
"""The most that is read of a set on the Hub: photographs, their bytes, stated bytes of one row group."""
FILES = 4
"""The number of parquet files, evenly spaced, from which rows are read."""
CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps other formats as parquet."""
PREFIX = "hf://datasets/"
_TOO_LARGE = "The file holds more than {} MB once unpacked."
_ADDRESS = re.compile(rf"{PREFIX}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?::([\w.-]{{1,96}}))?", re.ASCII)


def upload_rows(data: bytes, name: str) -> Rows:
    """A zip file laid out like a folder, or a parquet file; all of it stays in memory.

    Raises InputError for other files, other layouts, and more than `MOST_FILES` images or `MOST_BYTES` bytes
    once unpacked.
    """
    try:
        found = _uploaded_parquet(data, name) if data.startswith(b"PAR1") else _uploaded_zip(data, name)
    except InputError:
        raise
    except Exception as error:  # both readers may raise anything
        words = " ".join(str(error).split())[:200]
        raise InputError(f"The file cannot be read as zip or parquet: {words}.") from None
    return replace(found, read=lambda row: _checked(found.read(row)))


def _require_small(files: int, size: int) -> None:
    if files > MOST_FILES:
        raise InputError(f"The file holds {files} images; at most {MOST_FILES} are accepted.")
    if size > MOST_BYTES:
        raise InputError(_TOO_LARGE.format(MOST_BYTES // 2**20))


def _uploaded_zip(data: bytes, name: str) -> Rows:
    with ZipFile(io.BytesIO(data)) as archive:
        inside = members(archive)
        _require_small(len(inside), sum(one.file_size for one in inside.values()))
        # Read up to the stated size and no further, whatever the packed data hold.
        unpacked = {path: archive.open(one).read(one.file_size) for path, one in inside.items()}
    files = {path: content.__bytes__ for path, content in unpacked.items()}
    table = LABELS if LABELS in files else ""
    return of_files(files, name, "the file", lambda path: path.rpartition("/")[0].split("/")[0], table)


def _uploaded_parquet(data: bytes, name: str) -> Rows:
    from pyarrow import parquet

    file = parquet.ParquetFile(io.BytesIO(data))
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    parts = [group.column(column) for group in groups for column in range(about.num_columns)]
    if packed := {part.compression for part in parts} - set(CODECS):
        raise InputError(f"The file is packed with {min(packed)}; {' or '.join(CODECS)} is accepted.")
    _require_small(about.num_rows, sum(part.total_uncompressed_size for part in parts))
    cells = _Cells(MOST_BYTES, _TOO_LARGE.format(MOST_BYTES // 2**20))
    cells.read(file, range(about.num_row_groups), about.num_rows, labels=True)
    return cells.rows(name, "the file")


def _checked(data: bytes) -> bytes:
    """The bytes of a stranger's image in a usual format and size; OSError for any other."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise OSError(f"more than {MOST_PIXELS // 10**6} megapixels")
    except UnidentifiedImageError:
        raise OSError(f"not an image of these kinds: {', '.join(FORMATS)}") from None
    return data


@dataclass
class _Cells:
    """What has been read of parquet files: images' bytes, and plain cells where they are asked for.

    room: the most bytes. refusal: what is said where there are more.
    """

    room: int
    refusal: str
    images: list[bytes] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    classes: dict[str, Sequence[str]] = field(default_factory=dict)

    def read(self, file: Any, groups: Sequence[int], most: int, *, labels: bool) -> None:
        """Read rows of some row groups, one by one: a file may hold a cell once and repeat it in all rows."""
        schema = file.schema_arrow
        image, plain = _image_column(schema), _plain_columns(schema) if labels else []
        told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = told.get("info", {}).get("features", {})
        self.classes |= {
            name: features[name]["names"] for name in plain if features.get(name, {}).get("names")
        }
        for batch in file.iter_batches(1, row_groups=list(groups), columns=[image, *plain]):
            if most < 1:
                break
            most -= 1
            self.room -= batch.nbytes
            if self.room < 0:
                raise InputError(self.refusal)
            (row,) = batch.to_pylist()
            cell = row[image]
            self.images.append((cell.get("bytes") if isinstance(cell, dict) else cell) or b"")
            for name in plain:
                self.columns.setdefault(name, []).append(row[name])

    def rows(self, name: str, source: str) -> Rows:
        return Rows(name, source, len(self.images), self.images.__getitem__, self.columns, self.classes)


def _image_column(schema: Any) -> str:
    """The first column of records with bytes, or else a column of bytes, rather with a usual name."""
    import pyarrow as pa

    for column in schema:
        if pa.types.is_struct(column.type) and "bytes" in [inner.name for inner in column.type]:
            return str(column.name)
    binary = [column.name for column in schema if pa.types.is_binary(column.type)]
    for name in (*(name for name in IMAGE_COLUMNS if name in binary), *binary):
        return str(name)
    raise InputError(f"There is no column of images; the columns are {', '.join(schema.names)[:300]}.")


def _plain_columns(schema: Any) -> list[str]:
    """The columns of text, whole numbers and yes or no, at most twenty."""
    import pyarrow.types as kinds

    plain = (kinds.is_string, kinds.is_integer, kinds.is_boolean)
    return [str(column.name) for column in schema if any(kind(column.type) for kind in plain)][:20]


# The Hub ----------------------------------------------------------------------------------------------------


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


def hub_rows(text: str, count: int | None, *, labels: bool) -> Rows:
    """At most `count` rows, from evenly spaced row groups of the split's parquet files, labels on request.

    Raises InputError for an invalid address, and for a set that cannot be reached or holds no images as
    parquet.
    """
    import pyarrow.parquet as pq
    from huggingface_hub import HfFileSystem

    address, wanted = Address.parse(text), min(count or MOST, MOST)
    large = f"{address.repository} holds images that are too large: more than {MAX_BYTES // 2**20} MB."
    cells = _Cells(MAX_BYTES, large)
    with explained(address.repository, address.repository, copy=False):
        commit, files = _files(address)
        system = HfFileSystem(endpoint=endpoint(), token=False, skip_instance_cache=True)
        chosen = [files[i] for i in spread(len(files), min(FILES, len(files)))]
        with BAR.get()(total=wanted, desc="photographs", unit="item") as bar:
            for number, path in enumerate(chosen, 1):
                share = -(-wanted * number // len(chosen))
                with system.open(f"datasets/{address.repository}@{commit}/{path}", "rb") as opened:
                    file = pq.ParquetFile(opened)
                    index = file.metadata
                    rows = max(1, index.num_rows // max(1, index.num_row_groups))
                    needed = min(index.num_row_groups, -(-(share - len(cells.images)) // rows))
                    for group in spread(index.num_row_groups, needed) if needed else ():
                        _require_size(index.row_group(group), _image_column(file.schema_arrow))
                        cells.read(file, [group], share - len(cells.images), labels=labels)
                        bar.update(len(cells.images) - bar.n)
    found = cells.rows(str(address), f"{address} at {commit[:12]}")
    return replace(found, read=lambda row: _checked(found.read(row)))


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


def _require_size(group: Any, column: str) -> None:
    """InputError for a row group whose images would take too much memory."""
    parts = (group.column(i) for i in range(group.num_columns))
    size = sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
    if size > MAX_GROUP_BYTES:
        raise InputError(
            f"A row group of images unpacks to {size:,} bytes; at most {MAX_GROUP_BYTES:,} are read."
        )
