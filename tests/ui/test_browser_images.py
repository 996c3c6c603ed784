"""Images of one's own in a browser: uploaded, pasted, from the camera; and files that are none."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

from PIL import Image

from ccs.ui.shared import App
from tests.support.browser_page import MARKS, Page, browser, done, made, visit

__all__ = ["browser", "made", "visit"]  # fixtures
pytestmark = MARKS


def png(color: str = "red") -> str:
    data = io.BytesIO()
    Image.new("RGB", (70, 50), color).save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def left_over(app: App) -> list[Path]:
    return [path for path in app.uploads.rglob("*") if path.is_file()]


def test_uploads_good_and_bad(visit: Callable[..., Page], made: tuple[App, str], tmp_path: Path) -> None:
    Image.new("RGB", (60, 30), "red").save(tmp_path / "good.jpg")
    (tmp_path / "text.png").write_text("no image")
    page = visit("tab=classify&off=L7.H2")
    names = ("good.jpg", "text.png")
    done(page, lambda: page.set_input_files("input[data-files]", [str(tmp_path / name) for name in names]))
    assert "text.png is not an image" in page.inner_text(".notice.bad")
    assert page.locator(".answer").count() == 1
    assert left_over(made[0]) == []
    done(page, lambda: page.click('[aria-label="Remove good.jpg"]'))
    assert page.locator(".answer").count() == 4


def test_an_image_from_the_clipboard_itself(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&off=L7.H2")
    page.evaluate(
        """async data => {
            const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
            const blob = new Blob([bytes], { type: "image/png" });
            await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
        }""",
        png(),
    )
    page.focus(".tray button")
    for count in (1, 2):
        done(page, lambda: page.keyboard.press("Control+v"))
        assert page.locator(".answer").count() == count


def test_an_image_from_the_camera(visit: Callable[..., Page], made: tuple[App, str]) -> None:
    page = visit("tab=classify&off=L7.H2")
    page.click("[data-camera]")
    page.wait_for_function("document.querySelector('dialog video')?.videoWidth > 0")
    done(page, lambda: page.click("dialog >> text=Take"))
    assert page.locator("dialog").count() == 0
    assert "camera.jpg" in page.inner_text(".answer")
    assert left_over(made[0]) == []


def test_a_gallery_of_ones_own_is_measured(
    visit: Callable[..., Page], made: tuple[App, str], tmp_path: Path
) -> None:
    with ZipFile(tmp_path / "faces.zip", "w") as archive:
        for i, (group, color) in enumerate([("red", "red"), ("blue", "blue")] * 6):
            archive.writestr(f"{group}/{i}.png", base64.b64decode(png(color)))
    page = visit("tab=bias&off=none&occupations=judge")
    done(page, lambda: page.set_input_files("[data-gallery]", str(tmp_path / "faces.zip")))
    assert "your own (12)" in page.inner_text("form.ask")
    assert "blue" in page.inner_text("[data-name=groups]")
    assert "own" not in page.url  # no link holds it
    assert left_over(made[0]) == []
    (tmp_path / "bad.zip").write_text("no zip")
    done(page, lambda: page.set_input_files("[data-gallery]", str(tmp_path / "bad.zip")))
    assert "cannot be read as zip or parquet" in page.inner_text(".notice.bad")
