"""All that a fit to recorded servers begins with; and whether recordings are of one server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibration.live.fit.deployed import Accepted, Deployed, sampling_of
from calibration.live.fit.knobs import Serving
from calibration.live.fit.stages import Case
from calibration.live.recording import ABOUT, Observation
from models.strict_yaml import InputError, show

UNSAID = (None, "", "unknown")


@dataclass(frozen=True)
class Prepared:
    """Recorded servers as they are described, before anything is fitted.

    Attributes
    ----------
    deployed : Deployed
    serving : Serving
        Before the fit.
    cases : tuple of Case
        Stages it is fitted to.
    observations : tuple of Observation
    blocks : dict
        Strategies served, by label, without acceptance.
    acceptance : dict
        What the servers told of it, by label.
    """

    deployed: Deployed
    serving: Serving
    cases: tuple[Case, ...]
    observations: tuple[Observation, ...]
    blocks: dict[str, dict[str, Any]]
    acceptance: dict[str, Accepted]

    @property
    def date(self) -> str:
        """Day of the last observation."""
        return max(str(one.about["date"]) for one in self.observations)

    @property
    def origin(self) -> str:
        """Which server was observed, when and where, in words."""
        said = [served(one) for one in self.observations]
        engine, version, target, machine = (
            next((one[key] for one in said if one[key] not in UNSAID), None)
            for key in ("server.engine", "server.version", "target", "machine")
        )
        server = " ".join(filter(None, (engine or "a server", version)))
        where = f" on {machine}" if machine else ""
        folders = ", ".join(str(one.folder) for one in self.observations)
        tp = self.deployed.tp
        return f"{folders} of {self.date}: {server} with {target or 'a model'}, tp {tp}{where}"


def served(observation: Observation) -> dict[str, Any]:
    """What an observation says of the server, by its keys in ``run.json``."""
    about = observation.about
    server = about.get("server") or {}
    return {
        "server.engine": server.get("engine"),
        "server.version": server.get("version"),
        "target": about.get("target"),
        "machine": about.get("machine"),
        "sampling": sampling_of(observation),
    }


def belonging(observations: Sequence[Observation]) -> None:
    """Refuse observations that are not of one server; what is not said differs from nothing.

    Raises
    ------
    InputError
        That names what differs.
    """
    first: dict[str, tuple[Any, Observation]] = {}
    for one in observations:
        for key, value in served(one).items():
            if value in UNSAID:
                continue
            known, other = first.setdefault(key, (value, one))
            if known != value:
                message = f"must be {show(known)} as in {other.folder}, got {show(value)}"
                raise InputError(str(one.folder / ABOUT), None, key, message)
