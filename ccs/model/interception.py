"""Change heads' outputs where they enter the output projection of a module that someone else runs.

An attention module inside a `with` block of `ccs.ablate` has a `Site`, which multiplies or replaces heads'
outputs. Parameters are never touched, so whoever else reads or writes them (FSDP, LoRA, quantization, an
optimizer) sees the real ones. Two kinds of modules differ:

- Most call their projection (transformers, timm). The site is a forward pre-hook of whatever module is the
  projection at the time of the call.
- nn.MultiheadAttention and open_clip's AttentionPool2d read the projection's weight and never call it. Their
  forward pass is run here, from the module's own parameters.

The module's class is replaced by a subclass for the length of the block. That is how torch.compile notices:
it checks the class and traces again, whereas it doesn't look for new hooks.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import HeadSet, Intervention, changes
from ccs.model.encoders.parts import by_head

_LOCK = threading.RLock()
PROJECTIONS = ("out_proj", "proj", "c_proj", "projection")
"""The names that attention modules give their output projection."""


def changed_values(values: Tensor, heads: HeadSet, n_heads: int) -> Tensor:
    """Scale or replace the outputs of some heads of a layer.

    Args:
        values: The outputs of all heads, side by side: [n, T, H d].
        heads: The heads to change. They are of this layer.
        n_heads: The number of heads in the layer, H.

    Returns:
        The outputs [n, T, H d], in a new tensor if there is any change.
    """
    if not heads:
        return values
    d = values.shape[-1] // n_heads
    factors = torch.ones(n_heads, dtype=values.dtype, device=values.device)
    for head, change in changes(heads):
        factors[head.head] = 1.0 if change.replacement else change.factor
    values = values * factors.repeat_interleave(d)
    for head, change in changes(heads):  # in place, in the product above
        if not change.replacement:
            continue
        assert isinstance(heads, Intervention)
        columns = slice(head.head * d, head.head * d + d)
        rows = torch.as_tensor(heads.mean_output(head)).to(values)
        if change.attribute:
            values[..., columns] = values[..., columns] @ rows[:-1] + rows[-1]
        elif len(rows) in (1, values.shape[1]):  # one row: of the first token, the only one that is read
            values[:, : len(rows), columns] = rows
        else:
            raise InputError(
                f"{head}{change} holds {len(rows)} tokens, but the model has {values.shape[1]}; "
                "take the mean over images of this size."
            )
    return values


class Ablation:
    """The ablation of heads of one attention module by one `with` block.

    Args:
        module: The attention module.
        root: The encoder that it is in.
        heads: The heads to change, all of one layer.
    """

    def __init__(self, module: Any, root: Any, heads: HeadSet) -> None:
        self.module, self.root, self.heads = module, root, heads
        self.n_heads, self.head_dim = int(module.num_heads), head_dim(module)
        self.is_open, self.reached = True, False
        self.factors: Tensor | None = None
        if not any(change.replacement for _, change in changes(heads)):
            factors = torch.ones(self.n_heads)
            for head, change in changes(heads):
                factors[head.head] = change.factor
            devices = (weights.device for weights in module.parameters() if not weights.is_meta)
            self.factors = factors.repeat_interleave(self.head_dim).to(next(devices, "cpu"))

    def __deepcopy__(self, memo: dict[int, Any]) -> Ablation:
        return self

    @property
    def label(self) -> str:
        """The module's place and class, for messages."""
        names = (name for name, module in self.root.named_modules() if module is self.module)
        return f"{next(names, '') or 'the encoder'} ({type(self.module).__name__})"

    def change_outputs(self, values: Tensor) -> Tensor:
        """Change the heads' outputs [..., H d]; InputError if they are not all of this layer's heads."""
        self.reached = True
        if values.shape[-1] != self.n_heads * self.head_dim:
            raise InputError(
                f"{self.label} passes {values.shape[-1]} values to its output projection in place of "
                f"{self.n_heads} heads of {self.head_dim}, as under tensor parallelism, so {self.heads} "
                "can't be ablated. Ablate the model before it is split."
            )
        if self.factors is not None:
            return values * self.factors.to(values.device, values.dtype)
        if values.dim() != 3:
            raise InputError(f"{self.label} has no batch of tokens, so {self.heads} can't be ablated in it.")
        return changed_values(values, self.heads, self.n_heads)


class Site:
    """The open ablations of one attention module, in the order in which their blocks began.

    As a forward pre-hook of the output projection it changes the projection's input. A copy of the module
    made inside a block stays ablated until the block ends. A pickled site is empty.
    """

    def __init__(self, ablations: tuple[Ablation, ...] = ()) -> None:
        self.ablations = ablations
        self.handles: list[Any] = []

    def __call__(self, projection: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the projection's inputs with the heads changed."""
        return self.change_outputs(inputs[0]), *inputs[1:]

    def __deepcopy__(self, memo: dict[int, Any]) -> Site:
        return Site(self.ablations)

    def __reduce__(self) -> Any:
        return Site, ()

    def change_outputs(self, values: Tensor) -> Tensor:
        """Apply all open ablations to the heads' outputs [..., H d]."""
        for ablation in self.ablations:
            if ablation.is_open:
                values = ablation.change_outputs(values)
        return values


def site_of(module: Any) -> Site | None:
    """Return the module's site, or None outside all blocks."""
    site: Site | None = module.__dict__.get("_ccs_site")
    return site


def is_active(module: Any) -> bool:
    """True while a block that ablates heads of the attention module lasts."""
    site = site_of(module)
    return site is not None and any(ablation.is_open for ablation in site.ablations)


def head_dim(module: Any) -> int:
    """Return the dimension of the heads of an attention module."""
    size = getattr(module, "head_dim", None)
    if size is None:  # open_clip's AttentionPool2d
        size = module.v_proj.out_features // module.num_heads
    return int(size)


def projection_name(module: Any) -> str | None:
    """Return the name of the module's output projection, or None if it has none."""
    names = (name for name in PROJECTIONS if isinstance(getattr(module, name, None), nn.Module))
    return next(names, None)


# Attention modules inside a block -------------------------------------------------------------------------


class Intercepted:
    """Base of the subclasses that attention modules have inside a block."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = object.__new__(type(self))
        memo[id(self)] = duplicate
        duplicate.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module as it is outside the block."""
        state = {name: value for name, value in self.__dict__.items() if name != "_ccs_site"}
        return object.__new__, (type(self).__bases__[1],), state


class _CallsProjection(Intercepted):
    """An attention module that calls its output projection."""

    _ccs_projection: str

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        site = site_of(self)
        if site is not None and site.ablations:
            self.hook_projection(site)  # it may have been replaced inside the block
        output = super().__call__(*args, **keywords)  # type: ignore[misc]
        if site is not None and not torch.compiler.is_compiling():
            for ablation in site.ablations:
                if ablation.is_open and not ablation.reached:
                    raise bypassed([ablation])
        return output

    def hook_projection(self, site: Site) -> None:
        """Make the site a hook of the present output projection, unless it is one."""
        projection = getattr(self, self._ccs_projection)
        if site not in projection._forward_pre_hooks.values():
            _hook(site, projection)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _hook(site: Site, projection: Any) -> None:
    # Ahead of other hooks: tensor parallelism's make distributed tensors of the values.
    site.handles.append(projection.register_forward_pre_hook(site, prepend=True))


def bypassed(ablations: Sequence[Ablation]) -> InputError:
    """Return the error for heads that a forward pass did not reach."""
    heads = " ".join(str(ablation.heads) for ablation in ablations)
    labels = ", ".join(ablation.label for ablation in ablations)
    return InputError(
        f"{heads} not ablated: the forward pass bypassed {labels}. Run the modules themselves, not a fused, "
        "scripted, or exported copy, and don't replace them inside the block."
    )


class _Multihead(Intercepted):
    """nn.MultiheadAttention, which reads the weight of its output projection."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention as `nn.MultiheadAttention.forward` does, with ablation on the heads' outputs.

        Args:
            query: As in torch: [T, n, W], [n, T, W] if `batch_first`, or [T, W] without a batch.
            key: As `query`.
            value: As `query`.
            key_padding_mask: As in torch.
            need_weights: Return the attention weights too.
            attn_mask: As in torch.
            average_attn_weights: Average the attention weights over heads.
            is_causal: As in torch.

        Returns:
            The output, shaped as `query`, and the attention weights or None.
        """
        if not is_active(self):  # a copy, after the block
            return super().forward(  # type: ignore[misc,no-any-return]
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        module: Any = self
        swapped = module.batch_first and query.dim() == 3
        if swapped:  # the same tensor thrice stays so, which saves two projections
            turned = {id(x): x.transpose(0, 1) for x in (query, key, value)}
            query, key, value = turned[id(query)], turned[id(key)], turned[id(value)]
        values, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            module.embed_dim,
            module.num_heads,
            module.in_proj_weight,
            module.in_proj_bias,
            module.bias_k,
            module.bias_v,
            module.add_zero_attn,
            module.dropout,
            torch.eye(module.embed_dim, dtype=query.dtype, device=query.device),  # projected below
            None,
            training=module.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not module._qkv_same_embed_dim,
            q_proj_weight=module.q_proj_weight,
            k_proj_weight=module.k_proj_weight,
            v_proj_weight=module.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        values = values[None] if query.dim() == 2 else values.transpose(0, 1)  # [n, T, H d]
        out = _projected(module.out_proj, _changed(self, values))
        if query.dim() == 2:
            return out[0], weights
        return out if swapped else out.transpose(0, 1), weights


class _AttentionPool2d(Intercepted):
    """open_clip's pool of a ResNet, which reads the weight of its output projection."""

    def forward(self, x: Tensor) -> Tensor:
        module: Any = self
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], dim=1) + module.positional_embedding.to(x.dtype)
        inputs = (module.q_proj, x[:, :1]), (module.k_proj, x), (module.v_proj, x)
        q, k, v = (by_head(layer(tokens), module.num_heads).transpose(1, 2) for layer, tokens in inputs)
        values = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return _projected(module.c_proj, _changed(self, values))[:, 0]


def _changed(module: Any, values: Tensor) -> Tensor:
    site = site_of(module)  # None if the last block ended in the middle of this pass
    return values if site is None else site.change_outputs(values)


def _projected(projection: Any, values: Tensor) -> Tensor:
    """Apply the projection's weight, of whatever kind, to values [n, T, H d]."""
    rows = values.flatten(0, 1)  # quantized weights know the product of matrices
    return F.linear(rows, projection.weight, projection.bias).reshape(*values.shape[:2], -1)


# Opening and closing a block ------------------------------------------------------------------------------


@cache
def _intercepted_class(plain: Any, mixin: type, projection: str) -> type:
    content = {
        "__module__": plain.__module__,
        "__qualname__": plain.__qualname__,
        "_ccs_projection": projection,
    }
    return type(plain.__name__, (mixin, plain), content)


def _mixin(module: Any) -> type:
    from open_clip.modified_resnet import AttentionPool2d

    if isinstance(module, nn.MultiheadAttention) and _forward(module) is nn.MultiheadAttention.forward:
        return _Multihead
    return _AttentionPool2d if isinstance(module, AttentionPool2d) else _CallsProjection


def _forward(module: Any) -> Any:
    """The forward function of the module's class, below those of wrappers (FSDP2) and of blocks."""
    return next(cls.__dict__["forward"] for cls in type(module).__mro__ if "forward" in cls.__dict__)


def begin(ablation: Ablation) -> None:
    """Start to ablate; InputError if the module's class can't be replaced."""
    module = ablation.module
    with _LOCK:
        if not isinstance(module, Intercepted):
            plain: Any = type(module)
            cls = _intercepted_class(plain, _mixin(module), projection_name(module) or "")
            module.__dict__["_ccs_site"] = Site()
            try:
                module.__class__ = cls
            except TypeError:
                del module.__dict__["_ccs_site"]
                raise InputError(
                    f"{ablation.heads} can't be ablated: {ablation.label} is not an ordinary Python module. "
                    "Pass the model as it was before scripting or exporting."
                ) from None
            _rebind(module, plain)
        site = site_of(module)
        assert site is not None
        site.ablations = (*site.ablations, ablation)
        if isinstance(module, _CallsProjection):
            module.hook_projection(site)


def end(ablation: Ablation) -> None:
    """Stop to ablate; the last block to end gives the module its class back."""
    module = ablation.module
    with _LOCK:
        ablation.is_open = False
        site = site_of(module)
        if site is None:
            return
        site.ablations = tuple(other for other in site.ablations if other.is_open)
        if not site.ablations:
            for handle in site.handles:
                handle.remove()
            site.handles.clear()
            bases = type(module).__bases__
            if len(bases) == 2 and issubclass(bases[0], Intercepted):  # else parametrized inside the block
                blocks_class, module.__class__ = type(module), bases[1]
                del module.__dict__["_ccs_site"]
                _rebind(module, blocks_class)


def _rebind(module: Any, previous: Any) -> None:
    """Give accelerate's hooks, which keep a bound forward, that of the present class."""
    bound = module.__dict__.get("_old_forward")
    if getattr(bound, "__func__", None) is previous.forward:
        module.__dict__["_old_forward"] = MethodType(type(module).forward, module)
