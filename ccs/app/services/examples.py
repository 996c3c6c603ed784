"""Example images: four of a dataset, with the classes to classify them into."""

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ccs.app.services.model_cache import PHOTO, saw_drawings_only
from ccs.app.services.uploads import InputImage
from ccs.data import synthetic
from ccs.data.decoding import small
from ccs.errors import InputError

PAGE_IMAGES = 4
PHOTOGRAPHS, DRAWN = "photographs", "subjects"  # DRAWN: the synthetic dataset that toy models classify best
PAGES = {DRAWN: 25, **dict.fromkeys(synthetic.CLASSES, 25), PHOTOGRAPHS: 1}
"""Number of pages, of four images each, per dataset."""
_PICTURED = {"cat": "cat", "coffee": "cup of coffee", "astronaut": "astronaut", "rocket": "rocket"}
_OTHERS = ("dog", "cup of tea", "pilot", "airplane")
"""Contents of the bundled photographs (see NOTICE), and other classes to compare with."""
_LEARNED = ("cat", "coffee", "uniform", "missile", "dog", "bottle", "robe", "tower")
"""The same classes in the nearest words that `photo` has learned (research/photographs/classes.csv)."""


@dataclass(frozen=True)
class Example:
    """Four images of a dataset.

    Attributes:
        images: The images.
        classes: The classes to classify them into.
        templates: The prompts.
        answers: The true class of each image.
    """

    images: tuple[InputImage, ...]
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    answers: tuple[str, ...]


def example_names(model: str = "") -> tuple[str, ...]:
    """Return the datasets of examples, synthetic ones first; only photographs for a model that knows them."""
    if model and not saw_drawings_only(model):
        return (PHOTOGRAPHS,)
    return tuple(PAGES)


def first_example(model: str) -> str:
    """Return the first example for a model: synthetic if it was trained only on that, else photographs."""
    return "" if saw_drawings_only(model) else f"{PHOTOGRAPHS}:0"


def parse_example(example: str) -> tuple[str, int]:
    """Read `occupations:3` as the dataset and its fourth page. Raises InputError if there is no such page."""
    name, _, page = (example or DRAWN).partition(":")
    if name not in PAGES or (page or "0") not in map(str, range(PAGES[name])):
        raise InputError(f"There is no example {example[:60]!r}; one looks like occupations:0.")
    return name, int(page or 0)


def load_example(example: str, model: str = "") -> Example:
    """Return four images that no bundled model was trained on.

    Args:
        example: A dataset and page, such as `occupations:3`.
        model: The model, because `photo` has other words for the photographs' classes.
    """
    name, page = parse_example(example)
    if name == PHOTOGRAPHS:
        folder = Path(__file__).parent / PHOTOGRAPHS
        photographs = [(folder / f"{file}.jpg").read_bytes() for file in _PICTURED]
        pictures = [Image.frombytes("RGB", *small(photograph)) for photograph in photographs]
        contents = [*_PICTURED.values()]
        classes = _LEARNED if model == PHOTO else (*contents, *_OTHERS)
        templates: tuple[str, ...] = ("a photo of a {}",)
        origin, answers = "photograph of", classes[: len(contents)]
    else:
        # The step makes four neighbors belong to four different classes.
        indices = [(page * PAGE_IMAGES + i) * 7 % synthetic.default_count(name) for i in range(PAGE_IMAGES)]
        dataset = synthetic.classification_set(name, max(indices) + 1)
        pictures, classes = [dataset.images[i] for i in indices], dataset.classes
        contents = [classes[dataset.labels[i]] for i in indices]
        origin, templates, answers = "drawn as", dataset.templates, tuple(contents)
    images = (InputImage(text, image, origin) for text, image in zip(contents, pictures, strict=True))
    return Example(tuple(images), classes, templates, answers)
