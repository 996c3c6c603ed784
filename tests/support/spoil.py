"""Ways to spoil a folder, for the tests of strangers' models and results."""

import json


def says(file, **values):
    """Set entries of a JSON file.

    Args:
        file: Name of the file.
        **values: Value by path, with `__` between its parts; None deletes.

    Returns:
        A function that spoils a folder.
    """

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
    """Set entries of one part of a JSON file, as `says` does.

    Args:
        file: Name of the file.
        path: Path of the part, with `__` between its parts.

    Returns:
        A function of values that returns one that spoils a folder.
    """
    return lambda **values: says(file, **{f"{path}__{key}": value for key, value in values.items()})


def holds(file, content):
    """Replace a file's content.

    Args:
        file: Name of the file.
        content: Bytes.

    Returns:
        A function that spoils a folder.
    """
    return lambda folder: (folder / file).write_bytes(content)


def lacks(file):
    return lambda folder: (folder / file).unlink()
