"""Four methods of finding the heads that carry a bias, each a function from `Evidence` to a score per head.

- *learned mask*: train one gate per head so that the rankings' group score gap falls and few gates close
  (optimized masks were among the best in the Mechanistic Interpretability Benchmark, Mueller et al. 2025,
  arXiv 2504.13151; gates as in Cao et al. 2021, arXiv 2104.03514, without their noise).
- *activation patching*: replace a head's output with that for a person of another group (Vig et al. 2020).
- *patching by gradient*: the same to first order, with one forward and one backward pass for all heads
  (attribution patching: Nanda 2023; Syed et al. 2023, arXiv 2310.10348).
- *total effect*: ablate each head alone, and measure how far MaxSkew falls.

The first leads on planted heads, the second on skews that a model learned by itself. The third nearly reaches
them at a third of the cost. The fourth is the direct measurement. More methods, and scores of all, are in the
package `ccs_benchmark`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccs.analysis.evidence import Evidence, Method, Scores, by_head
from ccs.heads import Head
from ccs.model.encoder import Trunk
from ccs.model.model import Model

Embeddings = NDArray[np.float32]
"""Unit embeddings of the people [n, d]."""
Statistic = Callable[[Evidence, Embeddings], float]


def mean_max_skew(evidence: Evidence, embedded: Embeddings) -> float:
    """Return the mean MaxSkew over the prompts.

    Args:
        evidence: Model, people, and prompts.
        embedded: Unit embeddings of the people [n, d].
    """
    return evidence.task.mean_max_skew(embedded)


def signed_score_gap(evidence: Evidence, embedded: Embeddings) -> float:
    """Return the group score gap along the direction that it has before any change.

    Patching reverses a head's part of the gap instead of removing it. Statistics without a sign may miss
    that.

    Args:
        evidence: Model, people, and prompts.
        embedded: Unit embeddings of the people [n, d].
    """
    return float((embedded * evidence.toward).sum(dtype=np.float64))


def drop(evidence: Evidence, changed: Iterable[Embeddings], statistic: Statistic) -> Scores:
    """Return how far a statistic falls when each head is changed.

    Args:
        evidence: Model, people, and prompts.
        changed: Unit embeddings of the people [n, d] with each head changed in turn.
        statistic: Function from evidence and embeddings to a number.
    """
    before = statistic(evidence, evidence.seen[0])
    return by_head(evidence, [before - statistic(evidence, embedded) for embedded in changed])


def total_effect(evidence: Evidence) -> Scores:
    """Return how far MaxSkew falls with each head ablated alone; later layers react to the change."""
    return drop(evidence, evidence.singles, mean_max_skew)


def activation_patching(evidence: Evidence) -> Scores:
    """Return how far the signed gap falls with each head's output replaced (`resample`)."""
    return drop(evidence, resample(evidence), signed_score_gap)


# Replacing outputs ------------------------------------------------------------------------------------------


def resample(evidence: Evidence) -> NDArray[np.float32]:
    """Return embeddings [heads, n, d] with each head's output replaced by that for another group's person."""
    parts = []
    for people, others, _ in pairs(evidence):
        evidence.tell("activation patching")
        with torch.no_grad():
            outputs, _ = head_outputs(evidence.model, others)
        parts.append(replace_outputs(evidence.model, people, outputs))
    return np.concatenate(parts, axis=1)


def head_outputs(
    model: Model, people: Trunk, values: Callable[..., Tensor] | None = None
) -> tuple[dict[int, Tensor], Tensor]:
    """Return each layer's heads' outputs before the output projection [n, T, H d], and embeddings [n, d].

    Args:
        model: Model whose heads are read.
        people: Activations of the people below the first scored head.
        values: Function that computes a layer's head outputs. By default the layer's own.
    """
    outputs: dict[int, Tensor] = {}

    def store(layer: int, output: Tensor) -> Tensor:
        """Store a layer's outputs, so that gradients reach them if any are computed.

        Args:
            layer: Number of the layer.
            output: Outputs of the layer's heads [n, T, H d].
        """
        track = torch.is_grad_enabled() and not output.requires_grad
        outputs[layer] = output.requires_grad_() if track else output
        return outputs[layer]

    return outputs, model.encoder.with_values(people, store, values)


def replace_outputs(model: Model, people: Trunk, others: Mapping[int, Tensor]) -> NDArray[np.float32]:
    """Return unit embeddings [heads, n, d] of people, each head in turn with another output.

    Args:
        model: Model whose scored heads are replaced.
        people: Activations of the people below the first scored head.
        others: Layer -> outputs [n or 1, T, H d], as from `head_outputs`.
    """
    encoder, embedded, start = model.encoder, [], people
    for head in model.heads:  # by layer, so that what lies below is computed once
        start = encoder.trunk(start, head.layer)
        d = encoder.layers[head.layer].head_dim
        columns = slice(head.head * d, (head.head + 1) * d)

        def swap(layer: int, values: Tensor, head: Head = head, columns: slice = columns) -> Tensor:
            """Replace one head's output by that in `others`.

            Args:
                layer: Number of the layer.
                values: Outputs of the layer's heads [n, T, H d].
                head: Head to replace, bound when the function is defined.
                columns: Columns of the head in `values`.
            """
            if layer != head.layer:
                return values
            values = values.clone()
            values[..., columns] = others[layer][..., columns]
            return values

        with torch.no_grad():
            embedded.append(encoder.with_values(start, swap).cpu().numpy())
    return np.stack(embedded)


def in_batches(people: Trunk, size: int = 64) -> Iterable[slice]:
    """Return the rows of the people in batches.

    Args:
        people: Activations of n people.
        size: Number of people per batch.
    """
    return (slice(start, start + size) for start in range(0, len(people), size))


def counterparts(evidence: Evidence) -> NDArray[np.intp]:
    """Return, for each person [n], the index of a person of another group; the other groups take turns."""
    codes, rng = evidence.codes, np.random.default_rng([evidence.seed, 6])
    groups = int(codes.max()) + 1
    members = [rng.permutation(np.flatnonzero(codes == group)) for group in range(groups)]
    place = np.zeros(len(codes), np.intp)
    for group in members:
        place[group] = np.arange(len(group))
    other = (codes + 1 + place % (groups - 1)) % groups
    return np.array([members[o][p % len(members[o])] for o, p in zip(other, place, strict=True)])


def pairs(evidence: Evidence) -> Iterator[tuple[Trunk, Trunk, slice]]:
    """Yield the people in batches: themselves, their counterparts, and their rows."""
    people, other = evidence.people, counterparts(evidence)
    for rows in in_batches(people):
        yield people[rows], Trunk(people.tokens[torch.from_numpy(other[rows])], people.layer), rows


# Gradients --------------------------------------------------------------------------------------------------

Directions = Callable[[Evidence], NDArray[np.float32]]
"""Vectors [n, d] whose products with embeddings, summed, are a statistic: to first order, the signed gap."""
Backward = Callable[[], AbstractContextManager[Any]]


def gradient(
    evidence: Evidence,
    directions: Directions = lambda evidence: evidence.toward,
    steps: Sequence[float] = (1.0,),
    rules: Backward = nullcontext,
    values: Callable[..., Tensor] | None = None,
) -> Scores:
    """Return how far a statistic falls under activation patching, to first order.

    Args:
        evidence: Model, people, and prompts.
        directions: Function from evidence to the vectors of the statistic.
        steps: Shares of the person's own inputs over which the gradient is averaged. The rest is the
            counterpart's.
        rules: Function that returns a context in which the gradient is taken.
        values: Function that computes a layer's head outputs in that context. By default the layer's own.
    """
    model, scores = evidence.model, dict.fromkeys(evidence.model.heads, 0.0)
    vectors = directions(evidence)
    for people, others, rows in pairs(evidence):
        evidence.tell("patching by gradient")
        with torch.no_grad():
            ours, theirs = head_outputs(model, people)[0], head_outputs(model, others)[0]
        for step in steps:
            tokens = people.tokens if step == 1 else torch.lerp(others.tokens, people.tokens, step)
            with torch.enable_grad(), rules():
                outputs, embedded = head_outputs(model, Trunk(tokens, people.layer), values)
                moved = (embedded * torch.from_numpy(vectors[rows]).to(embedded.device)).sum()
                slopes = torch.autograd.grad(moved, list(outputs.values()))
            for layer, slope in zip(outputs, slopes, strict=True):
                along = ((ours[layer] - theirs[layer]) * slope).sum(dim=(0, 1)) / len(steps)
                by_number = along.reshape(model.encoder.layers[layer].n_heads, -1).sum(dim=1).tolist()
                for number, value in enumerate(by_number):
                    if (head := Head(layer, number)) in scores:
                        scores[head] += value
    return scores


# Heads chosen together --------------------------------------------------------------------------------------

STEPS, RATE, BATCH = 30, 0.3, 100
OPEN = 2.0
"""The initial value of the gates' parameters; its sigmoid is 0.88."""
SPARSITY = 1.0
"""Weight of the mean gate's distance from 1, in shares of the square with all gates open."""
LEARNED_MASK = "learned mask"


def between_groups(means: Tensor) -> Tensor:
    """Return the variance between groups of their mean cosines [prompts, groups], to be lowered by gates."""
    return (means - means.mean(dim=1, keepdim=True)).square().mean()


def learned_mask(evidence: Evidence, lowered: Callable[[Tensor], Tensor] = between_groups) -> Scores:
    """Return how far each head's gate has closed at the end of training, 0 to 1.

    Args:
        evidence: Model, people, and prompts. Mitigations share the scores that it stores.
        lowered: Function of the groups' mean cosines [prompts, groups], which gates are trained to lower.
    """
    name = f"{LEARNED_MASK} of {lowered.__name__}"
    if name not in evidence.memory:
        evidence.memory[name] = _train_gates(evidence, lowered)
    return evidence.memory[name]


@torch.enable_grad()  # notebooks turn gradients off
def _train_gates(evidence: Evidence, lowered: Callable[[Tensor], Tensor]) -> Scores:
    """Train gates to lower a squared statistic, and return how far each head's has closed, 0 to 1."""
    rng, heads = np.random.default_rng([evidence.seed, 7]), evidence.model.heads
    everyone = np.arange(len(evidence.people))
    rows = np.concatenate([rng.permutation(everyone) for _ in range(STEPS)])
    parameters = torch.full((len(heads),), OPEN, requires_grad=True)
    optimizer, size = torch.optim.Adam([parameters], RATE), min(BATCH, len(everyone))
    with torch.no_grad():
        start = float(lowered(_group_means(evidence, everyone, torch.ones(len(heads)))))
    for step in range(STEPS):
        evidence.tell(f"{LEARNED_MASK}: step {step + 1} of {STEPS}")
        gates, batch = torch.sigmoid(parameters), np.sort(rows[step * size : (step + 1) * size])
        square = lowered(_group_means(evidence, batch, gates))
        loss = square / max(start, 1e-12) + SPARSITY * (1 - gates).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return dict(zip(heads, (1 - torch.sigmoid(parameters)).tolist(), strict=True))


def _group_means(evidence: Evidence, rows: np.ndarray, gates: Tensor) -> Tensor:
    """Return groups' mean cosines [prompts, groups] of people [rows], with gates [heads] on the outputs."""
    task, encoder = evidence.task, evidence.model.encoder
    place = {head: number for number, head in enumerate(evidence.model.heads)}

    def gate(layer: int, values: Tensor) -> Tensor:
        """Multiply each head's output by its gate; heads without a gate are unchanged.

        Args:
            layer: Number of the layer.
            values: Outputs of the layer's heads [n, T, H d].
        """
        gated = (place.get(Head(layer, number)) for number in range(encoder.layers[layer].n_heads))
        factors = torch.stack([torch.ones(()) if number is None else gates[number] for number in gated])
        return values * factors.repeat_interleave(encoder.layers[layer].head_dim).to(values.device)

    codes = evidence.codes[rows]
    shares = (codes == np.arange(codes.max() + 1)[:, None])[None] * np.ones((len(evidence.prompts), 1, 1))
    if task.pools is not None:
        shares = shares * task.pools[:, None, rows]
    shares = shares / np.maximum(shares.sum(axis=2, keepdims=True), 1)
    units = encoder.with_values(evidence.people[rows], gate)
    cosines = units @ torch.from_numpy(evidence.prompts).to(units.device).T
    return torch.einsum("pgn,np->pg", torch.from_numpy(shares).to(cosines), cosines)


RELIABILITY: Mapping[str, tuple[float, float]] = {
    LEARNED_MASK: (0.99, 1.00),
    "activation patching": (0.95, 1.02),
    "patching by gradient": (0.94, 1.00),
    "total effect": (0.53, 0.70),
    "random": (0.16, 0.28),
}
"""Method -> average precision on the benchmark's models with planted carriers, and, on models that learned a
bias by themselves, the share of the true carriers' reduction of the group score gap (a test checks them).
"""


def reliability(method: str) -> str:
    """Return a sentence about a method's scores on the benchmark."""
    if method not in RELIABILITY:
        return "The benchmark has no score of it; `python -m ccs_benchmark --method` gives one."
    (planted, learned), (chance, chance_learned) = RELIABILITY[method], RELIABILITY["random"]
    return (
        f"On small models with planted carriers average precision is {planted:.2f} (random {chance:.2f}); "
        f"on models that learned a bias by themselves its heads reduce the group score gap {learned:.2f} "
        f"times as far as the true carriers (random {chance_learned:.2f})."
    )


DEFAULT = LEARNED_MASK
"""The method that leads on the benchmark's development bases."""
METHODS: Mapping[str, Method] = {
    LEARNED_MASK: learned_mask,
    "activation patching": activation_patching,
    "patching by gradient": gradient,
    "total effect": total_effect,
}
