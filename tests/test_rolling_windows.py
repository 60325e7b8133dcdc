"""Windows of many groups at once, against a plain queue and the window of real decoding."""

from __future__ import annotations

from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.decoding.decoder import Row
from calibration.decoding.rolling import Rolling
from sim.engine.windows import Windows

SEEDS = st.integers(0, 2**32)


class Queue:
    """The fewest latest entries that emitted ``tokens``."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.entries = tokens, deque[np.ndarray]()

    def add(self, entry: np.ndarray) -> None:
        self.entries.append(entry)
        while sum(one[0] for one in list(self.entries)[1:]) >= self.tokens:
            self.entries.popleft()

    def sums(self) -> np.ndarray:
        return sum(self.entries, np.zeros(5, dtype=np.int64))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 9))
def test_every_group_is_a_queue_of_its_own(seed: int, tokens: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    windows, queues = Windows(groups, tokens), [Queue(tokens) for _ in range(groups)]
    for _ in range(150):
        some = rng.permutation(groups)[: rng.integers(0, groups + 1)]
        entries = rng.integers(0, 12, (some.size, 5))
        entries[:, 0] += 1
        windows.add(some, entries)
        for group, entry in zip(some, entries, strict=True):
            queues[group].add(entry)
        if rng.random() < 0.05:
            windows.clear(some)
            for group in some:
                queues[group] = Queue(tokens)
        for group, queue in enumerate(queues):
            assert (windows.sums[group] == queue.sums()).all()
            assert windows.full()[group] == (queue.sums()[0] >= tokens)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 8))
def test_it_reads_what_the_window_of_real_decoding_reads(seed: int, tokens: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    windows, rolling = Windows(1, tokens), Rolling(tokens)
    alone = np.zeros(1, dtype=np.int64)
    for _ in range(120):
        accepted = int(rng.integers(0, k + 1))
        rolling.add([Row(0, (0,) * (accepted + 1), k, accepted, k + 1, 100)])
        reached = accepted + (accepted < k)
        windows.add(alone, np.array([[accepted + 1, accepted, reached, k, 1]]))
        assert windows.full()[0] == rolling.full
        assert windows.read("tau")[0] == rolling.tau
        assert windows.read("alpha")[0] == (rolling.alpha or 0.0)
        kept = [step[0] for step in rolling.state()]
        assert windows.read("acceptance")[0] == sum(kept) / (k * len(kept))


def test_a_window_that_is_full_of_single_tokens_has_room_for_one_more() -> None:
    windows = Windows(2, 5, longest=3)
    for step in range(20):
        windows.add(np.array([step % 2]), np.array([[4, 3, 3, 3, 1]]))
    assert windows.sums[:, 0].tolist() == [8, 8]
    assert windows.full().all()
