"""Erase groups from heads' outputs: the part about an attribute is removed, and the rest stays.

A head's output `o` becomes `mean + M (o - mean)`. `M` [d, d] is fitted on people with groups (`erasing_map`),
layer by layer: each layer on the activations that the edits of earlier layers leave. Weights can hold it:
the head's columns of the output projection are multiplied by `M`, and its bias gains the projection of
`mean - M mean`.

Shapes: n images or texts, T tokens, d dimensions of a head, g groups.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.errors import InputError
from ccs.heads import IMAGE, Head, Heads, HeadSet, Intervention, changes
from ccs.model.ablation import has_class_token
from ccs.model.encoder import Encoder, Trunk
from ccs.model.interception import Ablation, applied, changed_values, head_dim, projection_name, require_heads
from ccs.model.side import Side
from ccs.model.structure import attention_modules

FLOOR = 0.03
"""Weight of the penalty on changes of other directions, relative to the penalty on the preserved classes."""
_NOISE = 1e-5
"""Group directions below this share of the head's mean output are rounding errors."""
DEFAULT_STRENGTH = 0.1


def erasing_map(groups: Tensor, mean: Tensor, classes: Tensor | None = None, strength: float = 0.0) -> Tensor:
    """Fit the map that erases groups from a head's output.

    For the directions of the groups `G` and of the classes `C`, each scaled to a largest singular value of 1,
    `M` minimizes `(1 - s) |M G|^2 + s |(M - I) C|^2 + s f |M - I|^2`, with the strength `s` and f = FLOOR.
    Without classes, or at s = 0, `M` is the orthogonal projection that removes the span of `G`; at s = 1 it
    is the identity.

    Args:
        groups: Group means minus their mean, of all places [k, d].
        mean: The mean output [d], which the map leaves as it is.
        classes: Class means minus their mean [k, d], which should stay.
        strength: Strength s of the preservation, from 0 (erase completely) to 1 (preserve completely).

    Returns:
        [d + 1, d]: an output `o` becomes `o @ rows[:d] + rows[d]`.
    """
    identity = torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
    if classes is None or strength == 0:
        _, sizes, basis = torch.linalg.svd(groups, full_matrices=False)
        basis = basis[sizes > _NOISE * torch.maximum(sizes.max(), mean.norm())]
        removed = basis.T @ basis
    else:
        grams = [directions.T @ directions for directions in (groups, classes)]
        erased, retained = (gram / torch.linalg.matrix_norm(gram, 2).clamp_min(1e-30) for gram in grams)
        cost = (1 - strength) * erased + strength * (retained + FLOOR * identity)
        removed = torch.linalg.solve(cost, (1 - strength) * erased).T
    return torch.cat([(identity - removed).T, (removed @ mean)[None]])


@dataclass(frozen=True, eq=False)
class Preserved:
    """The information that edited heads should preserve.

    Attributes:
        inputs: Images (or a trunk) or texts of some classes.
        labels: Class of each input [n].
        texts: Unit embeddings of texts [k, D], in place of the inputs or next to them.
        strength: As in `erasing_map`.
    """

    inputs: Any = ()
    labels: Any = ()
    texts: NDArray[np.floating] | None = None
    strength: float = DEFAULT_STRENGTH


def edit_projection(weight: Tensor, bias: Tensor | None, columns: slice, rows: Tensor) -> None:
    """Write an edit of a head into its output projection, in place.

    Args:
        weight: [W, H d], in any type.
        bias: [W].
        columns: The head's columns of the weight.
        rows: [d + 1, d], from `erasing_map`.

    Raises:
        InputError: If there is no bias, which holds what the map adds.
    """
    if bias is None:
        raise InputError(
            "An output projection without a bias can't hold an edit that leaves the mean as it is."
        )
    before, map_rows = weight[:, columns].double(), rows.to(weight.device).double()
    weight[:, columns] = (before @ map_rows[:-1].T).to(weight)
    bias += (before @ map_rows[-1]).to(bias)


def edit_module(
    module: Any, heads: Heads, run: Callable[[], object], groups: Any, encoder: str = IMAGE
) -> list[dict[str, Any]]:
    """Erase groups from heads of a model that someone else built, in its weights.

    For encoders that `ccs.load` doesn't open: of LLaVA or Qwen-VL, or the text encoder of Stable Diffusion.

    Args:
        module: A model that `ccs.ablate` takes. Its output projections change in place.
        heads: The heads to edit.
        run: Passes all inputs, in order and in batches of any size, through the model. It is called once for
            each edited layer.
        groups: The group of each input [n].
        encoder: IMAGE, or TEXT for heads that are written `T7.H3`.

    Returns:
        The rows of `fit_edits`, with an empty attribute.

    Raises:
        InputError: If the model lacks a head, or a head's projection can't be edited.
    """
    chosen = HeadSet(Intervention.from_heads(heads))
    root, modules = attention_modules(module, encoder)
    names, codes = np.unique(np.asarray(groups, np.str_), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"Erasing needs two or more groups, got {len(names)}.")
    require_heads(chosen, [attention.num_heads for attention in modules.values()])
    rows = []
    for layer in chosen.layers:
        path, attention = list(modules.items())[layer]
        outputs = _record(attention, path, run, len(codes))
        projection, size = getattr(attention, projection_name(attention)), head_dim(attention)
        prefix = int(encoder == IMAGE and has_class_token(root) and outputs.shape[1] > 1)
        for head in chosen.of_layer(layer):
            columns = slice(head.head * size, head.head * size + size)
            fit, row = _fit(_places([outputs], columns, prefix), torch.from_numpy(codes))
            with torch.no_grad():
                edit_projection(projection.weight, projection.bias, columns, fit)
            rows.append({"head": str(head), "attribute": "", **row})
    return rows


def _record(attention: Any, path: str, run: Callable[[], object], n: int) -> Tensor:
    """Return the outputs [n, T, H d] of the heads of an attention module in all passes of `run`."""
    recorder, rows = Ablation(attention, path, HeadSet()), list[Tensor]()

    def record(values: Tensor) -> Tensor:
        rows.append(values.detach().reshape(-1, values.shape[-1]))
        return values

    recorder.change_outputs = record  # type: ignore[method-assign]
    with applied(recorder), torch.no_grad():
        run()
    tokens = sum(map(len, rows))
    if not tokens or tokens % n:
        raise InputError(
            f"The passes ran {tokens} tokens through {recorder.label}, not equally many of {n} inputs."
        )
    return torch.cat(rows).reshape(n, tokens // n, -1)


def fit_edits(
    side: Side, heads: HeadSet, inputs: Any, groups: Mapping[str, Any], preserve: Preserved | None = None
) -> tuple[Intervention, list[dict[str, Any]]]:
    """Fit the maps of an intervention that erases attributes from heads.

    All inputs pass once through the layers, with the other changes of the intervention. Heads that have a map
    keep it.

    Args:
        side: The model, or its text side.
        heads: The intervention, such as "L6.H1=erase:skin tone".
        inputs: Images (or a trunk) of people, or texts.
        groups: Attribute -> the group of each input [n].
        preserve: The information that the heads should preserve.

    Returns:
        The intervention with its maps, and a row per fitted head: `head`, `attribute`, the number of
        `directions` removed (a preserved one counts in part), and the distance of the groups' mean outputs
        from their mean (root mean square) `before` and `after`.

    Raises:
        InputError: If the encoder lacks a head, or an attribute has no groups or only one.
    """
    encoder, preserve, rows = side.encoder, preserve or Preserved(), []
    encoder.require_heads(heads)
    fitted = Intervention(heads)
    maps = {name: dict(known) for name, known in (fitted.means or {}).items()}
    attributes = {head: change for head, change in changes(heads) if change.attribute}
    erased = {head: by for head, by in attributes.items() if head not in maps.get(by.replacement, {})}
    if not erased:
        return fitted, []
    first = min(head.layer for head in heads)
    trunks, orders = zip(
        *(_open_trunks(side, items, first) for items in (inputs, preserve.inputs)), strict=True
    )
    names = [change.attribute for change in erased.values()]
    codes = {name: _group_numbers(groups.get(name, ()), orders[0], name) for name in names}
    labels = _group_numbers(preserve.labels, orders[1], "class") if trunks[1] else torch.empty(0)
    for layer in range(first, max(erased).layer + 1):
        outputs = [list(map(encoder.head_outputs, batches)) for batches in trunks]
        for head in HeadSet(erased).of_layer(layer):
            size, attribute = encoder.layers[layer].head_dim, erased[head].attribute
            columns = slice(head.head * size, head.head * size + size)
            places, control_places = (_places(batches, columns, encoder.prefix) for batches in outputs)
            retained = [_between(place, labels) for place in control_places]
            if preserve.texts is not None:
                retained.append(_text_directions(encoder, head, preserve.texts))
            classes = torch.cat(retained) if retained else None
            fit, row = _fit(places, codes[attribute], classes, preserve.strength)
            maps.setdefault(erased[head].replacement, {})[head] = fit.float()
            rows.append({"head": str(head), "attribute": attribute, **row})
        fitted = Intervention(heads, maps)
        here, n_heads = fitted.of_layer(layer), encoder.layers[layer].n_heads
        for batches, values in zip(trunks, outputs, strict=True):
            changed = (changed_values(batch, here, n_heads) for batch in values)
            batches[:] = map(encoder.next_trunk, batches, changed)
    return fitted, rows


def _open_trunks(side: Side, inputs: Any, layer: int) -> tuple[list[Trunk], NDArray[np.intp]]:
    """Return a layer's input batches, and the indices of the inputs in their order."""
    batches = list(side.batches(inputs))
    order = [np.arange(len(inputs))[rows] for rows, _ in batches]
    trunks = [side.encoder.trunk(batch, layer) for _, batch in batches]
    return trunks, np.concatenate([*order, np.empty(0, np.intp)])


def _group_numbers(names: Any, order: NDArray[np.intp], attribute: str) -> Tensor:
    """Return each input's group as a number [n], in the order of batches; InputError for wrong names."""
    values = np.asarray(names, np.str_)
    if len(values) != len(order) or len(set(values.tolist())) < 2:
        raise InputError(
            f"Erasing {attribute!r} needs two or more groups and a group for each of {len(order)} "
            f"inputs; got {len(set(values.tolist()))} groups of {len(values)}."
        )
    return torch.from_numpy(np.unique(values[order], return_inverse=True)[1])


def _places(batches: list[Tensor], columns: slice, prefix: int) -> list[Tensor]:
    """Return a head's outputs [n, d] at the CLS token and at the mean patch, if any, from all [n, T, H d]."""
    outputs = [values[..., columns].double() for values in batches]
    if not outputs:
        return []
    is_pool = outputs[0].shape[1] == 1
    first = [torch.cat([output[:, 0] for output in outputs])] if prefix or is_pool else []
    return first if is_pool else [*first, torch.cat([output[:, prefix:].mean(1) for output in outputs])]


def _fit(
    places: list[Tensor], codes: Tensor, classes: Tensor | None = None, strength: float = 0.0
) -> tuple[Tensor, dict[str, float]]:
    """Return the map of a head from its outputs at each place [n, d], and its numbers."""
    directions = torch.cat([_between(place, codes) for place in places])
    mean = torch.stack([place.mean(0) for place in places]).mean(0)
    fit = erasing_map(directions, mean, classes, strength)
    after = _spread(directions @ fit[:-1])
    removed = float(len(mean) - fit[:-1].trace())
    return fit, {"directions": removed, "before": _spread(directions), "after": after}


def _between(outputs: Tensor, codes: Tensor) -> Tensor:
    """Return the group means of outputs [n, d] minus their mean [g, d]."""
    means = torch.stack([outputs[codes == code].mean(0) for code in range(int(codes.max()) + 1)])
    return means - means.mean(0)


def _spread(directions: Tensor) -> float:
    return float(directions.square().sum(1).mean().sqrt())


def _text_directions(encoder: Encoder, head: Head, texts: NDArray[np.floating]) -> Tensor:
    """Return the outputs [k, d] with which a head would write most toward each text, minus their mean."""
    written = encoder.directions(head.layer, [head.head])[0, :, : encoder.layers[head.layer].head_dim]
    toward = torch.as_tensor(texts).double() @ written.mean(0).double().T.cpu()
    return toward - toward.mean(0)
