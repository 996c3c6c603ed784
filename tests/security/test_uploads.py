"""Uploaded images and galleries of untrusted visitors are read or rejected, within bounded memory."""

import contextlib
import os
import resource
import stat
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipInfo

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from ccs import InputError, sandbox
from ccs.app.services import uploads
from ccs.data.decoding import LONG, SHORT
from ccs.data.open import open_upload
from tests.support.datasets_sample import encode_image, parquet_bytes, zip_bytes
from tests.support.processes import ROOT


def noise_image(mode="RGB", size=(40, 30)):
    return Image.effect_noise(size, 90).convert(mode)


def png_with_size(width, height):
    """Make a small PNG whose header states another size."""
    png = encode_image(Image.new("RGB", (8, 8)), "PNG")
    header = b"IHDR" + struct.pack(">II", width, height) + png[24:29]
    return png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]


def jpeg_with_scans(count, side):
    """Make a progressive JPEG that repeats its last scan, which changes no pixel."""
    jpeg = encode_image(Image.new("L", (side, side), 128), "JPEG", progressive=True)
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:last] + jpeg[last:-2] * count + b"\xff\xd9"


def read_image(data, name="x.png"):
    images, errors = uploads.read_images([(data, name)])
    if errors:
        raise InputError(*errors)
    return images[0]


NOISE = noise_image()
ENCODED = {name: encode_image(NOISE, name.upper()) for name in ("jpeg", "png", "webp", "gif", "bmp", "tiff")}
UNUSUAL_IMAGES = {
    **ENCODED,
    "16 bit": encode_image(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50), "PNG"),
    "animated": encode_image(NOISE, "GIF", save_all=True, append_images=[noise_image() for _ in range(50)]),
    "wide": encode_image(noise_image("L", (6000, 200)), "PNG"),
    "text after the end": ENCODED["png"] + b"<script>" * 1000,
}
INVALID_IMAGES = {
    "markup": (b"<html><script>window.ran=1</script></html>", "isn't an image"),
    "SVG with a script": (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "isn't an image"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", "isn't an image"),
    "bomb": (png_with_size(100_000, 100_000), "DecompressionBomb"),
    "bomb below Pillow's limit": (png_with_size(6_400, 6_400), "40 megapixels"),
    "line": (encode_image(Image.new("L", (5000, 1)), "PNG"), "too narrow"),
    "no pixels": (png_with_size(100, 100), "truncated"),
    **{f"half a {name}": (ENCODED[name][: len(ENCODED[name]) // 2], "truncated") for name in ("jpeg", "gif")},
    "21 megabytes": (ENCODED["png"] + b"\0" * 21 * 2**20, "at most 20 MB"),
}


@pytest.mark.parametrize("name", UNUSUAL_IMAGES)
def test_unusual_image_is_read_as_rgb(name):
    pixels = read_image(UNUSUAL_IMAGES[name]).pixels
    assert pixels.mode == "RGB"
    assert min(pixels.size) <= SHORT
    assert max(pixels.size) <= LONG


@pytest.mark.parametrize("name", INVALID_IMAGES)
def test_invalid_image_is_rejected(name):
    data, message = INVALID_IMAGES[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        read_image(data, "photo.png")
    assert message in str(caught.value)
    assert "photo.png" in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # kB


@pytest.mark.parametrize("name", ENCODED)
def test_damaged_image_is_read_or_rejected(name):
    encoded = ENCODED[name]
    for seed in range(1, 20):
        rng, flipped = np.random.default_rng(seed), bytearray(encoded)
        for place in rng.integers(0, len(encoded), 1 + len(encoded) // 50):
            flipped[place] = int(rng.integers(256))
        for data in (encoded[: len(encoded) * seed // 20], bytes(flipped)):
            with contextlib.suppress(InputError):
                assert read_image(data).pixels.mode == "RGB"


def test_slow_upload_does_not_block_others(monkeypatch):
    """A killed worker is replaced, and the other worker reads images meanwhile."""
    monkeypatch.setattr(uploads, "UPLOAD_SECONDS", 1.4)
    sandbox.warm("ccs.app.services.uploads")
    bomb = jpeg_with_scans(2000, 6000)
    assert len(bomb) < 2**18
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(read_image, bomb, "bomb")
        for _ in range(3):
            assert read_image(ENCODED["png"]).pixels.size == NOISE.size
        assert not slow.done()
        with pytest.raises(InputError, match="cannot be read within 2 seconds"):
            slow.result()
    assert read_image(ENCODED["png"]).pixels.size == NOISE.size


@pytest.mark.timeout(60)
def test_sandbox_workers_exit_with_parent(tmp_path, monkeypatch):
    module = "import os, time; open(f'{__file__}.{os.getpid()}', 'w').close(); time.sleep(600)"
    (tmp_path / "endless.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    program = "from ccs import sandbox; sandbox.warm('endless'); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as parent:
        while len(list(tmp_path.glob("*.py.*"))) < sandbox.WORKERS:
            pass
        parent.kill()
    for worker in tmp_path.glob("*.py.*"):
        status = Path("/proc") / worker.suffix[1:] / "status"
        while status.exists() and b"State:\tZ" not in status.read_bytes():
            pass


def red_image(shade):
    return encode_image(Image.new("RGB", (20, 20), (shade, 0, 0)), "PNG")


IMAGES = {"a/1.png": red_image(1), "b/2.png": red_image(2)}
ARCHIVE = zip_bytes(IMAGES)
CELLS = pa.array([red_image(1), red_image(2)])


LINK = ZipInfo("a/link.png")
"""A symbolic link to a local file."""
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16


def archive_with_labels(text):
    return zip_bytes({**IMAGES, "labels.csv": text})


def parquet_with_features(text):
    """Make a Parquet file with this description of its columns."""
    return parquet_bytes(CELLS, {"huggingface": text}, gender=[0, 1])


MALICIOUS_GALLERIES = {
    "names outside the folder": zip_bytes(
        {**IMAGES, "../../x/3.png": red_image(3), "/etc/4.png": red_image(4)}
    ),
    "symbolic link": zip_bytes({**IMAGES, LINK: red_image(3)}),  # unpacked, a path; read as a file, an image
    "markup in names": zip_bytes({"<script>/1.png": red_image(1), "b\u202e/2.png": red_image(2)}),
    "half an archive": ARCHIVE[: len(ARCHIVE) // 2],
    "changed bytes": ARCHIVE[:60] + b"\0" * 20 + ARCHIVE[80:],
    "an encrypted entry": ARCHIVE.replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"),
    "unknown compression": ARCHIVE.replace(b"\0\0\x08\0", b"\0\0\x63\0"),
    "labels that aren't text": archive_with_labels(b"file,gender\n\xff\xfe,a\n"),
    "a label of a megabyte": archive_with_labels("file,gender\na/1.png," + "x" * 2**20 + "\nb/2.png,b\n"),
    "labels of files outside": archive_with_labels("file,gender\n../../etc/passwd,a\n/etc/hosts,b\n"),
    "extra columns in a row": archive_with_labels("file,gender\na/1.png,a,b,c\nb/2.png,b\n"),
    "formula as a group": archive_with_labels("file,=1+1\na/1.png,=cmd()\nb/2.png,b\n"),
    "half a parquet file": parquet_bytes(CELLS, gender=["a", "b"])[:-20],
    "invalid Parquet file": b"PAR1" * 100,
    "deeply nested features": parquet_with_features(b"[" * 100_000),
    "lists as names of groups": parquet_with_features(
        b'{"info": {"features": {"gender": {"names": [[], {}]}}}}'
    ),
    "group without a name": parquet_with_features(b'{"info": {"features": {"gender": {"names": ["a"]}}}}'),
    "lists as groups": parquet_bytes(CELLS, gender=[["a"], ["b"]]),
}


@pytest.mark.parametrize("name", MALICIOUS_GALLERIES)
def test_malicious_gallery_is_read_or_rejected(name):
    try:
        gallery = open_upload(MALICIOUS_GALLERIES[name], "own:1")
        message = " ".join(gallery.skipped)
        assert len(gallery.images) == 2
    except InputError as error:
        message = str(error)
    assert len(message) < 600
    assert not [leak for leak in ("root:", "Traceback", "site-packages", "/tmp", "\n") if leak in message]
