"""One measured run: what was served, what somebody measured, and the scenario that replays it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sim.scenario.dump import to_yaml

Acceptance = Literal["none", "traces", "batch 1", "published", "assumed"]
Suite = Literal["serving", "prefill", "speculation", "kernels"]


@dataclass(frozen=True)
class Case:
    """A run of a real server, or of a real kernel, that somebody measured and published.

    Attributes
    ----------
    name : str
        Unique; ``speccast validate --scenario NAME`` prints its scenario.
    suite : str
        Which question it helps to answer.
    origin : str
        Short name of the publication, as ``SpecDecode-Bench``; errors are summed up by it.
    source : str
        Where the figures are published.
    labels : mapping
        What it is grouped by: model, workload, tp, engine, strategy, batch.
    scenario : mapping
        What ``speccast run`` reads; the last of its strategies is the one measured.
    measured : mapping
        Metric to figure, in SI units (see ``predict.METRICS``).
    reading : mapping
        Metric to the absolute error of reading it off a picture, same unit.
    fitted : tuple of str
        Constants of the engine these figures were used to fit: in-sample for them.
    fitted_metrics : tuple of str
        The figures those were fitted to; empty: all.
    shown : tuple of str
        Figures that are shown without a score, such as tails the model promises nothing about.
    acceptance : str
        Where the acceptance of its drafts comes from: ``traces`` of this very run's models and
        data, its own ``batch 1`` point, ``published`` beside the figure, or ``assumed``.
    anchor : str
        Name of the case whose speedup fixes tau, where acceptance is ``batch 1``; that case is not
        scored itself.
    unscored : str
        Why it is shown without a score; empty where it counts.
    """

    name: str
    suite: Suite
    origin: str
    source: str
    labels: Mapping[str, str]
    scenario: Mapping[str, Any]
    measured: Mapping[str, float]
    reading: Mapping[str, float] = field(default_factory=dict)
    fitted: tuple[str, ...] = ()
    fitted_metrics: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    acceptance: Acceptance = "none"
    anchor: str = ""
    unscored: str = ""

    def scores(self, metric: str) -> bool:
        """Whether a figure counts."""
        return not self.unscored and self.name != self.anchor and metric not in self.shown

    def in_sample(self, metric: str) -> bool:
        """Whether constants were fitted to a figure."""
        return bool(self.fitted) and metric in (self.fitted_metrics or self.measured)

    def yaml(self) -> str:
        """Its scenario as a file anyone can run, what was measured in the comment above."""
        figures = ", ".join(f"{name} {value:.6g}" for name, value in self.measured.items())
        head = f"# {self.name}\n# Measured: {figures}\n# Source: {self.source}\n"
        return head + to_yaml(dict(self.scenario))
