"""A parquet file with the schema of FairFace on the Hub, and pictures or photographs in place of its own."""

import json

from ccs.data import SOURCES
from ccs.data.untrusted import listed_rows
from tests.support.datasets_sample import AGES, FAIRFACE, as_parquet, cells

PATH = "1.25/validation-00000-of-00001-09e3e67bb00ab4ec.parquet"
RECORD = SOURCES["fairface-600"]


def labels_as_listed():
    """Labels of rows of which the rule picks the listed ones: a group's others come after those."""
    groups = [(race, gender) for race in sorted(FAIRFACE["race"]) for gender in sorted(FAIRFACE["gender"])]
    listed = listed_rows(RECORD)
    taken = {row: groups[i % 14] for i, row in enumerate(listed)}
    full = {cell: row for row, cell in sorted(taken.items())}  # the last listed row of each group
    found = [taken.get(row, min(full, key=full.__getitem__)) for row in range(max(listed) + 40)]
    return [{"race": race, "gender": gender, "age": AGES[i % 9]} for i, (race, gender) in enumerate(found)]


def labels_in_turn(count=1200):
    """Labels that come in turn, and not in the order of the published ones."""
    return [{name: names[row % len(names)] for name, names in FAIRFACE.items()} for row in range(count)]


def parquet(labels, image):
    """The file: images, and class numbers whose names stand in the schema."""
    features = {name: {"names": names, "_type": "ClassLabel"} for name, names in FAIRFACE.items()}
    features |= {"image": {"_type": "Image"}, "service_test": {"dtype": "bool", "_type": "Value"}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    columns = {name: [FAIRFACE[name].index(row[name]) for row in labels] for name in FAIRFACE}
    columns["service_test"] = [False] * len(labels)
    return as_parquet(cells(len(labels), image=image), about, 100, **columns)
