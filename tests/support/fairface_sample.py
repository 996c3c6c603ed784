"""A parquet file with the schema of FairFace on the Hub, and pictures or photographs in place of its own."""

import json

from ccs.data import SOURCES
from tests.support.datasets_sample import FAIRFACE, as_parquet, cells

PATH = "1.25/validation-00000-of-00001-09e3e67bb00ab4ec.parquet"
RECORD = SOURCES["fairface-600"]


def labels_in_turn(count=1200):
    """Labels of this many rows, the groups in turn."""
    return [{name: names[row % len(names)] for name, names in FAIRFACE.items()} for row in range(count)]


def parquet(labels, image):
    """Write FairFace's file: images, and class numbers whose names are in the schema.

    Args:
        labels: Labels of each row.
        image: Function from a row's number to a file's bytes.

    Returns:
        The file's bytes.
    """
    features = {name: {"names": names, "_type": "ClassLabel"} for name, names in FAIRFACE.items()}
    features |= {"image": {"_type": "Image"}, "service_test": {"dtype": "bool", "_type": "Value"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    columns = {name: [FAIRFACE[name].index(row[name]) for row in labels] for name in FAIRFACE}
    columns["service_test"] = [False] * len(labels)
    return as_parquet(cells(len(labels), image=image), metadata, 100, **columns)
