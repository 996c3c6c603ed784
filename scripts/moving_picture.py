"""Record README's animation from the app: `python scripts/moving_picture.py`.

One click on the first screen ablates heads; the faces move and MaxSkew falls.
"""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image, ImageDraw
from screenshot import SETTLED, chromium, served

OUT = Path(__file__).parents[1] / "docs" / "app.gif"
SIZE = (1100, 700)
BUTTON = ".act .primary"
MAX_BYTES = 1_500_000


def main() -> None:
    """Open the app, click, and save the frames."""
    frames: list[Image.Image] = []
    with chromium() as browser, served() as url:
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.set_default_timeout(300_000)
        page.goto(f"{url}?model=organism")
        page.wait_for_selector(SETTLED)

        def take() -> Image.Image:
            return Image.open(io.BytesIO(page.screenshot())).convert("RGB")

        page.evaluate("document.querySelector('.hero .whole').scrollIntoView({ block: 'end' })")
        box = page.locator(BUTTON).first.bounding_box()
        at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        before = take()
        clicked = before.copy()
        for radius in (10, 18):
            corners = [at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius]
            ImageDraw.Draw(clicked).ellipse(corners, outline=(220, 40, 90), width=4)
        turn = page.evaluate("document.body.dataset.ready")
        page.mouse.click(*at)
        page.wait_for_selector(f'{SETTLED}:not([data-ready="{turn}"])')
        page.mouse.move(2, 2)
        page.wait_for_timeout(1500)
        frames = [before, clicked, *[Image.blend(clicked, take(), part) for part in (0.35, 0.7)], take()]
    palette = frames[-1].quantize(128)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [2200, 700, 120, 120, 4000]  # milliseconds
    small[0].save(OUT, save_all=True, append_images=small[1:], duration=durations, loop=0, optimize=True)
    if OUT.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{OUT} has {OUT.stat().st_size:,} bytes, more than {MAX_BYTES:,}.")
    print(f"{OUT} is written.")


if __name__ == "__main__":
    main()
