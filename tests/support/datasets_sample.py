"""Small data sets laid out like their Hub repositories: a card that names splits, and parquet files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ccs import datasets

SOCIAL = [(race, gender) for race in ("Asian", "Black", "White") for gender in ("Male", "Female")] * 2
"""Race and gender of the twelve images of one occupation in SocialCounterfactuals: two sets of six."""


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (number * 5, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def number_of(image: Image.Image) -> int:
    return int(np.asarray(image)[0, 0, 0]) // 5


def repository(
    folder: Path, source: datasets.DatasetRecord, features: dict[str, Any], rows: dict[str, list[Any]]
) -> Path:
    """A data set as a clone of its Hub repository: a card with configurations and splits, and parquet files.

    A second split holds other rows, so that reading the wrong one shows.
    """
    import datasets as hf

    column = next(name for name, feature in features.items() if isinstance(feature, hf.Image))
    count = len(next(iter(rows.values())))
    for split, first in ((source.split, 0), ("other", 20)):
        pictures = [{"bytes": png(first + number), "path": None} for number in range(count)]
        table = hf.Dataset.from_dict({column: pictures, **rows}, hf.Features({**features}))
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(path)
    config = source.config or "default"
    card = f"configs:\n- config_name: '{config}'\n  data_files:\n"
    card += "".join(f"  - split: {split}\n    path: data/{split}-*\n" for split in (source.split, "other"))
    (folder / "README.md").write_text(f"---\n{card}---\n")
    return folder


def schemas() -> dict[str, tuple[dict[str, Any], dict[str, list[Any]]]]:
    """Name -> (features, rows), as the repositories' cards have them."""
    import datasets as hf

    image, text = hf.Image(), hf.Value("string")
    ten = hf.ClassLabel(
        names=["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    )
    fine = hf.ClassLabel(names=["apple", "aquarium_fish", "cra", "lawn_mower"])
    pets = hf.ClassLabel(names=["abyssinian", "american_bulldog", "american_pit_bull_terrier", "pug"])
    wnids = hf.ClassLabel(names=["n01498041", "n01531178", "n01534433"])
    races = ["East Asian", "Indian", "Black", "White", "Middle Eastern", "Latino_Hispanic", "Southeast Asian"]
    ages = hf.ClassLabel(names=["0-2", "3-9", "10-19"])
    faces = (
        {
            "image": image,
            "age": ages,
            "gender": hf.ClassLabel(names=["Male", "Female"]),
            "race": hf.ClassLabel(names=races),
            "service_test": hf.Value("bool"),
        },
        {"age": [0, 1, 2, 0], "gender": [0, 1, 1, 0], "race": [0, 6, 2, 5], "service_test": [True] * 4},
    )
    return {
        "cifar10": ({"img": image, "label": ten}, {"label": [3, 0, 9]}),
        "cifar100": (
            {"img": image, "fine_label": fine, "coarse_label": hf.ClassLabel(names=["a", "b"])},
            {"fine_label": [2, 3, 1], "coarse_label": [0, 1, 0]},
        ),
        "food101": (
            {"image": image, "label": hf.ClassLabel(names=["apple_pie", "baby_back_ribs"])},
            {"label": [1, 0, 1]},
        ),
        "oxford-pets": (
            {
                "image": image,
                "label": pets,
                "image_id": text,
                "label_cat_dog": hf.ClassLabel(names=["cat", "dog"]),
            },
            {"label": [0, 1, 2], "image_id": ["a_1", "b_1", "c_1"], "label_cat_dog": [0, 1, 1]},
        ),
        "imagenet-a": ({"image": image, "label": wnids}, {"label": [2, 0, 1]}),
        "imagenet-r": (
            {"image": image, "wnid": text, "class_name": text},
            {
                "wnid": ["n01531178", "n01498041", "n01531178"],
                "class_name": ["goldfinch", "stingray", "goldfinch"],
            },
        ),
        "imagenet-val": (
            {"image": image, "label": hf.ClassLabel(names=["tench", "goldfish"])},
            {"label": [0, 1, 1]},
        ),
        "flickr8k": (
            {"image": image, **{f"caption_{number}": text for number in range(5)}},
            {f"caption_{number}": [f"{row}.{number}" for row in "abc"] for number in range(5)},
        ),
        "fairface-1.25": faces,
        "fairface-0.25": faces,
        "socialcounterfactuals": (
            {"image": image, "caption": text, "counterfactual_set": text, "a1": text, "a1_type": text}
            | {"a2": text, "a2_type": text},
            {
                "caption": [
                    *(f"A photo of a {race} {gender} judge" for race, gender in SOCIAL),
                    "A photo of a tall Male judge",
                    *["A photo of a Male White chef."] * 2,
                    "A photo of a White Male astronomer",
                ],
                "counterfactual_set": [
                    *(f"set_{i // 6}" for i in range(12)),
                    "set_9",
                    *["set_5"] * 2,
                    "set_6",
                ],
                "a1": [*(race for race, _ in SOCIAL), "tall", "Male", "Male", "White"],
                "a1_type": [*["race"] * 12, "physical", "gender", "gender", "race"],
                "a2": [*(gender for _, gender in SOCIAL), "Male", "White", "White", "Male"],
                "a2_type": [*["gender"] * 13, "race", "race", "gender"],
            },
        ),
    }
