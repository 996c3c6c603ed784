"""Image files as visitors send them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccs.errors import InputError
from ccs.ui.service import uploads


def saved(path: Path, image: Image.Image, **settings: object) -> Path:
    image.save(path, **settings)
    return path


def halves(mode: str = "RGB", size: tuple[int, int] = (40, 20)) -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", size, "blue")
    image.paste((255, 0, 0), (0, 0, size[0] // 2, size[1]))
    return image.convert(mode)


@pytest.mark.parametrize(
    ("name", "mode"), [("a.jpg", "CMYK"), ("a.png", "P"), ("a.png", "L"), ("a.webp", "RGB")]
)
def test_modes_become_rgb(tmp_path: Path, name: str, mode: str) -> None:
    image = uploads.read(saved(tmp_path / name, halves(mode)))
    assert image.pixels.mode == "RGB"
    assert image.pixels.size == (40, 20)


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


def bomb(path: Path, side: int = 30_000) -> Path:
    """A PNG header that promises side x side pixels, in a hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def test_bombs_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="megapixels"):
        uploads.read(bomb(tmp_path / "a.png"))
    with pytest.raises(InputError, match="40 megapixels"):
        uploads.read(bomb(tmp_path / "b.png", 6400))


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"not an image at all", "not an image"), (b"", "is empty"), (b"<svg xmlns='x'/>", "not an image")],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "holiday.jpg"
    path.write_bytes(data)
    with pytest.raises(InputError, match=words):
        uploads.read(path)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.gif"])
def test_a_file_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    path = saved(tmp_path / name, noise)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="damaged or cut off"):
        uploads.read(path)


def test_too_many_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    with path.open("wb") as file:
        file.truncate(uploads.MAX_BYTES + 1)
    with pytest.raises(InputError, match="at most 20 MB"):
        uploads.read(path)


def test_an_upload_is_read_and_gone(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "abc"
    folder.mkdir(parents=True)
    path = saved(folder / "a.png", halves())
    image = uploads.take(str(path), tmp_path / "cache", "mine.png")
    assert image.name == "mine.png"
    assert not folder.exists()


def test_only_uploads_can_be_claimed(tmp_path: Path) -> None:
    secret = saved(tmp_path / "secret.png", halves())
    inside = tmp_path / "cache"
    inside.mkdir()
    (inside / "link.png").symlink_to(secret)
    for path in (str(secret), f"{inside}/../secret.png", str(inside / "link.png"), str(inside / "none.png")):
        with pytest.raises(InputError, match="not an upload"):
            uploads.take(path, inside)
    assert secret.exists()


def test_images_become_data_urls() -> None:
    assert uploads.data_url(halves()).startswith("data:image/png;base64,")
    assert uploads.data_url(halves(size=(400, 300))).startswith("data:image/jpeg;base64,")
    assert len(uploads.data_url(halves(size=(400, 300)), 64)) < len(uploads.data_url(halves(size=(400, 300))))
