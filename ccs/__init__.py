"""Attention heads of CLIP: what they have learned, and what changes when some are switched off.

Parts that need PyTorch are loaded when they are first used, so that `import ccs` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError
from ccs.heads import Head, HeadSet, Intervention
from ccs.metrics.skew import max_skew
from ccs.model.head_statistics import Moments, collect_moments
from ccs.texts.textspan import Span, textspan

if TYPE_CHECKING:
    from ccs import benchmark, mitigate
    from ccs.analysis.accuracy import AccuracyTable, accuracy
    from ccs.analysis.audit import Audit, audit
    from ccs.analysis.bias import BiasTable, bias
    from ccs.analysis.classify import ClassTable, classify
    from ccs.analysis.find_heads import HeadTable, find_heads
    from ccs.model.ablation import ablate
    from ccs.model.extraction import extract_image_encoder
    from ccs.model.loading.sources import list_models
    from ccs.model.maps import attention, heatmap
    from ccs.model.model import Model, load

__all__ = [
    "AccuracyTable",
    "Audit",
    "BiasTable",
    "ClassTable",
    "Head",
    "HeadSet",
    "HeadTable",
    "InputError",
    "Intervention",
    "Model",
    "Moments",
    "Span",
    "ablate",
    "accuracy",
    "audit",
    "attention",
    "benchmark",
    "bias",
    "classify",
    "collect_moments",
    "extract_image_encoder",
    "find_heads",
    "heatmap",
    "list_models",
    "load",
    "max_skew",
    "mitigate",
    "open_gallery",
    "open_images",
    "open_dataset",
    "textspan",
]


_LATER = {
    "AccuracyTable": "ccs.analysis.accuracy",
    "Audit": "ccs.analysis.audit",
    "BiasTable": "ccs.analysis.bias",
    "ClassTable": "ccs.analysis.classify",
    "HeadTable": "ccs.analysis.find_heads",
    "Model": "ccs.model.model",
    "accuracy": "ccs.analysis.accuracy",
    "audit": "ccs.analysis.audit",
    "attention": "ccs.model.maps",
    "benchmark": "ccs.benchmark",
    "bias": "ccs.analysis.bias",
    "classify": "ccs.analysis.classify",
    "find_heads": "ccs.analysis.find_heads",
    "heatmap": "ccs.model.maps",
    "list_models": "ccs.model.loading.sources",
    "load": "ccs.model.model",
    "mitigate": "ccs.mitigate",
    "extract_image_encoder": "ccs.model.extraction",
    "ablate": "ccs.model.ablation",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'ccs' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return getattr(module, name, module)
