"""Attention heads of CLIP: the concepts they encode, and the effects of ablating them.

Parts are imported on first use, so that `import ccs` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.heads import Head, HeadSet, Intervention

if TYPE_CHECKING:
    from ccs.analysis.accuracy import AccuracyTable, accuracy
    from ccs.analysis.audit import Audit, audit
    from ccs.analysis.bias import BiasTable, bias
    from ccs.analysis.classify import ClassTable, classify
    from ccs.analysis.compare import ComparisonTable, compare
    from ccs.analysis.edit_heads import EditedModel, edit_heads
    from ccs.analysis.find_heads import HeadTable, find_heads
    from ccs.analysis.localize import CarrierTable, localize
    from ccs.analysis.mitigate import MitigationTable, mitigate
    from ccs.analysis.search import SearchTable, search
    from ccs.data.open import open_dataset, open_gallery, open_images
    from ccs.metrics.skew import max_skew
    from ccs.model.ablation import ablate
    from ccs.model.extraction import extract_image_encoder
    from ccs.model.head_statistics import Moments, collect_moments
    from ccs.model.loading.sources import list_models
    from ccs.model.maps import attention, heatmap
    from ccs.model.model import Model, load
    from ccs.model.registration import register_encoder
    from ccs.texts.textspan import Span, textspan

__all__ = [
    "AccuracyTable",
    "Audit",
    "BiasTable",
    "CarrierTable",
    "ClassTable",
    "ComparisonTable",
    "EditedModel",
    "Head",
    "HeadSet",
    "HeadTable",
    "InputError",
    "Intervention",
    "MitigationTable",
    "Model",
    "Moments",
    "SearchTable",
    "Span",
    "ablate",
    "accuracy",
    "attention",
    "audit",
    "bias",
    "classify",
    "collect_moments",
    "compare",
    "edit_heads",
    "extract_image_encoder",
    "find_heads",
    "heatmap",
    "list_models",
    "load",
    "localize",
    "max_skew",
    "mitigate",
    "open_dataset",
    "open_gallery",
    "open_images",
    "register_encoder",
    "search",
    "textspan",
]


_LATER = {
    "AccuracyTable": "ccs.analysis.accuracy",
    "Audit": "ccs.analysis.audit",
    "BiasTable": "ccs.analysis.bias",
    "CarrierTable": "ccs.analysis.localize",
    "ClassTable": "ccs.analysis.classify",
    "ComparisonTable": "ccs.analysis.compare",
    "EditedModel": "ccs.analysis.edit_heads",
    "HeadTable": "ccs.analysis.find_heads",
    "MitigationTable": "ccs.analysis.mitigate",
    "Model": "ccs.model.model",
    "Moments": "ccs.model.head_statistics",
    "SearchTable": "ccs.analysis.search",
    "Span": "ccs.texts.textspan",
    "ablate": "ccs.model.ablation",
    "accuracy": "ccs.analysis.accuracy",
    "attention": "ccs.model.maps",
    "audit": "ccs.analysis.audit",
    "bias": "ccs.analysis.bias",
    "classify": "ccs.analysis.classify",
    "collect_moments": "ccs.model.head_statistics",
    "compare": "ccs.analysis.compare",
    "edit_heads": "ccs.analysis.edit_heads",
    "extract_image_encoder": "ccs.model.extraction",
    "find_heads": "ccs.analysis.find_heads",
    "heatmap": "ccs.model.maps",
    "list_models": "ccs.model.loading.sources",
    "load": "ccs.model.model",
    "localize": "ccs.analysis.localize",
    "max_skew": "ccs.metrics.skew",
    "mitigate": "ccs.analysis.mitigate",
    "open_dataset": "ccs.data.open",
    "open_gallery": "ccs.data.open",
    "open_images": "ccs.data.open",
    "register_encoder": "ccs.model.registration",
    "search": "ccs.analysis.search",
    "textspan": "ccs.texts.textspan",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'ccs' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return getattr(module, name, module)
