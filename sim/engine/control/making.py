"""The control of a strategy."""

from __future__ import annotations

from models.strategies.adaptive import Adaptive
from models.strategies.dynamic_k import DynamicK, Goodput, Schedule
from models.strategies.oracle import Oracle
from sim.engine.control import Control
from sim.engine.control.dynamic_k import ByGoodput, BySchedule
from sim.engine.control.foresight import ByProxy, Clairvoyant
from sim.engine.control.gate import Gate
from sim.engine.control.stay import Stay
from sim.engine.mode_log import ModeLog
from sim.engine.modes import Modes
from sim.engine.rules import Rules


def control_of(modes: Modes, rules: Rules, streams: int, longest: int, log: ModeLog) -> Control:
    """A fresh control.

    Parameters
    ----------
    modes : Modes
    rules : Rules
    streams : int
        Number of streams.
    longest : int
        Most tokens a request emits.
    log : ModeLog
        Gets the switches.
    """
    strategy = modes.strategy
    if isinstance(strategy, Adaptive):
        return Gate(strategy, rules.max_num_seqs, streams, longest, log)
    if isinstance(strategy, Oracle):
        return Clairvoyant()
    if not isinstance(strategy, DynamicK):
        return Stay(modes.start)
    rule, largest = strategy.rule, strategy.primary.depth
    if isinstance(rule, Goodput):
        return ByGoodput(rule, largest, log)
    if isinstance(rule, Schedule):
        return BySchedule(rule, log)
    return ByProxy(largest, rule.power)
