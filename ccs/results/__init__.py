"""Tables of results: their schema, one file (table), one model or many (store), and stored searches."""

from ccs.results.store import (
    MANIFEST_FILE,
    STAGES,
    Collection,
    Results,
    folder_name,
    load,
    read,
    read_all,
    read_manifest,
    write_manifest,
)
from ccs.results.table import PRECOMPUTED, read_table, write_table

__all__ = [
    "MANIFEST_FILE",
    "PRECOMPUTED",
    "STAGES",
    "Collection",
    "Results",
    "folder_name",
    "load",
    "read",
    "read_all",
    "read_manifest",
    "read_table",
    "write_manifest",
    "write_table",
]
