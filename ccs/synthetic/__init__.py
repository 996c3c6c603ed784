"""The drawn world: scenes with known factors, their images and captions, and the models trained on them."""

from ccs.synthetic.scene import Scene, captions, draw, scene

__all__ = ["Scene", "captions", "draw", "scene"]
