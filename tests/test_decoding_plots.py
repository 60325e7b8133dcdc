"""Pictures of real decoding runs show the figures of their table."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from sim.analysis import decoding_plots

STRATEGIES, DOMAINS = ("medusa", "ngram"), ("code", "prose", "maths")


@pytest.fixture
def frame() -> pd.DataFrame:
    """Every figure a value of its own; prose was never run with ngram."""
    rows = [
        {
            "strategy": strategy,
            "domain": domain,
            "tau": 1.5 + 0.3 * i + 0.1 * j,
            "lo": 1.4 + 0.3 * i + 0.1 * j,
            "hi": 1.7 + 0.3 * i + 0.1 * j,
            "fitted": 1.52 + 0.3 * i + 0.1 * j,
            "measured": 0.8 + 0.2 * i + 0.1 * j,
            "forecast": 0.85 + 0.2 * i + 0.1 * j,
        }
        for i, strategy in enumerate(STRATEGIES)
        for j, domain in enumerate(DOMAINS)
    ]
    return pd.DataFrame(rows).drop(index=4)


def marks(ax) -> list[np.ndarray]:
    """Heights of the dots and of the rings."""
    return [
        line.get_ydata() for line in ax.lines if line.get_marker() == "o" and len(line.get_ydata())
    ]


@pytest.mark.parametrize(
    ("draw", "columns"),
    [
        (decoding_plots.acceptance, ("tau", "fitted")),
        (decoding_plots.speedups, ("measured", "forecast")),
    ],
)
def test_a_panel_a_strategy_has_a_dot_and_a_ring_a_domain(frame, draw, columns):
    figure = draw(frame)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(STRATEGIES)
    for ax, strategy in zip(figure.axes, STRATEGIES, strict=True):
        own = frame[frame["strategy"] == strategy].set_index("domain").reindex(DOMAINS)
        for drawn, column in zip(marks(ax), columns, strict=True):
            np.testing.assert_array_equal(drawn, own[column].to_numpy())
        assert [tick.get_text() for tick in ax.get_xticklabels()] == list(DOMAINS)
    plt.close(figure)


def test_bars_of_a_step_add_up_to_its_time():
    rows = [
        {"strategy": "medusa", "kind": "measured", "draft_s": 0.02, "verify_s": 0.1},
        {"strategy": "medusa", "kind": "forecast", "draft_s": 0.01, "verify_s": 0.12},
    ]
    figure = decoding_plots.step_parts(pd.DataFrame(rows).assign(sample_s=0.002, host_s=0.001))
    (ax,) = figure.axes
    assert [text.get_text().strip() for text in ax.texts] == ["123 measured", "133 forecast"]
    ends = {round(bar.get_x() + bar.get_width(), 6) for bar in ax.patches}
    assert {123.0, 133.0} <= ends
    plt.close(figure)
