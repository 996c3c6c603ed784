"""Ways to spoil a folder, for the tests of strangers' models and results."""

import json


def says(file, **values):
    """Entries of a JSON file, by dotted path with `__` for the dot; None deletes."""

    def spoil(folder):
        content = json.loads((folder / file).read_text("utf-8"))
        for path, value in values.items():
            *parents, last = path.split("__")
            place = content
            for part in parents:
                place = place[part]
            if value is None:
                del place[last]
            else:
                place[last] = value
        (folder / file).write_text(json.dumps(content), "utf-8")

    return spoil


def part(file, path):
    """Entries of one part of a JSON file, as `says` sets them."""
    return lambda **values: says(file, **{f"{path}__{key}": value for key, value in values.items()})


def holds(file, content):
    return lambda folder: (folder / file).write_bytes(content)


def lacks(file):
    return lambda folder: (folder / file).unlink()
