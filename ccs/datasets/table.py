"""Tables of encoded images, read by `datasets` from the Hub or from parquet files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccs.errors import InputError


class ImageTable:
    """A `datasets.Dataset` as columns of strings, class labels and encoded images; rows stay on disk."""

    def __init__(self, rows: Any, name: str) -> None:
        import datasets

        self.name = name
        self._features = dict(rows.features)
        for column, feature in rows.features.items():
            if isinstance(feature, datasets.Image):
                rows = rows.cast_column(column, datasets.Image(decode=False))
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._features)

    def image_column(self) -> str:
        """The first column of images, or else a column with a usual name."""
        import datasets

        for column, feature in self._features.items():
            if isinstance(feature, datasets.Image):
                return str(column)
        names: tuple[str, ...] = ("image", "img", "jpg", "png", "webp", "picture")
        for name in names:
            if name in self._features:
                return name
        raise InputError(
            f"{self.name!r} has no column of images; its columns are {', '.join(self._features)}."
        )

    def encoded(self, column: str) -> Callable[[int], bytes]:
        """A function from row to encoded image; it raises OSError for a row without one."""
        values = self._rows.select_columns([column])

        def read(row: int) -> bytes:
            cell = values[row][column]
            if isinstance(cell, dict):
                data, path = cell.get("bytes"), cell.get("path")
                if data is not None:
                    return bytes(data)
                if path:
                    return Path(path).read_bytes()
            elif isinstance(cell, bytes):
                return cell
            raise OSError("no image in this row")

        return read

    def labels(self, column: str) -> tuple[list[int], tuple[str, ...] | None]:
        """The class numbers of all rows, and the table's names for them (None if it has none).

        A column of strings is read as classes in alphabetical order.
        """
        import datasets

        values, feature = self.values(column), self._features[column]
        if isinstance(feature, datasets.ClassLabel):
            return [int(value) for value in values], tuple(feature.names)
        if all(isinstance(value, int) for value in values):
            return values, None
        names, numbers = np.unique([str(value) for value in values], return_inverse=True)
        return numbers.tolist(), tuple(names.tolist())

    def strings(self, column: str) -> list[str]:
        """A column as text, with class numbers replaced by the classes' names."""
        import datasets

        values, feature = self.values(column), self._features[column]
        if isinstance(feature, datasets.ClassLabel):
            return [feature.int2str(int(value)) for value in values]
        return [str(value) for value in values]

    def values(self, column: str) -> list[Any]:
        """A column as it is. Raises InputError, with the existing columns, if it is missing."""
        if column not in self._features:
            raise InputError(
                f"{self.name!r} has no column {column!r}; its columns are {', '.join(self._features)}."
            )
        return list(self._rows[column])

    def records(self, *columns: str) -> list[dict[str, str]]:
        """The rows as dicts of these columns, as text."""
        cells = zip(*map(self.strings, columns), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in cells]

    def select(self, rows: Sequence[int]) -> ImageTable:
        """These rows."""
        return ImageTable(self._rows.select(rows), self.name)


def open_parquet(path: Path) -> ImageTable:
    """The table in a parquet file, or in a folder of them (those of the test split, where so named)."""
    import datasets

    found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    for split in ("test", "validation", "val"):
        matching = [file for file in found if split in file.relative_to(path.parent).as_posix().lower()]
        if path.is_dir() and matching:
            found = matching
            break
    if not found:
        raise InputError(f"There is no parquet file in {str(path)!r}.")
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # reading is fast; a bar would be the caller's first output
    try:
        rows = datasets.Dataset.from_parquet([str(file) for file in found])
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} cannot be read as parquet ({' '.join(str(error).split())})."
        ) from error
    finally:
        if shown:
            datasets.enable_progress_bars()
    return ImageTable(rows, path.stem)
