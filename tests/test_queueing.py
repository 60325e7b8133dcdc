from __future__ import annotations

from math import factorial

import numpy as np
import pytest

from models.queueing import (
    erlang_c,
    little_number,
    md1_wait_s,
    mg1_wait_s,
    mm1_number_probability,
    mm1_wait_s,
    mmc_wait_s,
    utilisation,
)


def test_textbook_numbers():
    assert mm1_wait_s(0.8, 1.0) == pytest.approx(4.0)
    assert md1_wait_s(0.8, 1.0) == pytest.approx(2.0)
    assert erlang_c(2.0, 1.0, 3) == pytest.approx(4 / 9)
    assert mmc_wait_s(2.0, 1.0, 3) == pytest.approx(4 / 9)


def test_one_server_of_erlang_c_is_mm1():
    assert mmc_wait_s(1.4, 0.5, 1) == pytest.approx(mm1_wait_s(1.4, 0.5))
    assert erlang_c(1.4, 0.5, 1) == pytest.approx(0.7)


def test_erlang_c_equals_its_defining_sum():
    offered, servers = 7.3, 9
    waiting = offered**servers / factorial(servers) * servers / (servers - offered)
    serving = sum(offered**i / factorial(i) for i in range(servers))
    assert erlang_c(7.3, 1.0, servers) == pytest.approx(waiting / (serving + waiting))
    assert 0 < erlang_c(450.0, 1.0, 500) < 1


def test_pollaczek_khinchine_equals_a_lindley_recursion():
    random = np.random.default_rng(5)
    n, rate, mean, shape = 200_000, 0.7, 1.0, 4.0
    service = random.gamma(shape, mean / shape, n)
    change = service[:-1] - random.exponential(1 / rate, n - 1)
    walk = np.concatenate(([0.0], np.cumsum(change)))
    wait = walk - np.minimum.accumulate(walk)
    assert wait.mean() == pytest.approx(mg1_wait_s(rate, mean, shape**-0.5), rel=0.05)


def test_number_in_system_agrees_with_littles_law():
    rate, service = 0.6, 1.0
    mean = sum(n * mm1_number_probability(rate, service, n) for n in range(400))
    assert mean == pytest.approx(little_number(rate, mm1_wait_s(rate, service) + service))


def test_overload_and_nonsense_are_refused():
    assert utilisation(3.0, 1.0, 2) == 1.5
    with pytest.raises(ValueError, match=r"no steady state at a load of 1.5"):
        mmc_wait_s(3.0, 1.0, 2)
    with pytest.raises(ValueError, match="no steady state at a load of 1:"):
        mm1_wait_s(1.0, 1.0)
    with pytest.raises(ValueError, match="servers at least 1"):
        utilisation(1.0, 1.0, 0)
