"""Uploads of untrusted visitors: images, galleries, or one sentence, in bounded memory."""

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


def noise(mode="RGB", size=(40, 30)):
    return Image.effect_noise(size, 90).convert(mode)


def png(width, height):
    """A small PNG whose header says that it is of another size."""
    whole = encode_image(Image.new("RGB", (8, 8)), "PNG")
    header = b"IHDR" + struct.pack(">II", width, height) + whole[24:29]
    return whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]


def many_scans(count, side):
    """A progressive JPEG whose last scan, of a bit that changes nothing, comes again and again."""
    whole = encode_image(Image.new("L", (side, side), 128), "JPEG", progressive=True)
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * count + b"\xff\xd9"


def take(data, name="x.png"):
    """The image, or its sentence."""
    good, bad = uploads.read_images([(data, name)])
    if bad:
        raise InputError(*bad)
    return good[0]


RGB = noise()
WHOLE = {kind: encode_image(RGB, kind.upper()) for kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff")}
TAKEN = {
    **WHOLE,
    "16 bit": encode_image(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50), "PNG"),
    "animated": encode_image(RGB, "GIF", save_all=True, append_images=[noise() for _ in range(50)]),
    "wide": encode_image(noise("L", (6000, 200)), "PNG"),
    "text after the end": WHOLE["png"] + b"<script>" * 1000,
}
REFUSED = {
    "markup": (b"<html><script>window.ran=1</script></html>", "isn't an image"),
    "a drawing with a script": (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "isn't an image"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", "isn't an image"),
    "a bomb": (png(100_000, 100_000), "DecompressionBomb"),
    "a bomb below Pillow's limit": (png(6_400, 6_400), "40 megapixels"),
    "a line": (encode_image(Image.new("L", (5000, 1)), "PNG"), "too narrow"),
    "no data": (png(100, 100), "truncated"),
    **{f"half a {kind}": (WHOLE[kind][: len(WHOLE[kind]) // 2], "truncated") for kind in ("jpeg", "gif")},
    "21 megabytes": (WHOLE["png"] + b"\0" * 21 * 2**20, "at most 20 MB"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_an_odd_image_is_taken_as_rgb(kind):
    pixels = take(TAKEN[kind]).pixels
    assert pixels.mode == "RGB"
    assert min(pixels.size) <= SHORT
    assert max(pixels.size) <= LONG


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_no_image_is_refused_in_a_sentence(kind):
    data, message = REFUSED[kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        take(data, "photo.png")
    assert message in str(caught.value)
    assert "photo.png" in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # kB


@pytest.mark.parametrize("kind", WHOLE)
def test_a_damaged_file_is_an_image_or_a_sentence(kind):
    whole = WHOLE[kind]
    for seed in range(1, 20):
        rng, flipped = np.random.default_rng(seed), bytearray(whole)
        for place in rng.integers(0, len(whole), 1 + len(whole) // 50):
            flipped[place] = int(rng.integers(256))
        for data in (whole[: len(whole) * seed // 20], bytes(flipped)):
            with contextlib.suppress(InputError):
                assert take(data).pixels.mode == "RGB"


def test_a_hostile_upload_keeps_nobody_waiting(monkeypatch):
    """A worker that was killed is replaced, and the other one answers meanwhile."""
    monkeypatch.setattr(uploads, "UPLOAD_SECONDS", 1.4)
    sandbox.warm("ccs.app.services.uploads")
    bomb = many_scans(2000, 6000)
    assert len(bomb) < 2**18
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(take, bomb, "bomb")
        for _ in range(3):
            assert take(WHOLE["png"]).pixels.size == RGB.size
        assert not slow.done()
        with pytest.raises(InputError, match="cannot be read within 2 seconds"):
            slow.result()
    assert take(WHOLE["png"]).pixels.size == RGB.size


@pytest.mark.timeout(60)
def test_workers_end_with_their_parent_while_they_import(tmp_path, monkeypatch):
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


def red(shade):
    return encode_image(Image.new("RGB", (20, 20), (shade, 0, 0)), "PNG")


TWO = {"a/1.png": red(1), "b/2.png": red(2)}
PLAIN = zip_bytes(TWO)
CELLS = pa.array([red(1), red(2)])


LINK = ZipInfo("a/link.png")
"""A symbolic link to a file of this machine."""
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16


def labels(text):
    return zip_bytes({**TWO, "labels.csv": text})


def features(text):
    """A parquet file that says this of its columns."""
    return parquet_bytes(CELLS, {"huggingface": text}, gender=[0, 1])


GALLERIES = {
    "names that lead out": zip_bytes({**TWO, "../../x/3.png": red(3), "/etc/4.png": red(4)}),
    "a link": zip_bytes({**TWO, LINK: red(3)}),  # unpacked, its content is the path; read as a file, an image
    "markup in names": zip_bytes({"<script>/1.png": red(1), "b\u202e/2.png": red(2)}),
    "half an archive": PLAIN[: len(PLAIN) // 2],
    "bytes that are other ones": PLAIN[:60] + b"\0" * 20 + PLAIN[80:],
    "an encrypted entry": PLAIN.replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"),
    "a way of packing that there is not": PLAIN.replace(b"\0\0\x08\0", b"\0\0\x63\0"),
    "labels that are no text": labels(b"file,gender\n\xff\xfe,a\n"),
    "a label of a megabyte": labels("file,gender\na/1.png," + "x" * 2**20 + "\nb/2.png,b\n"),
    "labels of files outside": labels("file,gender\n../../etc/passwd,a\n/etc/hosts,b\n"),
    "a column too many in a row": labels("file,gender\na/1.png,a,b,c\nb/2.png,b\n"),
    "a formula for a group": labels("file,=1+1\na/1.png,=cmd()\nb/2.png,b\n"),
    "half a parquet file": parquet_bytes(CELLS, gender=["a", "b"])[:-20],
    "no parquet file": b"PAR1" * 100,
    "features that are deep": features(b"[" * 100_000),
    "features that are a list": features(b'{"info": {"features": {"gender": {"names": [[], {}]}}}}'),
    "groups beyond their names": features(b'{"info": {"features": {"gender": {"names": ["a"]}}}}'),
    "groups that are lists": parquet_bytes(CELLS, gender=[["a"], ["b"]]),
}


@pytest.mark.parametrize("kind", GALLERIES)
def test_a_hostile_gallery_is_a_set_or_a_sentence(kind):
    try:
        gallery = open_upload(GALLERIES[kind], "own:1")
        words = " ".join(gallery.skipped)
        assert len(gallery.images) == 2
    except InputError as error:
        words = str(error)
    assert len(words) < 600
    assert not [leak for leak in ("root:", "Traceback", "site-packages", "/tmp", "\n") if leak in words]
