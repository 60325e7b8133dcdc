"""Every measure there is, by name."""

from __future__ import annotations

from sim.audit import of_memory, of_run, of_step
from sim.audit.registry import MEASURES, Measure, suggestion

MODULES = (of_run, of_step, of_memory)
"""Where they are defined; importing one registers its measures."""

__all__ = ["MEASURES", "MODULES", "Measure", "suggestion"]
