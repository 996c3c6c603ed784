"""Heads by what they write: texts (CCS, labels, those that name the groups), and whom it tells apart.

The texts that name the groups are the mechanistic fairness audit's (Yasser et al. 2026, arXiv 2603.11793).
Concept activation vectors: they span the concept's directions, and a head's score is how much its
contribution varies along these from person to person. TEXTSPAN with these texts added to the pool: a head's
score is the share of its variance that those of them explain which it picks. The audit takes heads that both
point to.

Head Pursuit (Basile et al. 2025, arXiv 2510.21518): simultaneous orthogonal matching pursuit writes what a
head contributes to all people as a combination of texts from a dictionary restricted to the concept; heads
are ranked by the share that is rebuilt. The source works on the token embeddings of generative models. Here
the dictionary holds the texts that name the groups, and the contributions are taken less their mean, without
which a head that writes the same to everybody would come first.

SITH (Gentile et al. 2026, arXiv 2603.24653), which needs no images: the product of a head's value and output
weights has singular vectors, the directions that it writes, and singular values, how strongly. Each direction
is explained by a sparse, coherent, non-negative combination of texts (COMP). The source asks a language model
which explanations are about a concept; here those are that use texts which name the groups. It also subtracts
the mean embedding of images; here no image is needed.

Locate-Then-Correct (arXiv 2505.17425) looks for heads that lead to biased answers more often than to others.
The source contrasts occupations with a counterpart and splits the pictures of the disadvantaged group into
those answered wrongly and rightly. Faces without an occupation have no right answer. So here, for each of the
ten pairs of prompts whose answers differ most between groups, the pictures of the group that gets one answer
most often are split into those that get it (the biased answer) and those that do not. As in the source, only
the head counts that contributes most to the given answer over the other one.

Expert heads ("Debiasing CLIP with neural interventions", ECIR 2026) are those by which a linear probe, fitted
to each head's output at the CLS token of each picture, tells the groups apart.
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
    """Rank high CCS first, ties by the share of variance that texts explain, unknown CCS last."""
    explained = {head: sum(span.share for span in spans) for head, spans in evidence.reading.spans.items()}
    return {
        head: -1.0 if score.ccs is None else score.ccs + min(explained.get(head, 0.0), 0.999)
        for head, score in evidence.reading.scores.items()
    }


def ccs_low(evidence: Evidence) -> Scores:
    """Rank low CCS first, the reverse of `ccs_high`, unknown CCS last."""
    known = ccs_high(evidence)
    return {head: -score if score >= 0 else -math.inf for head, score in known.items()}


def label(evidence: Evidence) -> Scores:
    """Rank heads labeled People or below first, ties by the share that texts about people explain."""
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
        evidence: the half that the method sees.
        k: how many texts TEXTSPAN picks for each head.
    """
    reading = evidence.reading
    added = [text for texts in evidence.names.values() for text in texts]
    wanted = {text.casefold() for text in added}
    # The added texts come first, since TEXTSPAN drops the later of two equal texts.
    embeddings = np.concatenate([evidence.model.embed_texts(texts) for texts in (added, reading.pool.texts)])
    spans_by_head = textspan(reading.moments, [*added, *reading.pool.texts], embeddings, k)
    return {
        head: sum(span.share for span in spans if span.text.casefold() in wanted)
        for head, spans in spans_by_head.items()
    }


def audit(evidence: Evidence) -> Scores:
    """Rank heads that pass both filters first, each part by concept activation vectors.

    The filters: a score above the heads' mean, and a text that names a group among those that the head picks.
    """
    vectors, texts = concept_vectors(evidence), group_texts(evidence)
    mean, largest = np.mean(list(vectors.values())), max(vectors.values())
    return {
        head: float(value > mean and texts[head] > 0) + (value / largest if largest else 0.0)
        for head, value in vectors.items()
    }


TEXTS = 5
"""The most texts in a combination."""
COHERENCE = 0.3


def pursuit(evidence: Evidence) -> Scores:
    """Return the share of the variance of the head's contributions that texts naming the groups rebuild."""
    names = [text for texts in evidence.names.values() for text in texts]
    texts = evidence.model.embed_texts(names).astype(np.float64)
    parts = evidence.seen[1].astype(np.float64)
    parts -= parts.mean(axis=0)
    return by_head(evidence, [rebuilt(parts[:, row], texts) for row in range(parts.shape[1])])


def rebuilt(rows: Floats, texts: Floats, n_texts: int = TEXTS) -> float:
    """Compute the share of the squares of rows that lies in the span of a few texts.

    Texts are chosen one at a time: the one with the largest sum of absolute products with what is left.

    Args:
        rows: [n, d].
        texts: [texts, d].
        n_texts: the most texts to choose.
    """
    whole = float(np.square(rows).sum())
    chosen: list[int] = []
    left = rows
    for _ in range(min(n_texts, len(texts))):
        products = np.abs(left @ texts.T).sum(axis=0)
        products[chosen] = -1.0
        chosen.append(int(products.argmax()))
        weights = np.linalg.lstsq(texts[chosen].T, rows.T, rcond=None)[0]
        left = rows - weights.T @ texts[chosen]
    return 1 - float(np.square(left).sum()) / whole if whole else 0.0


def singular_vectors(evidence: Evidence) -> Scores:
    """Return the part of the explanations that name the groups, weighted by squared singular values."""
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
        model: the model.
        head: a head of one of its blocks.

    Returns:
        [W, D], from the block's input to the embedding.
    """
    layer = model.encoder.layers[head.layer]
    values = layer.separate_projections()[2][0]
    value_rows = slice(head.head * layer.head_dim, (head.head + 1) * layer.head_dim)
    with torch.no_grad():
        written = model.encoder.basis(head)[: layer.head_dim]
        return np.asarray((values[value_rows].T.float() @ written.float()).cpu().numpy(), np.float64)


def coherent(direction: Floats, texts: Floats, n_texts: int = TEXTS) -> Floats:
    """Explain a direction by a few texts with non-negative weights.

    Each next text is the one with the largest product with what is left, plus COHERENCE times its mean cosine
    with those chosen before.

    Args:
        direction: [d].
        texts: unit rows [texts, d].
        n_texts: the most texts to choose.

    Returns:
        A weight for each text [texts]; most are 0.
    """
    chosen: list[int] = []
    left, text_weights = direction, np.zeros(len(texts))
    for _ in range(min(n_texts, len(texts))):
        products = texts @ left
        if chosen:
            products = products + COHERENCE * (texts @ texts[chosen].mean(axis=0))
        products[chosen] = -np.inf
        chosen.append(int(products.argmax()))
        amounts, _ = nnls(texts[chosen].T, direction)
        left = direction - amounts @ texts[chosen]
    text_weights[chosen] = amounts
    return text_weights


PAIRS, FOLDS = 10, 5


def locate_then_correct(evidence: Evidence) -> Scores:
    """Return the head's share of first places for biased answers less that for others; mean over pairs."""
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
        raise InputError("A probe of groups needs two of them or more, with two people each in either half.")
    folds = StratifiedKFold(min(FOLDS, int(sizes.min())), shuffle=True, random_state=evidence.seed)
    scores = {}
    for row, head in enumerate(evidence.model.heads):
        # A head's contribution lies in a few dimensions of its own; only in these is a probe well posed.
        parts = evidence.seen[1][:, row].astype(np.float64)
        _, _, directions = np.linalg.svd(parts - parts.mean(axis=0), full_matrices=False)
        inside = parts @ directions[: evidence.model.encoder.rank(head)].T
        probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        odds = cross_val_predict(probe, inside, codes, cv=folds, method="predict_proba")
        right = balanced_accuracy_score(codes, odds.argmax(axis=1))
        scores[head] = float(right - 1e-4 * min(log_loss(codes, odds), 10.0))
    return scores
