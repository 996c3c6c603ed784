"""Ways to spoil a folder with a model, for the tests of strangers' models."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import ccs
from ccs import InputError

BILLION = 10**9


def says(file, **values):
    """Entries of a JSON file, by dotted path with `__` for the dot; None deletes."""

    def spoil(folder):
        found = json.loads((folder / file).read_text("utf-8"))
        for path, value in values.items():
            *way, last = path.split("__")
            place = found
            for part in way:
                place = place[part]
            if value is None:
                del place[last]
            else:
                place[last] = value
        (folder / file).write_text(json.dumps(found), "utf-8")

    return spoil


def part(file, path):
    """Entries of one part of a JSON file, as `says` sets them."""
    return lambda **values: says(file, **{f"{path}__{key}": value for key, value in values.items()})


def holds(file, content):
    return lambda folder: (folder / file).write_bytes(content)


def lacks(file):
    return lambda folder: (folder / file).unlink()


def weights_of(file, change):
    def spoil(folder):
        values = load_file(folder / file)
        change(values)
        save_file(values, folder / file)

    return spoil


class Mark:
    """A pickle of it writes a file when it is read."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def ends_in_a_sentence(folder, message):
    """The model in the folder is refused with this message and no more, and nothing of it ran."""
    with pytest.raises(InputError) as caught:
        ccs.load(str(folder))
    words = str(caught.value)
    assert message in words
    assert folder.name in words
    assert str(folder.parent) not in words
    assert len(words) < 700
    assert not (folder / "ran").exists()
    assert not Path("ran").exists()
