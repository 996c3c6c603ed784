"""Change heads' outputs where they enter the output projection of a module that someone else runs.

An attention module inside a `with` block of `ccs.ablate` has a `Site`, which multiplies or replaces heads'
outputs. Parameters are never touched, so whoever else reads or writes them (FSDP, LoRA, quantization, an
optimizer) sees the real ones. Two kinds of modules differ:

- Most call their projection (transformers, timm). The site is a forward pre-hook of whatever module is the
  projection at the time of the call.
- nn.MultiheadAttention and open_clip's AttentionPool2d read the projection's weight and never call it. They
  run with an identity in its place, and the projection follows here.

The module's class is replaced by a subclass for the length of the block. That is how torch.compile notices:
it checks the class and traces again, whereas it doesn't look for new hooks.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ccs.errors import InputError
from ccs.heads import HeadSet, changes

_LOCK = threading.RLock()


def require_heads(heads: HeadSet, counts: Sequence[int]) -> None:
    """Raise InputError if an encoder lacks a head.

    Args:
        heads: The heads.
        counts: The number of heads in each layer of the encoder.
    """
    for head in heads:
        if head.layer >= len(counts):
            raise InputError(f"{head} is outside this model: its layers are 0 to {len(counts) - 1}.")
        if head.head >= (count := counts[head.layer]):
            raise InputError(f"{head} is outside this model: heads of that layer are 0 to {count - 1}.")


def head_factors(heads: HeadSet, n_heads: int, size: int) -> Tensor:
    """Return the factors [n_heads * size] on the outputs of a layer's heads; 1 for those that are replaced.

    Args:
        heads: The heads to change, all of the layer.
        n_heads: The number of heads in the layer.
        size: The dimension of each.
    """
    factors = torch.ones(n_heads)
    for head, change in changes(heads):
        factors[head.head] = 1.0 if change.replacement else change.factor
    return factors.repeat_interleave(size)


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
    values = values * head_factors(heads, n_heads, d).to(values)
    for head, change in changes(heads):  # in place, in the product above
        if not change.replacement:
            continue
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
        path: Its name in the encoder.
        heads: The heads to change, all of one layer.
    """

    def __init__(self, module: Any, path: str, heads: HeadSet) -> None:
        self.module, self.heads = module, heads
        self.label = f"{path} ({type(module).__name__})"
        self.n_heads, self.head_dim = int(module.num_heads), head_dim(module)
        self.is_open, self.reached = True, False
        self.replaces = any(change.replacement for _, change in changes(heads))
        devices = (weights.device for weights in module.parameters() if not weights.is_meta)
        self.factors = head_factors(heads, self.n_heads, self.head_dim).to(next(devices, "cpu"))

    def change_outputs(self, values: Tensor) -> Tensor:
        """Change the heads' outputs [..., H d]; InputError if they are not all of this layer's heads."""
        self.reached = True
        if values.shape[-1] != self.n_heads * self.head_dim:
            raise InputError(
                f"{self.label} passes {values.shape[-1]} values to its output projection in place of "
                f"{self.n_heads} heads of {self.head_dim}, as under tensor parallelism, so {self.heads} "
                "can't be ablated. Ablate the model before it is split."
            )
        if not self.replaces:
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
        self.unhook: Callable[[], None] = lambda: None

    def __call__(self, projection: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the projection's inputs with the heads changed."""
        return self.change_outputs(inputs[0]), *inputs[1:]

    def __deepcopy__(self, memo: dict[int, Any]) -> Site:
        return Site(self.ablations)

    def __reduce__(self) -> Any:
        return Site, ()

    def hook(self, projection: Any) -> None:
        """Change the input of a projection, ahead of other hooks: tensor parallelism's distribute it."""
        if self not in projection._forward_pre_hooks.values():
            self.unhook()  # the last projection, which the new one may call
            self.unhook = projection.register_forward_pre_hook(self, prepend=True).remove

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
    """Return whether the attention module is inside a block that ablates its heads."""
    return any(ablation.is_open for ablation in getattr(site_of(module), "ablations", ()))


def head_dim(module: Any) -> int:
    """Return the dimension of the heads of an attention module."""
    size = getattr(module, "head_dim", None)
    if size is None and not hasattr(module, "v_proj"):
        raise InputError(f"{type(module).__name__} has no head_dim, so its heads are unknown.")
    return int(module.v_proj.out_features // module.num_heads if size is None else size)


def projection_name(module: Any) -> str:
    """Return the name of the module's output projection, or "" if it has none."""
    names = ("out_proj", "proj", "c_proj", "projection")
    return next((name for name in names if isinstance(getattr(module, name, None), nn.Module)), "")


# Attention modules inside a block -------------------------------------------------------------------------


class Intercepted:
    """Base of the subclasses that attention modules have inside a block."""

    _ccs_plain: Any
    _ccs_projection: str

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = memo[id(self)] = object.__new__(type(self))
        duplicate.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module as it is outside the block."""
        state = {name: value for name, value in self.__dict__.items() if name != "_ccs_site"}
        return object.__new__, (self._ccs_plain,), state


class _CallsProjection(Intercepted):
    """An attention module that calls its output projection."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        site = site_of(self)
        if site is not None and site.ablations:
            projection = getattr(self, self._ccs_projection)
            if site not in projection._forward_pre_hooks.values():  # it was replaced inside the block
                torch.compiler.disable(site.hook)(projection)  # type: ignore[no-untyped-call]
        return super().__call__(*args, **keywords)  # type: ignore[misc]


class _Identity:  # which torch.compile can trace
    def __init__(self, width: int, like: Tensor) -> None:
        self.weight, self.bias = torch.eye(width, dtype=like.dtype, device=like.device), like.new_zeros(width)


class _ReadsProjection(Intercepted):
    """nn.MultiheadAttention, or open_clip's pool of a ResNet."""

    def forward(self, *args: Any, **keywords: Any) -> Any:
        site = site_of(self)
        if site is None or not is_active(self):  # a copy, after the block
            return self._ccs_plain.forward(self, *args, **keywords)
        projection, stand_in = getattr(self, self._ccs_projection), object.__new__(self._ccs_plain)
        stand_in.__dict__.update(self.__dict__)
        first = next(iter((*args, *keywords.values())))
        stand_in.__dict__[self._ccs_projection] = _Identity(projection.in_features, first)
        output = self._ccs_plain.forward(stand_in, *args, **keywords)
        values, further = output if isinstance(output, tuple) else (output, None)
        # [n, T, H d]: torch's has the tokens first by default, and the pool has one without an axis
        turned = values.dim() == 3 and not getattr(self, "batch_first", True)
        is_pool = not isinstance(output, tuple)
        values = values.transpose(0, 1) if turned else values[:, None] if is_pool else values
        values = site.change_outputs(values)
        rows = values.flatten(0, -2)  # quantized weights know the product of matrices
        written = F.linear(rows, projection.weight, projection.bias).reshape(*values.shape[:-1], -1)
        if is_pool:
            return written[:, 0]
        return written.transpose(0, 1) if turned else written, further


# Opening and closing a block ------------------------------------------------------------------------------


@cache
def _intercepted_class(plain: Any, projection: str) -> type:
    forward = next(cls.__dict__["forward"] for cls in plain.__mro__ if "forward" in cls.__dict__)
    reads = forward is nn.MultiheadAttention.forward
    reads |= (plain.__name__, projection) == ("AttentionPool2d", "c_proj")  # timm's has proj, and calls it
    content = {"__module__": plain.__module__, "__qualname__": plain.__qualname__}
    content |= {"_ccs_plain": plain, "_ccs_projection": projection}
    return type(plain.__name__, (_ReadsProjection if reads else _CallsProjection, plain), content)


@contextmanager
def applied(ablation: Ablation) -> Iterator[None]:
    """Ablate inside a `with` block; InputError if the module's class can't be replaced."""
    module = ablation.module
    with _LOCK:
        site = module.__dict__["_ccs_site"] if isinstance(module, Intercepted) else _intercept(ablation)
        site.ablations = (*site.ablations, ablation)
        if isinstance(module, _CallsProjection):
            site.hook(getattr(module, module._ccs_projection))
    try:
        yield
    finally:
        with _LOCK:
            ablation.is_open = False
            site.ablations = tuple(other for other in site.ablations if other.is_open)
            if not site.ablations:
                site.unhook()
                if "_ccs_plain" in type(module).__dict__:  # else parametrized inside the block
                    _replace_class(module, module._ccs_plain)
                    del module.__dict__["_ccs_site"]


def _intercept(ablation: Ablation) -> Site:
    """Replace the class of a module, and return its site."""
    module, site = ablation.module, Site()
    plain: Any = type(module)
    try:
        _replace_class(module, _intercepted_class(plain, projection_name(module)))
    except TypeError:
        raise InputError(
            f"{ablation.heads} can't be ablated: {ablation.label} is not an ordinary Python module. "
            "Pass the model as it was before scripting or exporting."
        ) from None
    module.__dict__["_ccs_site"] = site
    return site


def _replace_class(module: Any, new: Any) -> None:
    """Change a module's class, and the forward that accelerate's hooks keep bound."""
    previous, module.__class__ = type(module), new
    bound = module.__dict__.get("_old_forward")
    if getattr(bound, "__func__", None) is previous.forward:
        module.__dict__["_old_forward"] = MethodType(new.forward, module)
