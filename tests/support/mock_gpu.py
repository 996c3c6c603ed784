"""A mock GPU: tensors that report the device `cuda` and hold their values in CPU memory.

They refuse to be combined with tensors of the CPU. So a forgotten `.to(device)` or `.cpu()` fails without a
GPU, and whole runs have correct values.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
DEVICE, CPU = torch.device("cuda", 0), torch.device("cpu")
_COPIES = (aten._to_copy.default, aten.copy_.default)
_INDEXING = aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default
"""Indices may stay on the CPU."""
_REPLACEMENTS = {
    aten._pin_memory.default: lambda x, *_: x.clone(),
    aten.is_pinned.default: lambda x, *_: False,
    aten.cudnn_batch_norm.default: lambda *arguments: (*aten.native_batch_norm(*arguments), torch.empty(0)),
    aten._softmax.default: lambda x, dim, float32: aten._softmax(x.float() if float32 else x, dim, False),
}
"""CPU replacements of operations that only a GPU has."""


class MockGpuTensor(torch.Tensor):
    """A tensor on the mock GPU; `cpu_values` holds its values."""

    cpu_values: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values):
        shape = {"strides": values.stride(), "storage_offset": values.storage_offset(), "dtype": values.dtype}
        tensor = torch.Tensor._make_wrapper_subclass(cls, values.shape, device=DEVICE, **shape)
        tensor.cpu_values = values
        return tensor

    def __deepcopy__(self, memo):
        copied = MockGpuTensor(self.cpu_values.detach().clone())
        is_parameter = isinstance(self, torch.nn.Parameter)
        return torch.nn.Parameter(copied, self.requires_grad) if is_parameter else copied

    # A list as an index becomes a tensor first, because PyTorch would create it on the real GPU.
    def __getitem__(self, index):
        return super().__getitem__(_index_tensors(index))

    def __setitem__(self, index, value):
        super().__setitem__(_index_tensors(index), value)

    def tolist(self):
        return self.cpu_values.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run_operation(func, args, kwargs or {})


def _index_tensors(index):
    parts = index if isinstance(index, tuple) else (index,)
    kinds = (list, np.ndarray)
    parts = [torch.from_numpy(np.asarray(p, np.intp)) if isinstance(p, kinds) else p for p in parts]
    return tuple(parts) if isinstance(index, tuple) else parts[0]


def _to_cpu(value):
    if isinstance(value, MockGpuTensor):
        return value.cpu_values
    return CPU if value.type == "cuda" else value


def _run_operation(func, args, kwargs):
    leaves = tree_leaves((args, kwargs))
    far = [leaf for leaf in leaves if isinstance(leaf, MockGpuTensor)]
    device = kwargs.get("device")
    target = torch.device(device).type if device is not None else "cuda" if far else "cpu"
    if func is aten.copy_.default:
        target = args[0].device.type
    if far and func not in _COPIES:
        checked = args[:1] + args[2:] if func in _INDEXING else (args, kwargs)
        tensors = [leaf for leaf in tree_leaves(checked) if isinstance(leaf, Tensor) and leaf.ndim]
        if not all(isinstance(tensor, MockGpuTensor) for tensor in tensors):
            raise RuntimeError(f"Expected all tensors on the same device, but {func} got cuda:0 and cpu!")
    known = {id(leaf.cpu_values): leaf for leaf in far}
    if far or any(isinstance(leaf, torch.device) for leaf in leaves):
        args, kwargs = tree_map_only((MockGpuTensor, torch.device), _to_cpu, (args, kwargs))
    kwargs.pop("pin_memory", None)
    out = _REPLACEMENTS.get(func, func)(*args, **kwargs)
    if target != "cuda":
        return out
    return tree_map_only(Tensor, lambda new: known[id(new)] if id(new) in known else MockGpuTensor(new), out)


class _MockGpuMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run_operation(func, args, kwargs or {})


@contextmanager
def use_mock_gpu(monkeypatch):
    """Mock one GPU in this thread."""
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "is_bf16_supported": True}
    answers |= {"get_device_name": "a mock GPU", "get_autocast_dtype": torch.bfloat16}
    answers |= dict.fromkeys(("_lazy_init", "empty_cache", "synchronize", "set_device"))
    replacements = {name: lambda *_, answer=answer: answer for name, answer in answers.items()}
    torch._C._ensureCUDADeviceGuardSet()  # lets tensors report a GPU as their device
    with monkeypatch.context() as patched:
        for name, replacement in replacements.items():
            patched.setattr(torch.cuda, name, replacement, raising=False)
        # Moving a module replaces its parameters, because CPU parameters can't hold mock tensors.
        patched.setattr(torch.__future__, "_overwrite_module_params_on_conversion", True)
        with _MockGpuMode():
            yield
