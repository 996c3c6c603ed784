"""A parquet file with the schema of FairFace on the Hub, and pictures or photographs in place of its own."""

import json
from dataclasses import replace

from ccs.data import SOURCES
from tests.support.datasets_sample import FAIRFACE, as_parquet, cells

PATH = "1.25/validation-00000-of-00001-09e3e67bb00ab4ec.parquet"
RECORD = replace(SOURCES["fairface-600"], revision="main", approximate=True)
"""The record of the set as `put_faces` serves it."""


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


def put_faces(hub, image, count=1200):
    """Serve FairFace with the groups in turn.

    Args:
        hub: The server.
        image: As in `parquet`.
        count: Number of rows.
    """
    files = {PATH: parquet(labels_in_turn(count), image), PATH.replace("1.25", "0.25"): b"another padding"}
    hub.put("datasets", "HuggingFaceM4/FairFace", files)
