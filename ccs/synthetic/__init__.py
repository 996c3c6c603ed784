"""The synthetic world: scenes with known factors, their images, and their captions."""

from ccs.synthetic.scene import Scene, captions, draw, scene

__all__ = ["Scene", "captions", "draw", "scene"]
