"""An architecture of this package, for training on few photographs: convolutions, then a small ViT.

It is a VisionTransformer of timm and is decomposed as one. `register` makes it known to timm.
"""

from functools import cache, partial
from typing import Any

from torch import Tensor, nn

NAME = "conv_stem_vit_64"
IMAGE_SIZE, WIDTH, LAYERS, HEADS = 64, 192, 4, 6


class Residual(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = _convolution(width, width), _convolution(width, width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Add two convolutions to the input."""
        changed: Tensor = self.act(x + self.second(self.act(self.first(x))))
        return changed


def _convolution(width_in: int, width_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width_in, width_out, 3, stride, 1, bias=False), nn.BatchNorm2d(width_out))


def make_stem() -> nn.Sequential:
    """Return the convolutions: pixels [n, 3, s, s] -> features [n, 128, s / 8, s / 8]."""
    relu = partial(nn.ReLU, inplace=True)
    return nn.Sequential(
        _convolution(3, 32, 2),
        relu(),
        _convolution(32, 64, 2),
        relu(),
        Residual(64),
        _convolution(64, 128, 2),
        relu(),
        Residual(128),
        Residual(128),
    )


@cache
def register() -> None:
    """Register the architecture with timm, so that open_clip can build it by name."""
    from timm.layers.hybrid_embed import HybridEmbed
    from timm.models import register_model
    from timm.models.vision_transformer import VisionTransformer

    def conv_stem_vit_64(pretrained: bool = False, num_classes: int = 0, **_: Any) -> nn.Module:
        """Build the architecture with random weights; timm calls this.

        Args:
            pretrained: Has no effect: there are no pretrained weights.
            num_classes: Number of outputs of the classifier. Default: 0, no classifier.
        """
        return VisionTransformer(
            img_size=IMAGE_SIZE,
            patch_size=1,
            embed_layer=partial(HybridEmbed, backbone=make_stem()),
            embed_dim=WIDTH,
            depth=LAYERS,
            num_heads=HEADS,
            mlp_ratio=2,
            num_classes=num_classes,
            dynamic_img_size=True,
        )

    register_model(conv_stem_vit_64)
