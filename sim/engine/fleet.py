"""What surrounds the engines: replicas, router, limits, patience of clients, outages."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.scenario.fleet import Client, RouterPolicy


@dataclass(frozen=True)
class Outage:
    """One replica goes down and, perhaps, comes back.

    Attributes
    ----------
    replica : int
    at_s, up_s : float
        When it dies, and when it serves again; None: never [s].
    resend : bool
        The router sends what was lost with it again; else clients see an error.
    """

    replica: int
    at_s: float
    up_s: float | None = None
    resend: bool = True


@dataclass(frozen=True)
class Fleet:
    """Replicas of one deployment and how requests reach them.

    Attributes
    ----------
    replicas : int
    router : str
        Policy of ``sim.engine.routing``.
    refresh_s : float
        Age at which the router reads the load of the replicas anew; 0: exact at every choice [s].
    queue_limit : int or None
        Requests waiting in a replica beyond which it refuses more.
    client : Client
        When clients give up, and whether they try again.
    outages : tuple of Outage
    """

    replicas: int = 1
    router: RouterPolicy = "least_outstanding"
    refresh_s: float = 0.0
    queue_limit: int | None = None
    client: Client = field(default_factory=Client)
    outages: tuple[Outage, ...] = ()
