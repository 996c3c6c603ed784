"""The synthetic world: scenes with known factors, their images, and their captions."""

from ccs.synthetic.scene import Scene, caption, draw, scene

__all__ = ["Scene", "caption", "draw", "scene"]
