"""Write the embeddings that the app's first screen shows: `python -m scripts.first_screen`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ccs import bundled, results
from ccs.app.controls import open_screen
from ccs.app.services.galleries import DRAWN, PICTURES, SEED
from ccs.app.session import App, Session
from ccs.app.views.classify import find_story
from ccs.data.open import open_gallery, open_images
from ccs.heads import HeadSet

MODEL = "organism"  # the app opens on it


def compute() -> dict[str, np.ndarray]:
    """Return the faces' embeddings, and the contributions of the head that the screen shows."""
    screen = open_screen(App(results.load()), Session(), {"tab": "start", "model": MODEL})
    model, (head, _) = screen.model, find_story(screen)
    faces, pictures = open_gallery(DRAWN.people), open_images(DRAWN.pictures, PICTURES, seed=SEED)
    _, contributions = model.embed_with_contributions(list(pictures.images), HeadSet(), HeadSet([head]))
    return {
        f"{model.weights_hash} {faces.fingerprint} ": model.embed_images(list(faces.images)),
        f"{model.weights_hash} {pictures.fingerprint} {head}": contributions.direct[:, 0],
    }


if __name__ == "__main__":
    save_file(compute(), Path(bundled.__file__).parent / MODEL / bundled.EMBEDDINGS)
