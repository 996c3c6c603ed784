"""Options that several commands share: their types, help texts, and the checks of their values."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

from ccs.errors import InputError
from ccs.files import TABLE_ENDINGS, read_text
from ccs.texts.prompts import prompt_sets

MODEL = Parameter(group=Group("Model", sort_key=1))
DATA = Parameter(group=Group("Data", sort_key=2))
ANALYSIS = Parameter(group=Group("Analysis", sort_key=3))
JUDGES = Parameter(group=Group("Judges", sort_key=4))
OUTPUT = Parameter(group=Group("Output", sort_key=5))
MACHINE = Parameter(group=Group("Machine", sort_key=6))


def at_least(lowest: float) -> Parameter:
    """Reject lower values, NaN, and fractions in place of whole numbers, which cyclopts would round."""

    def convert(kind: type[float], tokens: Sequence[Token]) -> float:
        value = tokens[-1].value[:40]
        with suppress(ValueError):
            if (number := kind(value)) >= lowest:
                return number
        raise ValueError(f"Must be a {'whole ' * (kind is int)}number from {lowest:g}, not {value!r}.")

    return Parameter(converter=convert)


def parse_with(parse: Callable[[str], Any]) -> Parameter:
    """Parse the option's one word with this function. If it is repeated, the last one counts."""

    def convert(_: Any, tokens: Sequence[Token]) -> Any:
        if not tokens[-1].value:
            raise ValueError("It is empty.")
        return parse(tokens[-1].value)

    return Parameter(converter=convert, n_tokens=1)


def unset(stands_for: str, metavar: str | None = None) -> Parameter:
    """Describe an option whose default is empty.

    Args:
        stands_for: The meaning of the empty value, such as "all".
        metavar: Name of the value, by default its type.
    """
    return Parameter(show_default=lambda value: format_default(value) or stands_for or None, metavar=metavar)


def describe(text: str, default: str = "", metavar: str | None = None) -> Parameter:
    """Set the help text of an option that several commands share; others have a docstring.

    Args:
        text: A noun phrase with its unit.
        default: The meaning of an empty value, such as "all".
        metavar: Name of the value, by default its type.
    """
    return Parameter.combine(Parameter(help=text), unset(default, metavar))


def format_default(value: object) -> str | None:
    """Return a default as the help shows it, or None if there is nothing to show."""
    if isinstance(value, tuple):
        return ", ".join(value) or None
    if isinstance(value, float):
        return f"{value:g}"
    return None if value is None or value is False or value == "" else str(value)


def read_names(value: str) -> tuple[str, ...]:
    """Read names (occupations, classes) from a file, one per line, or from a comma-separated list.

    Raises:
        InputError: If the file can't be read, or is a table.
    """
    path = Path(value).expanduser()
    if "," not in value and (path.is_file() or path.suffix[1:].isalnum()):
        if path.suffix.lower() in TABLE_ENDINGS:
            raise InputError(f"{path} is a table; give a text file with one name per line.")
        return tuple(filter(None, map(str.strip, read_text(path).splitlines())))
    return tuple(filter(None, map(str.strip, value.split(","))))


def to_folder(value: str) -> Path:
    """Return the path of a folder to write to. Raises InputError now if it can't be written to later."""
    path = Path(value).expanduser()  # `--out=~/x`, which shells leave as it is
    try:
        existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        tempfile.TemporaryDirectory(dir=existing).cleanup()
    except OSError as error:
        raise InputError(f"{path} cannot be written to: {error.strerror}.") from None
    return path


def to_new_folder(value: str) -> Path:
    """Return the path of a folder to make. Raises InputError if it exists, or as `to_folder` does."""
    if (path := to_folder(value)).exists():
        raise InputError(f"{path} already exists; give a new folder for --out.")
    return path


def to_file(value: str) -> Path:
    """Return the path of a file to write to. Raises InputError as `to_folder` does."""
    path = to_folder(str(Path(value).parent)) / Path(value).name
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file in it.")
    return path


IMAGES_FROM = "name, folder, zip, Parquet file, or USER/NAME on the Hub"

ModelName = Annotated[str, MODEL, describe("Model: bundled name, NAME/TAG, folder, or hf-hub:USER/NAME")]
TextEncoder = Annotated[
    str | None, MODEL, describe("Text encoder for a VLM such as LLaVA: the CLIP of its image encoder", "none")
]
Ablation = Annotated[
    str,
    MODEL,
    describe(
        'Heads to ablate, such as "L8.H11 L9.H2"; T7.H3 is a head of the text encoder; L9.H2=0.3 scales a '
        "head, L10.H0=mean replaces its output by the mean",
        "none",
    ),
]
Gallery = Annotated[str, DATA, describe(f"People with groups: {IMAGES_FROM}")]
Images = Annotated[str, DATA, describe(f"Images that the heads are analyzed on: {IMAGES_FROM}")]
Texts = Annotated[
    str | None,
    DATA,
    parse_with(str),
    describe(
        "Pool of texts: world, photographs, reference (the paper's), or a file with one per line",
        "world for synthetic images, else photographs",
    ),
]
Attribute = Annotated[str | None, DATA, describe("Column of groups", "gender, or else the gallery's first")]
Occupations = Annotated[
    tuple[str, ...] | None,
    DATA,
    parse_with(read_names),
    describe('Occupations: a file with one per line, or "judge, nurse"', "the gallery's", "NAMES"),
]
Classes = Annotated[
    tuple[str, ...] | None,
    DATA,
    parse_with(read_names),
    describe('Names of the classes: a file with one per line, or "cat, dog"', "the dataset's", "NAMES"),
]
Template = Annotated[
    str | None, DATA, describe('Prompt with {} for the name: "a photo of a {}"', "the data's")
]
Prompts = Annotated[
    str | None, DATA, describe(f"Prompts in place of occupations: {', '.join(prompt_sets())}", "none")
]
Top = Annotated[
    int | None,
    ANALYSIS,
    at_least(1),
    describe("K, images in the top list", "the gallery's, or a tenth of it"),
]
MaxLoss = Annotated[float, ANALYSIS, at_least(0), describe("Largest loss of accuracy in percentage points")]
Split = Annotated[str, DATA, describe("Split of the given images, such as train", "the dataset's")]
MaxImages = Annotated[int | None, DATA, at_least(1), describe("Largest number of images", "all")]
SkipUnreadable = Annotated[bool, DATA, describe("Continue if more than 1% of the images are unreadable")]
ModelFolder = Annotated[
    Path | None, OUTPUT, parse_with(to_new_folder), describe("New folder for the saved model", "none")
]
ModelRepository = Annotated[str | None, OUTPUT, describe("Model repository on the Hub, USER/NAME", "none")]
Public = Annotated[bool, OUTPUT, describe("Make a new repository public; otherwise it is private")]
Csv = Annotated[Path | None, OUTPUT, parse_with(to_file), describe("CSV file for the results", "none")]
IN_RESULTS = "results/ if it holds any, else the bundled"
ResultsFolder = Annotated[Path | None, DATA, parse_with(Path), describe("Folder of results", IN_RESULTS)]
Device = Annotated[
    str, MACHINE, describe("Device: cpu, cuda, cuda:N, or auto: $CCS_DEVICE, else a GPU if any")
]


def arguments(settings: object, *omitted: str) -> dict[str, Any]:
    """Return a command's options as the arguments of a function of the library.

    Args:
        settings: The options.
        *omitted: Names of options that are no arguments, besides `csv` and `split`.
    """
    omitted = (*omitted, "csv", "split", "_")
    return {name: value for name, value in vars(settings).items() if name not in omitted}


def with_split(values: dict[str, Any]) -> dict[str, Any]:
    """Move the value of --split to the places of images that the user gives, as in PLACE:train."""
    split = values.pop("split", "")
    places = {"images", "dataset", "datasets", "gallery", "galleries", "preserve"} & values.keys()
    if split and not places:
        raise InputError("--split requires --images, --dataset, --gallery, or --preserve.")
    for name in places if split else ():
        place = values[name]
        values[name] = f"{place}:{split}" if isinstance(place, str) else tuple(f"{x}:{split}" for x in place)
    return values


@dataclass(frozen=True, kw_only=True)
class RankingOptions:
    """Options of the commands that rank people."""

    model: ModelName = "organism"
    gallery: Gallery = "world/faces"
    attribute: Attribute = None
    occupations: Occupations = None
    template: Template = None
    prompts: Prompts = None
    split: Split = ""
    top: Top = None
    max_images: MaxImages = None
    skip_unreadable: SkipUnreadable = False
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class GalleryOptions(RankingOptions):
    """Options of the commands that reduce the bias of a ranking and preserve accuracy."""

    preserve: Annotated[
        str, DATA, describe(f"Labeled images on which accuracy must be preserved: {IMAGES_FROM}")
    ] = "world/subjects"
    classes: Classes = None
    seed: Annotated[int, MACHINE, at_least(0)] = 0
    """Random seed of the halves: heads are chosen on one half and evaluated on the other"""
