"""A CLIP image tower taken apart: plans that share their work, and what each head writes.

The forward pass is written out here from the parameters of an open_clip VisionTransformer, without hooks and
without changing a weight, so any number of threads may run different plans on one tower. A head is switched
off by setting its output (the attention-weighted values) to zero before the output projection; later layers
see it.

Shapes: n images, T tokens (CLS first), W width, L layers, H heads, d = W / H head dimension, D embedding
dimension.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import Head, HeadSet


@dataclass(frozen=True)
class Trunk:
    """Activations [n, T, W] as they enter `layer`: what plans that touch no earlier layer have in common."""

    tokens: Tensor
    layer: int

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Readout:
    """What reaches the CLS token of each image.

    heads: [n, L, H, d], each head's attention-weighted values for the CLS query.
    rest: [n, W], the sum of everything else in the residual stream (the embedding and the MLPs).
    mean, std: [n], the statistics of the image's last CLS state that ln_post divides out.
    norm: [n], the length of the image embedding before it is made a unit vector.
    """

    heads: Tensor
    rest: Tensor
    mean: Tensor
    std: Tensor
    norm: Tensor


class ImageTower:
    """The image tower of one model. `visual` is open_clip's module; its weights are read, never written.

    `autocast` runs `embed` and `trunk` in that type (bfloat16, float16); contributions are always float32.
    Raises InputError for towers without a CLS read-out and for custom attention blocks.
    """

    def __init__(self, visual: Any, autocast: torch.dtype | None = None) -> None:
        _require_cls_readout(visual)
        self.visual = visual
        self._autocast = autocast
        self._blocks = list(visual.transformer.resblocks)
        self.n_layers = len(self._blocks)
        self.width = int(visual.class_embedding.shape[0])
        self.n_heads = int(self._blocks[0].attn.num_heads)
        self.head_dim = self.width // self.n_heads
        self.dim = int(visual.proj.shape[1])
        self.n_tokens = int(visual.positional_embedding.shape[0])
        size = visual.image_size
        self.image_size: tuple[int, int] = (int(size[0]), int(size[1]))
        self.first_prunable_layer = max(0, self.n_layers - 4)
        self._bases: dict[int, Tensor] = {}

    @property
    def heads(self) -> HeadSet:
        """The heads of the last four layers, which the study scores and switches off."""
        layers = range(self.first_prunable_layer, self.n_layers)
        return HeadSet(Head(layer, head) for layer in layers for head in range(self.n_heads))

    @property
    def device(self) -> torch.device:
        return torch.device(self.visual.class_embedding.device)

    def require(self, heads: HeadSet) -> None:
        """Raise InputError if a head is not one of this tower's (any layer)."""
        for head in heads:
            if head.layer >= self.n_layers or head.head >= self.n_heads:
                raise InputError(
                    f"{head} is outside this model, which has layers L0 to L{self.n_layers - 1} "
                    f"with heads H0 to H{self.n_heads - 1}."
                )

    # -- the forward pass ------------------------------------------------------------------------------------

    @torch.no_grad()
    def embed(self, pixels: Tensor, plans: Sequence[HeadSet] = (HeadSet(),)) -> Tensor:
        """Unit embeddings [plans, n, D] float32 of pixels [n, 3, s, s], each plan with its heads off.

        Plans form a tree: as long as they agree they are one pass. Memory is that of one path through it.
        """
        start = min((head.layer for plan in plans for head in plan), default=self.n_layers - 1)
        with self._precision():
            return self._embed_from(self._tokens(pixels, start), start, plans)

    @torch.no_grad()
    def trunk(self, pixels: Tensor, layer: int | None = None) -> Trunk:
        """The activations as they enter `layer` (default: the first of the last four)."""
        layer = self.first_prunable_layer if layer is None else layer
        with self._precision():
            return Trunk(self._tokens(pixels, layer), layer)

    @torch.no_grad()
    def embed_trunk(self, trunk: Trunk, plans: Sequence[HeadSet] = (HeadSet(),)) -> Tensor:
        """As `embed`, from where `trunk` stopped; plans may not touch an earlier layer."""
        for plan in plans:
            for head in plan:
                if head.layer < trunk.layer:
                    raise InputError(f"{head} lies below layer {trunk.layer}, where this trunk ends.")
        with self._precision():
            return self._embed_from(trunk.tokens.to(self.device), trunk.layer, plans)

    def _embed_from(self, x: Tensor, layer: int, plans: Sequence[HeadSet]) -> Tensor:
        for plan in plans:
            self.require(plan)
        out = torch.empty(len(plans), len(x), self.dim, device=self.device)
        if plans and len(x):
            self._descend(x, layer, list(enumerate(plans)), out)
        return out

    def _descend(self, x: Tensor, layer: int, plans: list[tuple[int, HeadSet]], out: Tensor) -> None:
        while True:
            # Up to its output projection a layer is the same for all plans that agree below it.
            last = layer == self.n_layers - 1
            values = self._cls_values(x, layer) if last else self._values(x, layer)
            branches: dict[tuple[int, ...], list[tuple[int, HeadSet]]] = defaultdict(list)
            for index, plan in plans:
                branches[plan.in_layer(layer)].append((index, plan))
            if last:
                for off, members in branches.items():
                    cls = self._finish_block(x[:, 0], self._without(values, off), layer)
                    unit = F.normalize(self._project(cls).float(), dim=-1)
                    for index, _ in members:
                        out[index] = unit
                return
            if len(branches) > 1:
                for off, members in branches.items():
                    after = self._finish_block(x, self._without(values, off), layer)
                    self._descend(after, layer + 1, members, out)
                return
            off, plans = next(iter(branches.items()))
            x = self._finish_block(x, self._without(values, off), layer)
            layer += 1

    def _tokens(self, pixels: Tensor, layer: int) -> Tensor:
        """Tokens [n, T, W] as they enter `layer`."""
        x = self._patches(pixels.to(self.device, torch.float32))
        for below in range(layer):
            x = self._finish_block(x, self._values(x, below), below)
        return x

    def _patches(self, pixels: Tensor) -> Tensor:
        """Embedded patches and CLS token [n, T, W].

        A linear map of each patch, not a convolution: on a GPU that would run in TF32 and cost three digits.
        """
        weight = self.visual.conv1.weight
        high, wide = weight.shape[-2:]
        n, channels = pixels.shape[:2]
        rows, columns = pixels.shape[2] // high, pixels.shape[3] // wide
        grid = pixels[:, :, : rows * high, : columns * wide].reshape(n, channels, rows, high, columns, wide)
        patches = grid.permute(0, 2, 4, 1, 3, 5).reshape(n, rows * columns, channels * high * wide)
        x = F.linear(patches, weight.flatten(1)).float()
        cls = self.visual.class_embedding.expand(n, 1, -1)
        x = torch.cat([cls, x], dim=1) + self.visual.positional_embedding
        return x if isinstance(self.visual.ln_pre, nn.Identity) else _layer_norm(x, self.visual.ln_pre)

    def _values(self, x: Tensor, layer: int) -> Tensor:
        """Attention-weighted values of every token and head, side by side: [n, T, W]."""
        block = self._blocks[layer]
        n, tokens, width = x.shape
        qkv = F.linear(_layer_norm(x, block.ln_1), block.attn.in_proj_weight, block.attn.in_proj_bias)
        q, k, v = qkv.reshape(n, tokens, 3, self.n_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width)

    def _cls_values(self, x: Tensor, layer: int) -> Tensor:
        """The same for the CLS query only: [n, W].

        With one query the key and value projections move to its side, `q . (K x) = (K' q) . x` and
        `sum a (V x) = V (sum a x)`, so no key or value of another token is ever formed. A key bias adds the
        same to every score and drops out; attention sums to one, so the value bias is added once.
        """
        block = self._blocks[layer]
        n, heads, d = len(x), self.n_heads, self.head_dim
        x = _layer_norm(x, block.ln_1)
        w_q, w_k, w_v = block.attn.in_proj_weight.chunk(3)
        b_q, _, b_v = block.attn.in_proj_bias.chunk(3)
        q = F.linear(x[:, 0], w_q, b_q).reshape(n, heads, d) * d**-0.5
        key_side = torch.einsum("nhd,hdw->nhw", q, w_k.reshape(heads, d, -1))
        attention = torch.softmax(key_side @ x.transpose(1, 2), dim=-1)  # [n, H, T]
        values = torch.einsum("nhw,hdw->nhd", attention.to(x.dtype) @ x, w_v.reshape(heads, d, -1))
        cls: Tensor = values.reshape(n, -1) + b_v
        return cls

    def _without(self, values: Tensor, off: tuple[int, ...]) -> Tensor:
        if not off:
            return values
        keep = torch.ones(self.n_heads, dtype=values.dtype, device=values.device)
        keep[list(off)] = 0
        return values * keep.repeat_interleave(self.head_dim)

    def _finish_block(self, x: Tensor, values: Tensor, layer: int) -> Tensor:
        """The rest of a layer: output projection, residual, MLP, residual. x and values: [..., W]."""
        x = x + self._attention_out(values, layer)
        return x + self._mlp_out(x, layer)

    def _attention_out(self, values: Tensor, layer: int) -> Tensor:
        block = self._blocks[layer]
        return _scaled(F.linear(values, block.attn.out_proj.weight, block.attn.out_proj.bias), block.ls_1)

    def _mlp_out(self, x: Tensor, layer: int) -> Tensor:
        block = self._blocks[layer]
        mlp = block.mlp
        hidden = mlp.gelu(F.linear(_layer_norm(x, block.ln_2), mlp.c_fc.weight, mlp.c_fc.bias))
        return _scaled(F.linear(hidden, mlp.c_proj.weight, mlp.c_proj.bias), block.ls_2)

    def _project(self, cls: Tensor) -> Tensor:
        raw: Tensor = _layer_norm(cls, self.visual.ln_post) @ self.visual.proj
        return raw

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        if self._autocast is None:
            return torch.autocast(self.device.type, enabled=False)
        return torch.autocast(self.device.type, self._autocast)

    # -- contributions ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def readout(self, pixels: Tensor) -> Readout:
        """One float32 pass over pixels [n, 3, s, s] that keeps what every head passes to the CLS token."""
        with torch.autocast(self.device.type, enabled=False):
            x = self._patches(pixels.to(self.device, torch.float32))
            rest, heads = x[:, 0], []
            for layer in range(self.n_layers):
                if layer < self.n_layers - 1:
                    values = self._values(x, layer)
                    heads.append(values[:, 0].clone())
                else:  # from here on only the CLS token matters
                    x, values = x[:, :1], self._cls_values(x, layer)[:, None]
                    heads.append(values[:, 0])
                x = x + self._attention_out(values, layer)
                mlp = self._mlp_out(x, layer)
                rest = rest + mlp[:, 0]
                x = x + mlp
            cls = x[:, 0]
            variance, mean = torch.var_mean(cls, dim=-1, correction=0)
            return Readout(
                heads=torch.stack(heads, 1).reshape(len(x), self.n_layers, self.n_heads, self.head_dim),
                rest=rest,
                mean=mean,
                std=(variance + self.visual.ln_post.eps).sqrt(),
                norm=self._project(cls).norm(dim=-1),
            )

    @torch.no_grad()
    def basis(self, layer: int) -> Tensor:
        """The directions a head of `layer` can write to in the embedding space: [H, d + 3, D].

        A head's contribution to the unit embedding is `coordinates @ basis`, exactly: d directions for its
        values, then its share of the output projection's bias, of ln_post's mean and of ln_post's bias. These
        shares are those of the reference study: the projection's bias over the H heads, the other two over
        the 2 L + 1 terms of the residual stream and, within an attention layer's term, over its H heads.
        """
        if layer not in self._bases:  # two threads at once would compute the same tensor twice, no more
            block, gamma, beta = self._blocks[layer], self.visual.ln_post.weight, self.visual.ln_post.bias
            scale = gamma if isinstance(block.ls_1, nn.Identity) else gamma * block.ls_1.gamma
            with torch.autocast(self.device.type, enabled=False):
                written = (block.attn.out_proj.weight.T * scale) @ self.visual.proj  # [W, D]
                share = self.n_heads * (2 * self.n_layers + 1)
                shared = torch.stack(
                    [
                        (block.attn.out_proj.bias * scale) @ self.visual.proj / self.n_heads,
                        -gamma @ self.visual.proj / share,
                        beta @ self.visual.proj / share,
                    ]
                )
            own = written.reshape(self.n_heads, self.head_dim, self.dim)
            self._bases[layer] = torch.cat([own, shared.expand(self.n_heads, -1, -1)], dim=1)
        return self._bases[layer]

    def coordinates(self, readout: Readout, layer: int) -> Tensor:
        """Coordinates [n, H, d + 3] of the contributions of `layer`'s heads in `basis(layer)`."""
        scale = 1 / (readout.std * readout.norm)
        shared = torch.stack([scale, scale * readout.mean, 1 / readout.norm], dim=-1)
        own = readout.heads[:, layer] * scale[:, None, None]
        return torch.cat([own, shared[:, None].expand(-1, self.n_heads, -1)], dim=-1)

    @torch.no_grad()
    def contributions(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Direct effects of heads [n, L, H, D] and of all else [n, D]; they sum to the unit embedding."""
        readout = self.readout(pixels)
        direct = torch.empty(len(pixels), self.n_layers, self.n_heads, self.dim, device=self.device)
        for layer in range(self.n_layers):
            by_head = self.coordinates(readout, layer).transpose(0, 1) @ self.basis(layer)  # [H, n, D]
            direct[:, layer] = by_head.transpose(0, 1)
        gamma, beta = self.visual.ln_post.weight, self.visual.ln_post.bias
        share = (self.n_layers + 1) / (2 * self.n_layers + 1)
        rest = (readout.rest - share * readout.mean[:, None]) / readout.std[:, None] * gamma + share * beta
        return direct, rest @ self.visual.proj / readout.norm[:, None]


def _layer_norm(x: Tensor, norm: Any) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(x.dtype)


def _scaled(x: Tensor, layer_scale: Any) -> Tensor:
    return x if isinstance(layer_scale, nn.Identity) else x * layer_scale.gamma


def _require_cls_readout(visual: Any) -> None:
    from open_clip.transformer import ResidualAttentionBlock, VisionTransformer

    reason = ""
    if not isinstance(visual, VisionTransformer):
        reason = "it is not a Vision Transformer of open_clip's own"
    elif visual.attn_pool is not None:
        reason = "it pools its tokens by attention"
    elif visual.pool_type != "tok":
        reason = f"its pooling is {visual.pool_type!r}"
    elif not all(type(block) is ResidualAttentionBlock for block in visual.transformer.resblocks):
        reason = "its attention blocks are custom ones"
    elif visual.proj is None:
        reason = "it has no projection into the space it shares with texts"
    if reason:
        raise InputError(
            f"The image tower {type(visual).__name__} cannot be taken apart by head because {reason}; "
            "what is needed is a Vision Transformer whose embedding is read from the CLS token."
        )
