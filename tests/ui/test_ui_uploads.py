"""What becomes of the image files that visitors send; tests/hostile has those that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ccs.ui.service import uploads


def saved(path: Path, image: Image.Image, **settings: object) -> Path:
    image.save(path, **settings)
    return path


def halves(mode: str = "RGB", size: tuple[int, int] = (40, 20)) -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", size, "blue")
    image.paste((255, 0, 0), (0, 0, size[0] // 2, size[1]))
    return image.convert(mode)


def test_cmyk_keeps_its_colors(tmp_path: Path) -> None:
    image = uploads.read(saved(tmp_path / "a.tif", halves("CMYK")))
    red, blue = (np.array(image.pixels.getpixel(at), int) for at in ((5, 10), (35, 10)))
    assert red[0] > 200 > red[2]
    assert blue[2] > 200 > blue[0]


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    ramp = np.linspace(1000, 60000, 50 * 20).astype(np.uint16).reshape(20, 50)
    image = uploads.read(saved(tmp_path / "a.png", Image.fromarray(ramp)))
    levels = np.asarray(image.pixels)[..., 0]
    np.testing.assert_array_equal(levels, ramp // 256)  # as a run reads them


def test_transparency_falls_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (10, 10), (0, 0, 0, 0))
    image.putpixel((0, 0), (10, 20, 30, 255))
    image = uploads.read(saved(tmp_path / "a.png", image))
    assert image.pixels.getpixel((5, 5)) == (255, 255, 255)
    assert image.pixels.getpixel((0, 0)) == (10, 20, 30)


def test_a_turned_photograph_is_upright(tmp_path: Path) -> None:
    image, exif = halves(), Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    image = uploads.read(saved(tmp_path / "a.jpg", image, exif=exif, quality=95))
    assert image.pixels.size == (20, 40)
    assert image.pixels.getpixel((10, 5))[0] > 200  # type: ignore[index]


def test_of_an_animation_the_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "green", "blue")]
    image = uploads.read(saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:]))
    assert image.pixels.getpixel((4, 4)) == (255, 0, 0)


def test_large_images_are_kept_small(tmp_path: Path) -> None:
    image = uploads.read(saved(tmp_path / "a.png", Image.new("RGB", (3000, 1500), "red")))
    assert image.pixels.size == (1024, 512)


def test_images_become_data_urls() -> None:
    assert uploads.data_url(halves()).startswith("data:image/png;base64,")
    assert uploads.data_url(halves(size=(400, 300))).startswith("data:image/jpeg;base64,")
    assert len(uploads.data_url(halves(size=(400, 300)), 64)) < len(uploads.data_url(halves(size=(400, 300))))
