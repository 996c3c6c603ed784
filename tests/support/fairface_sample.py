"""A parquet file with the schema of FairFace on the Hub, and pictures or photographs in place of its own."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

from ccs.sets import SOURCES
from ccs.sets.strangers import listed_rows

RACES = ["East Asian", "Indian", "Black", "White", "Middle Eastern", "Latino_Hispanic", "Southeast Asian"]
AGES = ["0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70"]
NAMES = {"age": AGES, "gender": ["Male", "Female"], "race": RACES}
PATH = "1.25/validation-00000-of-00001-09e3e67bb00ab4ec.parquet"
RECORD = SOURCES["fairface-600"]


def labels_as_listed():
    """Labels of rows of which the rule picks the listed ones: a group's others come after those."""
    cells = [(race, gender) for race in sorted(NAMES["race"]) for gender in sorted(NAMES["gender"])]
    listed = listed_rows(RECORD)
    taken = {row: cells[i % 14] for i, row in enumerate(listed)}
    full = {cell: row for row, cell in sorted(taken.items())}  # the last listed row of each group
    found = [taken.get(row, min(full, key=full.__getitem__)) for row in range(max(listed) + 40)]
    return [{"race": race, "gender": gender, "age": AGES[i % 9]} for i, (race, gender) in enumerate(found)]


def labels_in_turn(count=1200):
    """Labels that come in turn, and not in the order of the published ones."""
    return [{name: names[row % len(names)] for name, names in NAMES.items()} for row in range(count)]


def parquet(labels, image):
    """The file: images, and class numbers whose names stand in the schema."""
    features = {name: {"names": names, "_type": "ClassLabel"} for name, names in NAMES.items()}
    features |= {"image": {"_type": "Image"}, "service_test": {"dtype": "bool", "_type": "Value"}}
    cells = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {
        "image": pa.array([{"bytes": image(i), "path": None} for i in range(len(labels))], cells),
        **{name: [NAMES[name].index(row[name]) for row in labels] for name in NAMES},
        "service_test": [False] * len(labels),
    }
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    out = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(about), out, row_group_size=100)
    return out.getvalue()
