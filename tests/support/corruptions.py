"""Functions that corrupt the files of a model's or a result's folder."""

import json


def set_json(file, **values):
    """Set entries of a JSON file.

    Args:
        file: Name of the file.
        **values: Value by path, with `__` between its parts; None deletes.

    Returns:
        A function that corrupts a folder.
    """

    def corrupt(folder):
        content = json.loads((folder / file).read_text("utf-8"))
        for path, value in values.items():
            *parents, last = path.split("__")
            place = content
            for parent in parents:
                place = place[parent]
            if value is None:
                del place[last]
            else:
                place[last] = value
        (folder / file).write_text(json.dumps(content), "utf-8")

    return corrupt


def set_json_in(file, path):
    """Set entries of one part of a JSON file, as `set_json` does.

    Args:
        file: Name of the file.
        path: Path of the part, with `__` between its parts.

    Returns:
        A function of values that returns one that corrupts a folder.
    """
    return lambda **values: set_json(file, **{f"{path}__{key}": value for key, value in values.items()})


def replace_file(file, content):
    """Replace a file's content.

    Args:
        file: Name of the file.
        content: Bytes.

    Returns:
        A function that corrupts a folder.
    """
    return lambda folder: (folder / file).write_bytes(content)


def delete_file(file):
    return lambda folder: (folder / file).unlink()
