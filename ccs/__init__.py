"""Attention heads of CLIP: the concepts they encode, and the effects of ablating them.

Parts are imported on first use, so that `import ccs` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ccs.errors import InputError as InputError
from ccs.heads import Head as Head
from ccs.heads import HeadSet as HeadSet
from ccs.heads import Intervention as Intervention

if TYPE_CHECKING:
    from ccs.analysis.accuracy import AccuracyTable as AccuracyTable
    from ccs.analysis.accuracy import accuracy as accuracy
    from ccs.analysis.audit import Audit as Audit
    from ccs.analysis.audit import audit as audit
    from ccs.analysis.bias import BiasTable as BiasTable
    from ccs.analysis.bias import bias as bias
    from ccs.analysis.classify import ClassTable as ClassTable
    from ccs.analysis.classify import classify as classify
    from ccs.analysis.compare import ComparisonTable as ComparisonTable
    from ccs.analysis.compare import compare as compare
    from ccs.analysis.edit_heads import EditedModel as EditedModel
    from ccs.analysis.edit_heads import edit_heads as edit_heads
    from ccs.analysis.find_heads import HeadTable as HeadTable
    from ccs.analysis.find_heads import find_heads as find_heads
    from ccs.analysis.localize import CarrierTable as CarrierTable
    from ccs.analysis.localize import localize as localize
    from ccs.analysis.mitigate import MitigationTable as MitigationTable
    from ccs.analysis.mitigate import mitigate as mitigate
    from ccs.analysis.search import SearchTable as SearchTable
    from ccs.analysis.search import search as search
    from ccs.data.open import open_dataset as open_dataset
    from ccs.data.open import open_gallery as open_gallery
    from ccs.data.open import open_images as open_images
    from ccs.metrics.skew import max_skew as max_skew
    from ccs.model.ablation import ablate as ablate
    from ccs.model.extraction import extract_image_encoder as extract_image_encoder
    from ccs.model.head_statistics import Moments as Moments
    from ccs.model.head_statistics import collect_moments as collect_moments
    from ccs.model.loading.sources import list_models as list_models
    from ccs.model.maps import attention as attention
    from ccs.model.maps import heatmap as heatmap
    from ccs.model.model import Model as Model
    from ccs.model.model import load as load
    from ccs.model.registration import register_encoder as register_encoder
    from ccs.texts.textspan import Span as Span
    from ccs.texts.textspan import textspan as textspan

_NAMES = {
    "ccs.analysis.accuracy": ("AccuracyTable", "accuracy"),
    "ccs.analysis.audit": ("Audit", "audit"),
    "ccs.analysis.bias": ("BiasTable", "bias"),
    "ccs.analysis.classify": ("ClassTable", "classify"),
    "ccs.analysis.compare": ("ComparisonTable", "compare"),
    "ccs.analysis.edit_heads": ("EditedModel", "edit_heads"),
    "ccs.analysis.find_heads": ("HeadTable", "find_heads"),
    "ccs.analysis.localize": ("CarrierTable", "localize"),
    "ccs.analysis.mitigate": ("MitigationTable", "mitigate"),
    "ccs.analysis.search": ("SearchTable", "search"),
    "ccs.data.open": ("open_dataset", "open_gallery", "open_images"),
    "ccs.metrics.skew": ("max_skew",),
    "ccs.model.ablation": ("ablate",),
    "ccs.model.extraction": ("extract_image_encoder",),
    "ccs.model.head_statistics": ("Moments", "collect_moments"),
    "ccs.model.loading.sources": ("list_models",),
    "ccs.model.maps": ("attention", "heatmap"),
    "ccs.model.model": ("Model", "load"),
    "ccs.model.registration": ("register_encoder",),
    "ccs.texts.textspan": ("Span", "textspan"),
}
"""The public names by the module that they are imported from."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(["Head", "HeadSet", "InputError", "Intervention", *_MODULES])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'ccs' has no attribute {name!r}")
    module = import_module(_MODULES[name])
    return getattr(module, name, module)
