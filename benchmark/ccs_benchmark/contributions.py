"""Rank heads by their contributions: the texts that describe them, and how well they separate groups.

Mechanistic fairness audit (Yasser et al. 2026, arXiv 2603.11793): texts that name the groups define the
concept. Concept activation vectors are the directions that these texts span; a head's score is the variation
of its contribution along them. TEXTSPAN runs with these texts added to the pool; a head's score is the share
of its variance that they explain. The audit takes heads that both select.

Head Pursuit (Basile et al. 2025, arXiv 2510.21518): simultaneous orthogonal matching pursuit rebuilds a
head's contributions from a dictionary of texts about the concept. Heads are ranked by the rebuilt share. The
source works on token embeddings of generative models. Our dictionary has the texts that name the groups, and
we subtract the mean contribution first; otherwise a head with a constant contribution would rank first.

SITH (Gentile et al. 2026, arXiv 2603.24653): the singular vectors of a head's value-output weights are its
output directions, and the singular values their strengths. Each direction is explained by a sparse, coherent,
non-negative combination of texts (COMP). The source asks an LLM which explanations are about a concept; we
count texts that name the groups. The source also subtracts the mean image embedding; we use no images.

Locate-Then-Correct (arXiv 2505.17425): finds heads that contribute to biased answers more often than to
others. The source compares occupations with a counterpart, and splits the disadvantaged group's images into
wrong and right answers. Our faces have no right answer. We take the ten pairs of prompts whose answers differ
most between groups, and split the images of the group that gets one answer most often into those with this
(biased) answer and the others. As in the source, only the head with the largest contribution to the answer
counts per image.

Expert heads ("Debiasing CLIP with neural interventions", ECIR 2026): a linear probe of the group, fitted to
each head's output at the CLS token.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import torch
from scipy.optimize import nnls
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ccs.analysis.evidence import Evidence, Scores, by_head
from ccs.errors import InputError
from ccs.heads import Head
from ccs.metrics.stats import Floats
from ccs.model.model import Model
from ccs.texts import labels
from ccs.texts.textspan import textspan

PEOPLE = "People"


def ccs_high(evidence: Evidence) -> Scores:
    """Rank heads by falling CCS, ties by the share of variance that texts explain, unknown CCS last."""
    explained = {head: sum(span.share for span in spans) for head, spans in evidence.reading.spans.items()}
    return {
        head: -1.0 if score.ccs is None else score.ccs + min(explained.get(head, 0.0), 0.999)
        for head, score in evidence.reading.scores.items()
    }


def ccs_low(evidence: Evidence) -> Scores:
    """Rank heads by rising CCS, the reverse of `ccs_high`, unknown CCS last."""
    known = ccs_high(evidence)
    return {head: -score if score >= 0 else -math.inf for head, score in known.items()}


def label(evidence: Evidence) -> Scores:
    """Rank heads labeled People or a narrower concept first, ties by the share of texts about people."""
    tree = labels.tree()

    def about_people(concept: str | None) -> bool:
        return concept is not None and tree.is_under(tree.find_concept(concept) or concept, PEOPLE)

    return {
        head: about_people(score.label)
        + sum(
            span.share
            for span in evidence.reading.spans.get(head, ())
            if about_people(evidence.reading.pool.concept_of(span.text))
        )
        for head, score in evidence.reading.scores.items()
    }


def concept_vectors(evidence: Evidence) -> Scores:
    """Return each head's standard deviation along the directions that separate the groups' texts."""
    means = np.stack([evidence.model.embed_texts(texts).mean(axis=0) for texts in evidence.names.values()])
    _, strength, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    independent = directions[strength > 1e-6 * strength[0]]
    along = evidence.seen[1] @ independent.T
    return by_head(evidence, np.sqrt(along.var(axis=0, dtype=np.float64).sum(axis=-1)))


def group_texts(evidence: Evidence, k: int = 5) -> Scores:
    """Score heads by the share of their variance that texts naming the groups explain.

    Args:
        evidence: The half that the method sees.
        k: Number of texts per head.
    """
    reading = evidence.reading
    added = [text for texts in evidence.names.values() for text in texts]
    names = {text.casefold() for text in added}
    # The added texts come first, since TEXTSPAN drops the later of two equal texts.
    embeddings = np.concatenate([evidence.model.embed_texts(texts) for texts in (added, reading.pool.texts)])
    spans_by_head = textspan(reading.moments, [*added, *reading.pool.texts], embeddings, k)
    return {
        head: sum(span.share for span in spans if span.text.casefold() in names)
        for head, spans in spans_by_head.items()
    }


def audit(evidence: Evidence) -> Scores:
    """Rank heads that pass both filters first, then by concept activation vectors.

    The filters: a score above the mean of all heads, and a selected text that names a group.
    """
    vectors, texts = concept_vectors(evidence), group_texts(evidence)
    mean, largest = np.mean(list(vectors.values())), max(vectors.values())
    return {
        head: float(value > mean and texts[head] > 0) + (value / largest if largest else 0.0)
        for head, value in vectors.items()
    }


TEXTS = 5
"""Maximum number of texts in a combination."""
COHERENCE = 0.3


def pursuit(evidence: Evidence) -> Scores:
    """Score heads by the share of their variance that texts naming the groups rebuild."""
    names = [text for texts in evidence.names.values() for text in texts]
    texts = evidence.model.embed_texts(names).astype(np.float64)
    parts = evidence.seen[1].astype(np.float64)
    parts -= parts.mean(axis=0)
    return by_head(evidence, [rebuilt(parts[:, row], texts) for row in range(parts.shape[1])])


def rebuilt(rows: Floats, texts: Floats, n_texts: int = TEXTS) -> float:
    """Compute the share of the squares of rows that lies in the span of a few texts.

    Texts are chosen one by one, by the largest sum of absolute products with the remainder.

    Args:
        rows: Rows [n, d].
        texts: Text embeddings [texts, d].
        n_texts: Maximum number of texts.
    """
    whole = float(np.square(rows).sum())
    chosen: list[int] = []
    remainder = rows
    for _ in range(min(n_texts, len(texts))):
        products = np.abs(remainder @ texts.T).sum(axis=0)
        products[chosen] = -1.0
        chosen.append(int(products.argmax()))
        weights = np.linalg.lstsq(texts[chosen].T, rows.T, rcond=None)[0]
        remainder = rows - weights.T @ texts[chosen]
    return 1 - float(np.square(remainder).sum()) / whole if whole else 0.0


def singular_vectors(evidence: Evidence) -> Scores:
    """Score heads by the weight of texts naming the groups in their directions."""
    names = [text for texts in evidence.names.values() for text in texts]
    embeddings = [evidence.model.embed_texts(texts) for texts in (names, evidence.reading.pool.texts)]
    dictionary = np.concatenate(embeddings).astype(np.float64)
    dictionary -= dictionary.mean(axis=0)
    dictionary /= np.maximum(np.linalg.norm(dictionary, axis=1, keepdims=True), 1e-12)
    scores = {}
    for head in evidence.model.heads:
        _, strengths, directions = np.linalg.svd(value_output(evidence.model, head), full_matrices=False)
        nonzero = strengths > 1e-6 * strengths[0]
        explained = [coherent(direction, dictionary) for direction in directions[nonzero]]
        name_shares = [weights[: len(names)].sum() / max(weights.sum(), 1e-12) for weights in explained]
        scores[head] = float(np.average(name_shares, weights=strengths[nonzero] ** 2))
    return scores


def value_output(model: Model, head: Head) -> Floats:
    """Multiply a head's value weights by its directions in the embedding space.

    Args:
        model: The model.
        head: A head.

    Returns:
        The map from the block's input to the embedding [W, D].
    """
    layer = model.encoder.layers[head.layer]
    values = layer.separate_projections()[2][0]
    value_rows = slice(head.head * layer.head_dim, (head.head + 1) * layer.head_dim)
    with torch.no_grad():
        written = model.encoder.basis(head)[: layer.head_dim]
        return np.asarray((values[value_rows].T.float() @ written.float()).cpu().numpy(), np.float64)


def coherent(direction: Floats, texts: Floats, n_texts: int = TEXTS) -> Floats:
    """Explain a direction by a few texts with non-negative weights.

    The next text has the largest product with the remainder plus COHERENCE times its mean cosine with the
    texts chosen before.

    Args:
        direction: The direction [d].
        texts: Unit text embeddings [texts, d].
        n_texts: Maximum number of texts.

    Returns:
        The weights [texts]; most are 0.
    """
    chosen: list[int] = []
    remainder, text_weights = direction, np.zeros(len(texts))
    for _ in range(min(n_texts, len(texts))):
        products = texts @ remainder
        if chosen:
            products = products + COHERENCE * (texts @ texts[chosen].mean(axis=0))
        products[chosen] = -np.inf
        chosen.append(int(products.argmax()))
        amounts, _ = nnls(texts[chosen].T, direction)
        remainder = direction - amounts @ texts[chosen]
    text_weights[chosen] = amounts
    return text_weights


PAIRS, FOLDS = 10, 5


def locate_then_correct(evidence: Evidence) -> Scores:
    """Score heads by their share of first places for biased answers minus that for others."""
    embedded, direct = evidence.seen
    cosines, codes = embedded @ evidence.prompts.T, evidence.codes
    pairs = []
    for prompt, other_prompt in combinations(range(len(evidence.prompts)), 2):
        chosen = cosines[:, prompt] > cosines[:, other_prompt]
        shares = np.array([chosen[codes == group].mean() for group in range(codes.max() + 1)])
        pairs.append((float(np.ptp(shares)), prompt, other_prompt, int(shares.argmax())))
    differences = []
    for gap, prompt, other_prompt, group in sorted(pairs, reverse=True)[:PAIRS]:
        members = codes == group
        biased = cosines[members, prompt] > cosines[members, other_prompt]
        toward = direct[members] @ (evidence.prompts[prompt] - evidence.prompts[other_prompt])
        first = np.where(biased[:, None], toward, -toward).argmax(axis=1)
        counts = [np.bincount(first[side], minlength=direct.shape[1]) for side in (biased, ~biased)]
        wrong, right = (count / max(1, count.sum()) for count in counts)
        if gap > 0:
            differences.append(wrong - right)
    return by_head(evidence, np.mean(differences, axis=0) if differences else np.zeros(direct.shape[1]))


def experts(evidence: Evidence) -> Scores:
    """Rank heads by the cross-validated balanced accuracy of a probe, ties by its log loss."""
    codes = evidence.codes
    sizes = np.bincount(codes)
    if len(sizes) < 2 or sizes.min() < 2:
        raise InputError("Expert heads need at least two groups with two people each in either half.")
    folds = StratifiedKFold(min(FOLDS, int(sizes.min())), shuffle=True, random_state=evidence.seed)
    scores = {}
    for row, head in enumerate(evidence.model.heads):
        # A head's contribution has low rank; a probe is well posed only in its subspace.
        parts = evidence.seen[1][:, row].astype(np.float64)
        _, _, directions = np.linalg.svd(parts - parts.mean(axis=0), full_matrices=False)
        inside = parts @ directions[: evidence.model.encoder.rank(head)].T
        probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        odds = cross_val_predict(probe, inside, codes, cv=folds, method="predict_proba")
        right = balanced_accuracy_score(codes, odds.argmax(axis=1))
        scores[head] = float(right - 1e-4 * min(log_loss(codes, odds), 10.0))
    return scores
