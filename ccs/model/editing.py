"""Erase groups from heads' outputs: what a head writes about an attribute goes, the rest of it stays.

A head's output `o` becomes `mean + M (o - mean)`. `M` [d, d] is fitted on people with groups (`erasing_map`),
layer by layer: each layer on the activations that the edits of earlier layers leave. Weights can hold it:
the head's columns of the output projection are multiplied by `M`, and its bias gains the projection of
`mean - M mean`.

Shapes: n images or texts, T tokens, d dimensions of a head, g groups.
"""

from __future__ import annotations

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
from ccs.model.interception import (
    Ablation,
    begin,
    changed_values,
    end,
    head_dim,
    projection_name,
    require_heads,
)
from ccs.model.side import Side
from ccs.model.structure import locations

FLOOR = 0.03
"""Weight of the least change of other directions, next to that of the preserved classes."""
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
        strength: s, from 0 (erase completely) to 1 (preserve completely).

    Returns:
        [d + 1, d]: an output `o` becomes `o @ rows[:d] + rows[d]`.
    """
    identity = torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
    if classes is None or strength == 0:
        _, sizes, basis = torch.linalg.svd(groups, full_matrices=False)
        basis = basis[sizes > _NOISE * torch.maximum(sizes.max(), mean.norm())]
        removed = basis.T @ basis
    else:
        erased, retained = (_gram(directions) for directions in (groups, classes))
        cost = (1 - strength) * erased + strength * (retained + FLOOR * identity)
        removed = torch.linalg.solve(cost, (1 - strength) * erased).T
    return torch.cat([(identity - removed).T, (removed @ mean)[None]])


def _gram(directions: Tensor) -> Tensor:
    gram: Tensor = directions.T @ directions
    scaled: Tensor = gram / torch.linalg.matrix_norm(gram, 2).clamp_min(1e-30)
    return scaled


@dataclass(frozen=True, eq=False)
class Preserved:
    """What edited heads should keep writing.

    Attributes:
        inputs: images (or a trunk) or texts of some classes.
        labels: the class of each input [n].
        texts: unit embeddings [k, D] of texts, in place of or next to the inputs.
        strength: as of `erasing_map`.
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
    root, places = locations(module, encoder)
    names, codes = np.unique(np.asarray(groups, np.str_), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"Erasing needs two or more groups, got {len(names)}.")
    require_heads(chosen, [place.module.num_heads for place in places])
    rows = []
    for layer in chosen.layers:
        attention = places[layer].module
        outputs = _record(attention, root, run, len(codes))
        projection, size = getattr(attention, projection_name(attention)), head_dim(attention)
        prefix = int(encoder == IMAGE and has_class_token(root) and outputs.shape[1] > 1)
        for head in chosen.of_layer(layer):
            columns = slice(head.head * size, head.head * size + size)
            fit, row = _fit(_places([outputs[..., columns].double()], prefix), torch.from_numpy(codes))
            with torch.no_grad():
                edit_projection(projection.weight, projection.bias, columns, fit)
            rows.append({"head": str(head), "attribute": "", **row})
    return rows


def _record(attention: Any, root: Any, run: Callable[[], object], n: int) -> Tensor:
    """The outputs [n, T, H d] of the heads of an attention module in all passes of `run`."""
    recorder = _Recorder(attention, root, HeadSet())
    begin(recorder)
    try:
        with torch.no_grad():
            run()
    finally:
        end(recorder)
    tokens = sum(values.shape[:-1].numel() for values in recorder.values)
    if not tokens or tokens % n:
        raise InputError(
            f"The passes ran {tokens} tokens through {recorder.label}, not equally many of {n} inputs."
        )
    rows = [values.reshape(-1, values.shape[-1]) for values in recorder.values]
    return torch.cat(rows).reshape(n, tokens // n, -1)


class _Recorder(Ablation):
    """Keeps the heads' outputs and changes nothing."""

    def __init__(self, module: Any, root: Any, heads: HeadSet) -> None:
        super().__init__(module, root, heads)
        self.values: list[Tensor] = []

    def change_outputs(self, values: Tensor) -> Tensor:
        self.reached = True
        self.values.append(values.detach())
        return values


def fit_edits(
    side: Side,
    heads: HeadSet,
    inputs: Any,
    groups: Mapping[str, Any],
    preserve: Preserved | None = None,
) -> tuple[Intervention, list[dict[str, Any]]]:
    """Fit the maps of an intervention that erases attributes from heads.

    All inputs pass once through the layers, with the other changes of the intervention. Heads that have a map
    keep it.

    Args:
        side: The model, or its text side.
        heads: The intervention, such as "L6.H1=erase:skin tone".
        inputs: Images (or a trunk) of people, or texts.
        groups: Attribute -> the group of each input [n].
        preserve: What the heads should keep writing.

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
    erased = {
        head: change
        for head, change in changes(heads)
        if change.attribute and head not in maps.get(change.replacement, {})
    }
    if not erased:
        return fitted, []
    first = min(head.layer for head in heads)
    people = _open_trunks(side, inputs, first)
    controls = _open_trunks(side, preserve.inputs, first)
    codes = {
        name: people.group_numbers(groups.get(name, ()), name)
        for name in {c.attribute for c in erased.values()}
    }
    labels = controls.group_numbers(preserve.labels, "class") if len(preserve.inputs) else None
    for layer in range(first, max(erased).layer + 1):
        for head in HeadSet(erased).of_layer(layer):
            places = people.places(head.head)
            retained = (
                [] if labels is None else [_between(place, labels) for place in controls.places(head.head)]
            )
            if preserve.texts is not None:
                retained.append(_text_directions(encoder, head, preserve.texts))
            classes = torch.cat(retained) if retained else None
            attribute = erased[head].attribute
            fit, row = _fit(places, codes[attribute], classes, preserve.strength)
            maps.setdefault(erased[head].replacement, {})[head] = fit.float()
            rows.append({"head": str(head), "attribute": attribute, **row})
        fitted = Intervention(heads, maps)
        people.advance(fitted)
        controls.advance(fitted)
    return fitted, rows


class _Activations:
    """The activations of inputs in one layer after the other, in batches.

    Args:
        encoder: The encoder.
        trunks: The batches as they enter the first layer.
        order: The number of each input, in the order of the batches.
    """

    def __init__(self, encoder: Encoder, trunks: list[Trunk], order: NDArray[np.intp]) -> None:
        self.encoder, self.trunks, self.order = encoder, trunks, order
        self._outputs: list[Tensor] | None = None

    @property
    def outputs(self) -> list[Tensor]:
        """The outputs of the layer's heads, a batch [n, T, H d] each."""
        if self._outputs is None:
            self._outputs = [self.encoder.head_outputs(trunk) for trunk in self.trunks]
        return self._outputs

    def group_numbers(self, names: Any, attribute: str) -> Tensor:
        """Return the group of each input as a number [n], in the order of the batches.

        Args:
            names: The name of each input's group [n], in the order of the inputs.
            attribute: The attribute's name, for the error.

        Raises:
            InputError: If there aren't as many names as inputs, or fewer than two groups.
        """
        values = np.asarray(names, np.str_)
        if len(values) != len(self.order) or len(set(values.tolist())) < 2:
            raise InputError(
                f"Erasing {attribute!r} needs two or more groups and a group for each of {len(self.order)} "
                f"inputs; got {len(set(values.tolist()))} groups of {len(values)}."
            )
        return torch.from_numpy(np.unique(values[self.order], return_inverse=True)[1])

    def places(self, head: int) -> list[Tensor]:
        """A head's outputs [n, d] at the CLS token and as the mean over patches, as far as both exist."""
        layer = self.encoder.layers[self.trunks[0].layer]
        columns = slice(head * layer.head_dim, head * layer.head_dim + layer.head_dim)
        return _places([output[..., columns].double() for output in self.outputs], self.encoder.prefix)

    def advance(self, changed: Intervention) -> None:
        """Go on to the next layer, with the heads of this one changed."""
        if not self.trunks:
            return
        layer = self.trunks[0].layer
        here, n_heads = changed.of_layer(layer), self.encoder.layers[layer].n_heads
        self.trunks = [
            self.encoder.next_trunk(trunk, changed_values(output, here, n_heads))
            for trunk, output in zip(self.trunks, self.outputs, strict=True)
        ]
        self._outputs = None


def _open_trunks(side: Side, inputs: Any, layer: int) -> _Activations:
    batches = list(side.batches(inputs))
    trunks = [side.encoder.trunk(batch, layer) for _, batch in batches]
    order = [np.arange(len(inputs))[rows] for rows, _ in batches]
    return _Activations(side.encoder, trunks, np.concatenate([*order, np.empty(0, np.intp)]))


def _places(outputs: list[Tensor], prefix: int) -> list[Tensor]:
    """A head's outputs, batches [n, T, d], as [n, d] at the CLS token and at the mean patch, if any."""
    is_pool = outputs[0].shape[1] == 1
    first = [torch.cat([output[:, 0] for output in outputs])] if prefix or is_pool else []
    return first if is_pool else [*first, torch.cat([output[:, prefix:].mean(1) for output in outputs])]


def _fit(
    places: list[Tensor], codes: Tensor, classes: Tensor | None = None, strength: float = 0.0
) -> tuple[Tensor, dict[str, float]]:
    """The map of a head from its outputs at each place [n, d], and its numbers."""
    directions = torch.cat([_between(place, codes) for place in places])
    mean = torch.stack([place.mean(0) for place in places]).mean(0)
    fit = erasing_map(directions, mean, classes, strength)
    after = _spread(directions @ fit[:-1])
    removed = float(len(mean) - fit[:-1].trace())
    return fit, {"directions": removed, "before": _spread(directions), "after": after}


def _between(outputs: Tensor, codes: Tensor) -> Tensor:
    """The group means of outputs [n, d] minus their mean [g, d]."""
    means = torch.stack([outputs[codes == code].mean(0) for code in range(int(codes.max()) + 1)])
    return means - means.mean(0)


def _spread(directions: Tensor) -> float:
    return float(directions.square().sum(1).mean().sqrt())


def _text_directions(encoder: Encoder, head: Head, texts: NDArray[np.floating]) -> Tensor:
    """The outputs [k, d] with which a head would write most toward each text, minus their mean."""
    written = encoder.directions(head.layer, [head.head])[0, :, : encoder.layers[head.layer].head_dim]
    toward = torch.as_tensor(texts).double() @ written.mean(0).double().T.cpu()
    return toward - toward.mean(0)
