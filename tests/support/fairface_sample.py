"""A Parquet file with the schema of FairFace on the Hub, and other images."""

import json
from dataclasses import replace

from ccs.data import SOURCES
from tests.support.datasets_sample import FAIRFACE, image_cells, parquet_bytes

FILE = "1.25/validation-00000-of-00001-09e3e67bb00ab4ec.parquet"
RECORD = replace(SOURCES["fairface-600"], revision="main", approximate=True)
"""The record of the dataset that `serve_fairface` serves."""


def serve_fairface(hub, image, count=1200):
    """Serve FairFace: images with groups in turn, as class numbers whose names are in the schema.

    Args:
        hub: The server.
        image: Function from a row's number to a file's bytes.
        count: Number of rows.
    """
    features = {name: {"names": names, "_type": "ClassLabel"} for name, names in FAIRFACE.items()}
    features |= {"image": {"_type": "Image"}, "service_test": {"dtype": "bool", "_type": "Value"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    columns = {name: [row % len(names) for row in range(count)] for name, names in FAIRFACE.items()}
    columns["service_test"] = [False] * count
    faces = parquet_bytes(image_cells(count, image=image), metadata, 100, **columns)
    files = {FILE: faces, FILE.replace("1.25", "0.25"): b"another padding"}
    hub.put("datasets", "HuggingFaceM4/FairFace", files)
