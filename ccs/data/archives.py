"""Choose the Parquet or tar files of a configuration and split from the files of a folder or repository."""

import re
from collections import defaultdict
from dataclasses import replace
from os.path import splitext

from ccs.data import DatasetRecord
from ccs.data.files import SPLITS, Files
from ccs.errors import InputError


def choose_archives(files: Files, record: DatasetRecord, split: str) -> Files:
    """Choose the Parquet or tar files of a configuration and split.

    Args:
        files: All files.
        record: The set's record.
        split: As in `read_files`.

    Raises:
        ValueError: If there are no such files.
        InputError: If they belong to several tables, such as configurations of a set on the Hub.
    """
    tars = files.ending_in(".tar")  # img2dataset writes a table of addresses next to each
    archives = [p for p in files.ending_in(".parquet") if f"{splitext(p)[0]}.tar" not in tars] or tars
    of_config = [path for path in archives if f"/{record.config}/" in f"/{path}"]
    if of_config or (not record.known and record.config):
        archives = of_config
    if not archives:
        config = f" of the configuration {record.config!r}" if record.config else ""
        raise ValueError(f"it holds no Parquet files{config}")
    names = {path: _without_number(path) for path in archives}
    wanted = split or record.split
    splits = {path: wanted if _is_named(names[path], wanted) else _split_of(path) for path in archives}
    if split == "train" and record.hub and not record.known and not any(splits.values()):
        split = ""  # the Hub calls the only split of a set "train"
    files = files.only(archives, "no file of this set").in_split(splits, split, record.split)
    if exact := [path for path in files.openers if _is_named(names[path], files.split)]:
        files = files.only(exact, f"not in the split {files.split}")  # "test" and not "test_hard"
    tables: dict[str, list[str]] = defaultdict(list)
    for path in files.openers:
        words = re.split("[-_ /]+", names[path])
        tables[" ".join(word for word in words if word.casefold() not in SPLITS)].append(path)
    notes = [
        f"only {len(paths)} of {int(total[1])} shards are there, such as {paths[0]}"
        for paths in tables.values()
        if (total := re.search(r"-of-(\d+)", paths[0])) and int(total[1]) != len(paths)
    ]
    if len(tables) > 1 and record.kind != "images" and not record.known:
        listed = [names[paths[0]] for paths in tables.values()]
        folders, files_inside = zip(*(path.rpartition("/")[::2] for path in files.openers), strict=True)
        notes.append(f"files of several names are read as one set: {', '.join(listed[:5])}")
        if len({*folders}) > 1 or any(map(_split_of, files_inside)):
            advice = f"choose one, as in {record.name}:{listed[-1]}" if record.hub else "open one of them"
            raise InputError(f"{files.source!r} has several tables ({', '.join(listed[:5])}): {advice}.")
    return replace(files, notes=(*files.notes, *notes))


def _is_named(name: str, split: str) -> bool:
    """Return True if the split is the name of a folder or file in the path."""
    return bool(split) and split in [SPLITS.get(part.casefold(), part) for part in name.split("/")]


def _split_of(path: str) -> str:
    """Return the split that is a whole word of a path; "" if there is none, or more than one."""
    words = {*re.split(r"[^a-z]+", splitext(path.casefold())[0])} & SPLITS.keys()
    splits = {SPLITS[word] for word in words}
    return splits.pop() if len(splits) == 1 else ""


def _without_number(path: str) -> str:
    """Return a path without its ending and its number, such as `-00001-of-00007` of a shard."""
    return re.sub(r"[-_. ]?(\d+-of-\d+.*|\d+)$", "", splitext(path)[0]).strip("/")
