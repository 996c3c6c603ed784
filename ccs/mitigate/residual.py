"""A small residual that is trained, so that a classifier can no longer tell groups."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from ccs.locate.base import Evidence
from ccs.mitigate.base import Affine, Fitted

STEPS, RATE = 300, 0.01
KEEP = 20.0
"""What it costs to move embeddings: the weight of the mean squared length of the residual."""


def dear(evidence: Evidence) -> Fitted:
    """DeAR (Seth et al. 2023, arXiv 2303.10431): a linear layer is trained whose output, added to an image's
    embedding, leaves a classifier of the groups with equal probabilities, and is small.

    The classifier, linear and fitted beforehand, stays as it is. Steps, rate and the weight of the residual's
    length are ours; that work's classifier is deeper and told the groups of FairFace.
    """
    from sklearn.linear_model import LogisticRegression

    units, codes = evidence.units.astype(np.float64), evidence.codes
    tells = LogisticRegression(C=1e3, max_iter=2000).fit(units, codes)
    two = len(tells.coef_) == 1  # of two groups scikit-learn keeps the second's logit only
    weight, bias = (np.concatenate([0 * w, w]) if two else w for w in (tells.coef_, tells.intercept_))
    x, w, b = (torch.from_numpy(one) for one in (units, weight, bias))
    layer = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype, requires_grad=True)
    shift = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([layer, shift], RATE)
    for _ in range(STEPS):
        residual = x @ layer.T + shift
        logits = F.normalize(x + residual, dim=1) @ w.T + b
        even = -F.log_softmax(logits, dim=1).mean()
        loss = even + KEEP * residual.square().sum(dim=1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    added = layer.detach().numpy()
    return Fitted(images=Affine(np.eye(len(added)) + added, shift.detach().numpy()))
