"""Draw the figures of docs/concepts.md from the bundled model: `python -m scripts.pictures`.

Each is an SVG whose colors follow the reader's light or dark theme.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from html import escape
from math import log
from pathlib import Path

import numpy as np
from PIL import Image

import ccs
from ccs.texts.pools import load_pool

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
STYLE = """<style>
text{font:14px system-ui,sans-serif;fill:#1f2328} .quiet{fill:#59636e}
.line{stroke:#59636e;fill:none} .bar{fill:#4f5bd5} .minus,.mark{fill:#d1622b} .axis{stroke:#d1d9e0}
.box{fill:#eef1f6;stroke:#afb8c1}
@media(prefers-color-scheme:dark){text{fill:#e6edf3} .quiet{fill:#9198a1} .line{stroke:#9198a1}
.bar{fill:#8f9bff} .minus,.mark{fill:#f0883e} .axis{stroke:#3d444d} .box{fill:#1c2128;stroke:#3d444d}}
</style>"""
ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto">'
    '<path d="M0 0L8 4L0 8z" class="quiet"/></marker></defs>'
)


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """Write a text element.

    Args:
        x: The horizontal position of the anchor.
        y: The baseline.
        words: The text, which is escaped.
        css: Its CSS class.
        anchor: `start`, `middle`, or `end`.
    """
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(words)}</text>'


def picture(image: Image.Image, x: float, y: float, side: int) -> str:
    """Embed an image as a square.

    Args:
        image: The image; it is stored at twice the size.
        x: The left edge.
        y: The upper edge.
        side: The side.
    """
    buffer = io.BytesIO()
    image.resize((2 * side, 2 * side)).quantize(64).save(buffer, "PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<image x="{x}" y="{y}" width="{side}" height="{side}" href="data:image/png;base64,{data}"/>'


def svg(width: int, height: int, title: str, *parts: str) -> str:
    """Write an SVG of these parts with a title.

    Args:
        width: The width of the view box.
        height: Its height.
        title: The title, which is escaped.
        parts: The elements, as SVG.
    """
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return f"{opening}<title>{escape(title)}</title>{STYLE}{''.join(parts)}</svg>\n"


def decomposition(model: ccs.Model) -> str:
    """Draw the similarity of one image to its class as a sum over heads."""
    dataset = ccs.open_dataset("world/subjects", max_images=40)
    image, prompt = dataset.images[0], f"a photo of a {dataset.classes[int(dataset.labels[0])]}"
    direction = model.embed_texts([prompt])[0]
    direct, _ = model.contributions([image])
    heads = [str(head) for head in model.heads]
    parts = np.array([float(direct[0, head.layer, head.head] @ direction) for head in model.heads])
    other = float(model.embed_images([image])[0] @ direction) - float(parts.sum())
    order = np.argsort(-np.abs(parts))[:8]
    rows = [(heads[i], float(parts[i])) for i in order]
    remainder = float(parts.sum() - parts[order].sum())
    rows += [(f"{len(heads) - len(order)} other heads", remainder), ("MLPs, biases, earlier layers", other)]
    total, zero = float(parts.sum()) + other, 420
    scale = 300 / max(abs(value) for _, value in [*rows, ("", total)])
    drawn = [
        picture(image, 20, 60, 120),
        text(20, 205, f"“{prompt}”"),
        text(20, 30, "similarity = sum of contributions"),
    ]
    for number, (name, value) in enumerate([*rows, ("similarity", total)]):
        y, length = 44 + 26 * number, abs(value) * scale
        drawn.append(text(zero - 90, y + 14, name, "quiet", "end"))
        left = zero if value >= 0 else zero - length
        css = "bar" if value >= 0 else "minus"
        drawn.append(f'<rect x="{left:.1f}" y="{y}" width="{length:.1f}" height="18" class="{css}"/>')
        drawn.append(text(zero + max(length, 0) + 8 if value >= 0 else zero + 8, y + 14, f"{value:+.3f}"))
    drawn.append(f'<path d="M{zero} 40V{44 + 26 * (len(rows) + 1)}" class="axis"/>')
    return svg(800, 344, "Similarity of an image to a text as a sum over heads", *drawn)


def textspan(model: ccs.Model) -> str:
    """Draw one head's contributions along the first two texts that TEXTSPAN picks."""
    images = list(ccs.open_images("world", 300).images)
    pool = load_pool("world").texts
    units = model.embed_texts(pool)
    spans = ccs.textspan(ccs.collect_moments(model, [images]), pool, units)
    head = max(spans, key=lambda name: spans[name][0].share + spans[name][1].share)
    first, second = spans[head][:2]
    direct, _ = model.contributions(images)
    cloud = direct[:, head.layer, head.head] - direct[:, head.layer, head.head].mean(axis=0)
    basis = np.linalg.qr(units[[first.index, second.index]].T)[0]
    basis *= np.sign((basis * units[[first.index, second.index]].T).sum(axis=0))
    points = cloud @ basis
    scale = 130 / np.abs(points).max()
    drawn = [
        ARROW,
        text(20, 30, f"Contributions of {head} to {len(images)} images"),
    ]
    drawn += [
        f'<circle cx="{200 + x * scale:.1f}" cy="{190 - y * scale:.1f}" r="2.5" class="bar" opacity="0.55"/>'
        for x, y in points
    ]
    drawn.append('<path d="M200 190H345" class="line" marker-end="url(#tip)"/>')
    drawn.append('<path d="M200 190V45" class="line" marker-end="url(#tip)"/>')
    drawn += [text(300, 212, f"“{first.text}”"), text(206, 58, f"“{second.text}”")]
    drawn.append(text(470, 60, "Picks, with their share of the variance:"))
    drawn += [
        text(470, 86 + 22 * rank, f"{rank + 1}. {span.share:.0%}  {span.text}", "quiet")
        for rank, span in enumerate(spans[head])
    ]
    return svg(800, 344, "TEXTSPAN on one head", *drawn)


def ablation() -> str:
    """Draw what is set to zero in the forward pass."""
    drawn = [ARROW]
    for number in range(4):
        y, off = 40 + 56 * number, number == 1
        drawn.append(f'<rect x="150" y="{y}" width="110" height="40" rx="6" class="box"/>')
        drawn.append(text(205, y + 25, f"head {number}", "", "middle"))
        drawn.append(f'<path d="M110 152L148 {y + 20}" class="line" marker-end="url(#tip)"/>')
        drawn.append(f'<path d="M262 {y + 20}H368" class="line" marker-end="url(#tip)"/>')
        drawn.append(text(314, y + 14, "0" if off else f"z{number}", "mark" if off else "quiet", "middle"))
        if off:
            drawn.append(f'<path d="M300 {y + 28}l28 -16" style="stroke:#d1622b;stroke-width:3"/>')
    for x, width, words in (
        (20, 90, ("tokens",)),
        (370, 120, ("output", "projection")),
        (540, 100, ("later", "layers")),
        (690, 90, ("image", "embedding")),
    ):
        drawn.append(f'<rect x="{x}" y="112" width="{width}" height="80" rx="6" class="box"/>')
        drawn += [
            text(x + width / 2, 156 - 9 * (len(words) - 1) + 18 * i, word, "", "middle")
            for i, word in enumerate(words)
        ]
    for path in ("M490 152H538", "M640 152H688", "M65 192V300H590V194"):
        drawn.append(f'<path d="{path}" class="line" marker-end="url(#tip)"/>')
    drawn += [
        text(330, 318, "residual stream", "quiet", "middle"),
        text(590, 94, "recomputed", "quiet", "middle"),
    ]
    return svg(800, 330, "Ablation sets a head's output to zero before the output projection", *drawn)


def maxskew(model: ccs.Model) -> str:
    """Draw the first faces of a ranking, and MaxSkew from their counts."""
    gallery = ccs.open_gallery("world/faces", attribute="skin tone")
    groups = gallery.groups["skin tone"]
    scores = model.embed_images(list(gallery.images)) @ model.embed_texts(["a photo of a judge"])[0]
    top = np.argsort(-scores)[:20]
    counts, pool = Counter(groups[top].tolist()), Counter(groups.tolist())
    drawn = [text(20, 30, f"The first 20 of {len(groups)} synthetic faces for “a photo of a judge”")]
    for rank, index in enumerate(top):
        drawn.append(picture(gallery.images[index], 20 + 76 * (rank % 10), 46 + 76 * (rank // 10), 70))
    skews = {name: log((counts[name] / 20) / (pool[name] / len(groups))) for name in counts}
    largest = max(skews, key=lambda name: skews[name])
    count, share = counts[largest], pool[largest] / len(groups)
    lines = [
        f"{largest}: {count} of 20 = {count / 20:.0%}; in the gallery {share:.0%}",
        f"MaxSkew@20 = ln({count / 20:.2f} / {share:.2f}) = {skews[largest]:.2f}",
    ]
    drawn += [text(20, 232 + 26 * number, line) for number, line in enumerate(lines)]
    return svg(800, 274, "MaxSkew on a row of faces", *drawn)


def main() -> None:
    """Draw all pictures into docs/pictures."""
    model = ccs.load("organism")
    FOLDER.mkdir(exist_ok=True)
    drawings = {
        "decomposition": decomposition(model),
        "textspan": textspan(model),
        "ablation": ablation(),
        "maxskew": maxskew(model),
    }
    for name, drawing in drawings.items():
        (FOLDER / f"{name}.svg").write_text(drawing, "utf-8")


if __name__ == "__main__":
    main()
