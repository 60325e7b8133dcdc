"""Acceptance paths drawn from a law, for the tests of laws and of paths."""

import numpy as np

ONE = ("all",)
HEADS = ((0.55, 0.12, 0.06), (0.4, 0.15, 0.08), (0.3, 0.1, 0.05))
MATCHES = {"match_rate": 0.25, "match_stay": 0.8, "alpha_by_pos": [0.6, 0.7, 0.75]}


def drawn(law, requests=4000, tokens=250, seed=3, domain=0):
    """Draw the paths of ``requests`` requests of ``tokens`` output tokens each."""
    n = np.full(requests, tokens)
    return law.paths(seed, np.arange(requests), n, np.full(requests, domain))


def measured_tau(paths):
    """Step-weighted mean before the cut, as engines count it."""
    return 1.0 + paths.accepted.mean()
