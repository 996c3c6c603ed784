"""Small datasets with the layout of their Hub repositories: a card with splits, and Parquet files."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import PurePath
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

RACES = ["East Asian", "Indian", "Black", "White", "Middle Eastern", "Latino_Hispanic", "Southeast Asian"]
AGES = ["0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70"]
FAIRFACE = {"age": AGES, "gender": ["Male", "Female"], "race": RACES}
SOCIAL_GROUPS = [(race, gender) for race in ("Asian", "Black", "White") for gender in ("Male", "Female")] * 2
"""Race and gender of the twelve images of one occupation in SocialCounterfactuals: two sets of six."""
IMAGE_TYPE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def allow_any_size():
    """Accept small copies of the registered datasets, whose records state the number of rows and bytes."""
    from ccs.data import SOURCES

    for name, record in SOURCES.items():
        SOURCES[name] = replace(record, approximate=True, class_count=0, gigabytes=0.0)


def encode_image(image, file_format="PNG", **options):
    """Encode an image.

    Args:
        image: PIL image.
        file_format: Format.
        **options: As in `Image.save`.

    Returns:
        The file's bytes.
    """
    image.save(data := io.BytesIO(), file_format, **options)
    return data.getvalue()


def numbered_png(number):
    return encode_image(Image.new("RGB", (8, 8), (number * 5, 0, 0)))


def image_cells(count, first=0, image=numbered_png):
    """Make the cells of a column of images.

    Args:
        count: Number of cells.
        first: Number of the first image.
        image: Function from a number to a file's bytes.

    Returns:
        One mapping per cell.
    """
    return [{"bytes": image(first + i), "path": f"{i}.png"} for i in range(count)]


def parquet_bytes(images, metadata=None, rows=None, **columns):
    """Write a file of images after other columns.

    Args:
        images: Cells of the column of images.
        metadata: Metadata of the schema.
        rows: Rows of a row group.
        **columns: The other columns.

    Returns:
        The file's bytes.
    """
    table = pa.table({**columns, "image": images}).replace_schema_metadata(metadata)
    pq.write_table(table, data := io.BytesIO(), row_group_size=rows)
    return data.getvalue()


def zip_bytes(files):
    with ZipFile(out := io.BytesIO(), "w", ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def write_images(place, images, folders=(".",)):
    """Write images into folders in turn, each under its number.

    Args:
        place: Folder that holds the folders.
        images: PIL images.
        folders: Names of the folders.

    Returns:
        The files' names.
    """
    names = [str(PurePath(folders[i % len(folders)], f"{i}.png")) for i in range(len(images))]
    for name, image in zip(names, images, strict=True):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(place / name)
    return names


def first_people(gallery, count, k=10):
    groups = {attribute: labels[:count] for attribute, labels in gallery.groups.items()}
    return replace(gallery, images=gallery.images[:count], groups=groups, k=dict.fromkeys(groups, k))


def read_number(image):
    return int(np.asarray(image)[0, 0, 0]) // 5


def read_numbers(data):
    return [read_number(image) for image in data.images]


def tar_bytes(files):
    with tarfile.open(fileobj=(buffer := io.BytesIO()), mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def webdataset_bytes(labels):
    """Make an archive of images 0, 1, ..., each with a file of its label."""
    files = {}
    for row, label in enumerate(labels):
        files[f"s{row:07d}.jpg"] = numbered_png(row)
        files[f"s{row:07d}.cls"] = str(label).encode()
    return tar_bytes(files)


def write_video(path, seconds=2.0, rate=10, pixels=()):
    """Write a video whose frame i is gray of brightness 10 i.

    Args:
        path: File to write.
        seconds: Length.
        rate: Frames per second.
        pixels: Other frames, 64 x 64.

    Returns:
        The path.
    """
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        gray = (np.full((64, 64, 3), number * 10, np.uint8) for number in range(int(seconds * rate)))
        frames = [*(av.VideoFrame.from_ndarray(frame, format="rgb24") for frame in pixels or gray), None]
        container.mux(packet for frame in frames for packet in stream.encode(frame))
    return path


def write_repository(folder, source, *schema):
    """Write a copy of a dataset's Hub repository: a card, and Parquet files of its split and another split.

    Args:
        folder: Folder to write.
        source: Record of the set.
        *schema: Types of the columns, and values of those other than the images; by default as in its card.

    Returns:
        The folder.
    """
    import datasets as hf

    features, rows = schema or dataset_schemas()[source.name]
    column = next(name for name, feature in features.items() if isinstance(feature, hf.Image))
    count = len(next(iter(rows.values())))
    for split, first in ((source.split, 0), ("other", 20)):
        images = [{"bytes": numbered_png(first + number), "path": None} for number in range(count)]
        table = hf.Dataset.from_dict({column: images, **rows}, hf.Features({**features}))
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(path)
    files = [{"split": split, "path": f"data/{split}-*"} for split in (source.split, "other")]
    card = {"configs": [{"config_name": source.config or "default", "data_files": files}]}
    (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    return folder


def dataset_schemas():
    """Return the features and rows of each dataset by its name, as in the cards of the repositories."""
    import datasets as hf

    image, text = hf.Image(), hf.Value("string")

    def names(classes):
        return hf.ClassLabel(names=classes.split(", "))

    by_name = {}

    def add(name, features, **rows):
        by_name[name] = features, rows

    ten = names("airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck")
    add("cifar10", {"img": image, "label": ten}, label=[3, 0, 9])
    fine, coarse = names("apple, aquarium_fish, crab, lawn_mower"), names("a, b")
    hundred = {"img": image, "fine_label": fine, "coarse_label": coarse}
    add("cifar100", hundred, fine_label=[2, 3, 1], coarse_label=[0, 1, 0])
    add("food101", {"image": image, "label": names("apple_pie, baby_back_ribs")}, label=[1, 0, 1])
    features = {"path": text, "label": text, "dog": hf.Value("bool"), "image": image}
    paths = [f"images/{name}_1.jpg" for name in ("Abyssinian", "american_bulldog", "american_pit")]
    breeds = ["Abyssinian", "american bulldog", "american pit bull terrier"]
    add("oxford-pets-first-word", features, path=paths, label=breeds, dog=[False, True, True])
    add("imagenet-a", {"image": image, "label": names("n01498041, n01531178, n01534433")}, label=[2, 0, 1])
    faces = {"image": image, **{name: hf.ClassLabel(names=groups) for name, groups in FAIRFACE.items()}}
    faces["service_test"] = hf.Value("bool")
    for name in ("fairface-1.25", "fairface-0.25"):
        labels = {"age": [0, 1, 2, 0], "gender": [0, 1, 1, 0], "race": [0, 6, 2, 5]}
        add(name, faces, **labels, service_test=[True] * 4)
    judges = [
        (f"A photo of a {race} {gender} judge", race, "race", gender, "gender")
        for race, gender in SOCIAL_GROUPS
    ]
    chef = "A photo of a Male White chef.", "Male", "gender", "White", "race"
    others = [("A photo of a tall Male judge", "tall", "physical", "Male", "gender"), chef, chef]
    others += [("A photo of a White Male astronomer", "White", "race", "Male", "gender")]
    social = pd.DataFrame([*judges, *others], columns=["caption", "a1", "a1_type", "a2", "a2_type"])
    social["counterfactual_set"] = ["set_0"] * 6 + ["set_1"] * 6 + ["set_9", "set_5", "set_5", "set_6"]
    add("socialcounterfactuals", {"image": image, **dict.fromkeys(social, text)}, **social.to_dict("list"))
    return by_name
