"""Closed forms of queueing theory: what tests compare with, and quick estimates.

Rates are in 1/s, times in s. All waits are means over the queue alone, service left out, under
first come, first served and Poisson arrivals.
"""

from __future__ import annotations


def utilisation(rate_per_s: float, service_s: float, servers: int = 1) -> float:
    """Share of time a server is busy, ``rate service / servers``; 1 and more is overload.

    Raises
    ------
    ValueError
        A negative rate or service time, or less than one server.
    """
    if rate_per_s < 0 or service_s < 0 or servers < 1:
        raise ValueError(
            "rate and service time must not be negative and servers at least 1, got "
            f"{rate_per_s}, {service_s}, {servers}"
        )
    return rate_per_s * service_s / servers


def mg1_wait_s(rate_per_s: float, service_s: float, service_cv: float) -> float:
    """Mean wait of M/G/1 (Pollaczek-Khinchine): ``rho service (1 + cv**2) / (2 (1 - rho))``.

    Parameters
    ----------
    rate_per_s : float
        Arrival rate.
    service_s : float
        Mean service time.
    service_cv : float
        Coefficient of variation of the service time: 0 constant, 1 exponential.

    Raises
    ------
    ValueError
        A load of 1 or more: the queue has no steady state.
    """
    rho = _stable(rate_per_s, service_s)
    return rho * service_s * (1.0 + service_cv**2) / (2.0 * (1.0 - rho))


def mm1_wait_s(rate_per_s: float, service_s: float) -> float:
    """Mean wait of M/M/1, ``rho service / (1 - rho)``; ValueError at a load of 1 or more."""
    return mg1_wait_s(rate_per_s, service_s, service_cv=1.0)


def md1_wait_s(rate_per_s: float, service_s: float) -> float:
    """Mean wait of M/D/1, half that of M/M/1; ValueError at a load of 1 or more."""
    return mg1_wait_s(rate_per_s, service_s, service_cv=0.0)


def erlang_c(rate_per_s: float, service_s: float, servers: int) -> float:
    """P(an arrival waits) in M/M/c.

    Computed through Erlang B by its stable recursion, so hundreds of servers are no trouble.

    Raises
    ------
    ValueError
        A load of 1 or more.
    """
    rho = _stable(rate_per_s, service_s, servers)
    offered, blocked = rho * servers, 1.0
    for busy in range(1, servers + 1):
        blocked = offered * blocked / (busy + offered * blocked)
    return blocked / (1.0 - rho * (1.0 - blocked))


def mmc_wait_s(rate_per_s: float, service_s: float, servers: int) -> float:
    """Mean wait of M/M/c, ``C service / (c (1 - rho))``; ValueError at a load of 1 or more."""
    rho = _stable(rate_per_s, service_s, servers)
    return erlang_c(rate_per_s, service_s, servers) * service_s / (servers * (1.0 - rho))


def mm1_number_probability(rate_per_s: float, service_s: float, number: int) -> float:
    """P(``number`` requests in M/M/1), the one in service included: ``(1 - rho) rho**number``."""
    rho = _stable(rate_per_s, service_s)
    return float((1.0 - rho) * rho**number)


def little_number(rate_per_s: float, time_s: float) -> float:
    """Mean number inside any stable system: ``rate time`` (Little's law)."""
    return rate_per_s * time_s


def _stable(rate_per_s: float, service_s: float, servers: int = 1) -> float:
    rho = utilisation(rate_per_s, service_s, servers)
    if rho >= 1.0:
        raise ValueError(f"no steady state at a load of {rho:.3g}: it must be below 1")
    return rho
