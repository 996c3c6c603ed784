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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import Head, HeadSet

NOTHING_OFF = HeadSet()


@dataclass(frozen=True)
class Trunk:
    """Activations [n, T, W] as they enter `layer`: what plans that touch no earlier layer have in common."""

    tokens: Tensor
    layer: int

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Trunk:
        return Trunk(self.tokens[rows], self.layer)


@dataclass(frozen=True)
class Readout:
    """What reaches the CLS token of each image when no head is off, in float32.

    values: layer -> [n, W], each head's attention-weighted values for the CLS query, side by side, for the
    layers that were run. cls: [n, W], the last CLS state. mean, std: [n], its statistics, which ln_post
    divides out. norm: [n], the length of the image embedding before it is made a unit vector. unit: [n, D],
    the unit embedding.
    """

    values: Mapping[int, Tensor]
    cls: Tensor
    mean: Tensor
    std: Tensor
    norm: Tensor
    unit: Tensor


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
    def all_heads(self) -> HeadSet:
        """The heads of every layer."""
        return HeadSet(Head(layer, head) for layer in range(self.n_layers) for head in range(self.n_heads))

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
    def embed(self, images: Tensor | Trunk, plans: Sequence[HeadSet] = (NOTHING_OFF,)) -> Tensor:
        """Unit embeddings [plans, n, D] float32, each plan with its heads off.

        images: pixels [n, 3, s, s], or a trunk, in which case no plan may touch a layer below its own. Plans
        form a tree: as long as they agree they are one pass. Memory is that of one path through it.
        """
        with self._precision():
            return self._embed(images, plans)

    @torch.no_grad()
    def trunk(self, images: Tensor | Trunk, layer: int | None = None, off: HeadSet = NOTHING_OFF) -> Trunk:
        """The activations as they enter `layer` (default: the first of the last four), with heads off."""
        layer = self.first_prunable_layer if layer is None else layer
        with self._precision():
            return Trunk(self._tokens(images, layer, off), layer)

    @torch.no_grad()
    def attention(self, images: Tensor | Trunk, layer: int, off: HeadSet = NOTHING_OFF) -> Tensor:
        """Attention [n, H, T] of the CLS query in one layer, CLS first, with heads below the layer off."""
        with self._precision():
            x = self._tokens(images, layer, off)
            return self._cls_attention(_layer_norm(x, self._blocks[layer].ln_1), layer).float()

    def _embed(
        self, images: Tensor | Trunk, plans: Sequence[HeadSet], record: dict[int, Tensor] | None = None
    ) -> Tensor:
        for plan in plans:
            self.require(plan)
        lowest = min((head for plan in plans for head in plan), default=Head(self.n_layers - 1, 0))
        layer = images.layer if isinstance(images, Trunk) else lowest.layer
        if lowest.layer < layer:
            raise InputError(f"{lowest} lies below layer {layer}, where this trunk ends.")
        out = torch.empty(len(plans), len(images), self.dim, device=self.device)
        if plans and len(images):
            x = self._tokens(images, layer, record=record)
            self._descend(x, layer, list(enumerate(plans)), out, record)
        return out

    def _descend(
        self,
        x: Tensor,
        layer: int,
        plans: list[tuple[int, HeadSet]],
        out: Tensor,
        record: dict[int, Tensor] | None,
    ) -> None:
        """Write the embeddings of `plans`, which agree below `layer`, to their rows of `out`.

        record: takes the CLS values of each layer while nothing is off and, under the number after the last
        layer's, the last CLS state.
        """
        while True:
            # Up to its output projection a layer is the same for all plans that agree below it.
            last = layer == self.n_layers - 1
            values = self._cls_values(x, layer) if last else self._values(x, layer)
            if record is not None:
                record[layer] = values if last else values[:, 0].clone()
            branches: dict[tuple[int, ...], list[tuple[int, HeadSet]]] = defaultdict(list)
            for index, plan in plans:
                branches[plan.in_layer(layer)].append((index, plan))
            if last:
                for off, members in branches.items():
                    cls = self._finish_block(x[:, 0], self._without(values, off), layer)
                    out[[index for index, _ in members]] = F.normalize(self._project(cls).float(), dim=-1)
                    if record is not None and not off:
                        record[self.n_layers] = cls
                return
            if len(branches) > 1:
                for off, members in branches.items():
                    after = self._finish_block(x, self._without(values, off), layer)
                    self._descend(after, layer + 1, members, out, None if off else record)
                return
            off, plans = next(iter(branches.items()))
            x = self._finish_block(x, self._without(values, off), layer)
            layer += 1

    def _tokens(
        self,
        images: Tensor | Trunk,
        layer: int,
        off: HeadSet = NOTHING_OFF,
        record: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Tokens [n, T, W] as they enter `layer`."""
        if isinstance(images, Trunk):
            x, first = images.tokens.to(self.device), images.layer
        else:
            x, first = self._patches(images.to(self.device, torch.float32)), 0
        for below in range(first, layer):
            values = self._values(x, below)
            if record is not None:
                record[below] = values[:, 0].clone()
            x = self._finish_block(x, self._without(values, off.in_layer(below)), below)
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
        `sum a (V x) = V (sum a x)`, so no key or value of another token is ever formed. Attention sums to
        one, so the value bias is added once.
        """
        attn, x = self._blocks[layer].attn, _layer_norm(x, self._blocks[layer].ln_1)
        attention = self._cls_attention(x, layer)
        w_v = attn.in_proj_weight.chunk(3)[2].reshape(self.n_heads, self.head_dim, -1)
        values = torch.einsum("nhw,hdw->nhd", attention.to(x.dtype) @ x, w_v)
        cls: Tensor = values.reshape(len(x), -1) + attn.in_proj_bias.chunk(3)[2]
        return cls

    def _cls_attention(self, x: Tensor, layer: int) -> Tensor:
        """Attention [n, H, T] of the CLS query over normed tokens [n, T, W].

        A key bias adds the same to every score and drops out.
        """
        attn, heads, d = self._blocks[layer].attn, self.n_heads, self.head_dim
        w_q, w_k, _ = attn.in_proj_weight.chunk(3)
        q = F.linear(x[:, 0], w_q, attn.in_proj_bias.chunk(3)[0]).reshape(len(x), heads, d) * d**-0.5
        key_side = torch.einsum("nhd,hdw->nhw", q, w_k.reshape(heads, d, -1))
        return torch.softmax(key_side @ x.transpose(1, 2), dim=-1)

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
    def embed_and_read(self, images: Tensor | Trunk, plans: Sequence[HeadSet] = ()) -> tuple[Tensor, Readout]:
        """`embed`, and what reaches the CLS token: one pass for both, or two under autocast.

        The read-out is always float32. Needs at least one image.
        """
        record: dict[int, Tensor] = {}
        with torch.autocast(self.device.type, enabled=False):
            if self._autocast is None:
                embedded = self._embed(images, [*plans, NOTHING_OFF], record)
            else:
                embedded = torch.cat([self.embed(images, plans), self._embed(images, [NOTHING_OFF], record)])
            cls = record.pop(self.n_layers)
            variance, mean = torch.var_mean(cls, dim=-1, correction=0)
            readout = Readout(
                values=record,
                cls=cls,
                mean=mean,
                std=(variance + self.visual.ln_post.eps).sqrt(),
                norm=self._project(cls).norm(dim=-1),
                unit=embedded[-1],
            )
        return embedded[:-1], readout

    @torch.no_grad()
    def basis(self, head: Head) -> Tensor:
        """The directions a head can write to in the embedding space: [d + 3, D].

        A head's contribution to the unit embedding is `coordinates @ basis`, exactly: d directions for its
        values, then its share of the output projection's bias, of ln_post's mean and of ln_post's bias. These
        shares are those of the reference study: the projection's bias over the H heads, the other two over
        the 2 L + 1 terms of the residual stream and, within an attention layer's term, over its H heads.
        """
        layer = head.layer
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
        return self._bases[layer][head.head]

    def coordinates(self, readout: Readout, heads: HeadSet) -> Tensor:
        """Coordinates [n, heads, d + 3] of what the heads contribute, each in its own `basis`."""
        d, scale = self.head_dim, 1 / (readout.std * readout.norm)
        out = readout.cls.new_empty(len(scale), len(heads), d + 3)
        for row, head in enumerate(heads):
            own = readout.values[head.layer][:, head.head * d : (head.head + 1) * d]
            out[:, row, :d] = own * scale[:, None]
        out[..., d:] = torch.stack([scale, scale * readout.mean, 1 / readout.norm], dim=-1)[:, None]
        return out

    @torch.no_grad()
    def contributions(self, readout: Readout, heads: HeadSet | None = None) -> tuple[Tensor, Tensor]:
        """Direct effects [n, heads, D] of heads (default: all), and of all else [n, D].

        Together they are the unit embedding.
        """
        chosen = self.all_heads if heads is None else heads
        coordinates = self.coordinates(readout, chosen)
        direct = readout.cls.new_empty(len(readout.cls), len(chosen), self.dim)
        for row, head in enumerate(chosen):
            direct[:, row] = coordinates[:, row] @ self.basis(head)
        if heads is not None:
            return direct, readout.unit - direct.sum(1)
        # Not the difference from the embedding: so that the sum of all parts can be checked against it.
        rest = readout.cls
        for layer, values in readout.values.items():
            rest = rest - self._attention_out(values, layer)
        gamma, beta = self.visual.ln_post.weight, self.visual.ln_post.bias
        share = (self.n_layers + 1) / (2 * self.n_layers + 1)
        rest = (rest - share * readout.mean[:, None]) / readout.std[:, None] * gamma + share * beta
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
