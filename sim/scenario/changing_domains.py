"""Domains of a stream that change in the course of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from models.schema import Frozen, ModelError
from models.strict_yaml import Label
from sim.scenario.distributions import Floats, Ints, ThinkSpread, pauses
from sim.scenario.domain_trace import read_domains
from sim.scenario.over_time import LATEST, Changing, Place

MOST_SWITCHES = 10_000_000

Draws = Callable[[str], np.random.Generator]
"""Makes a stream's own generator of one purpose: ``domains`` or ``regimes``."""

Dwell = Annotated[float, Field(ge=1e-6, le=LATEST)]


def word_or_block(value: object) -> str:
    """Tell which form a key takes that is either a name or a block of keys."""
    return "block" if isinstance(value, (dict, Frozen)) else "word"


def number_or_list(value: object) -> str:
    """Tell which form a key takes that is either one number or several."""
    return "list" if isinstance(value, (list, tuple)) else "number"


class ChangingDomain(Changing):
    """Base of all changes of a stream's domain."""

    kind: str

    @property
    def names(self) -> tuple[str, ...]:
        """Domains the codes of ``drawn`` stand for; one may come twice."""
        raise NotImplementedError

    def drawn(self, x: Floats, draws: Draws) -> Ints:
        """Index into ``names`` for requests that arrive at places ``x``, ascending; shape (n,)."""
        raise NotImplementedError


class DomainStep(ChangingDomain):
    """One domain up to a place, another from there on."""

    kind: Literal["step"] = Field(default="step", description="Another domain from a place on.")
    before: Label = Field(description="Domain of requests before `at`.")
    after: Label = Field(description="Domain from `at` on.")
    at: Place = Field(description="Where it changes [s, or share of the requests].")

    @property
    def places(self) -> dict[str, float]:
        """Where it changes."""
        return {"at": self.at}

    @property
    def names(self) -> tuple[str, ...]:
        """Before, after."""
        return (self.before, self.after)

    def drawn(self, x: Floats, draws: Draws) -> Ints:
        """0 before the step, 1 from it on."""
        return (x >= self.at).astype(np.int64)


class DomainDrift(ChangingDomain):
    """A second domain takes over little by little."""

    kind: Literal["linear"] = Field(
        default="linear", description="Requests in the second domain become more along a line."
    )
    before: Label = Field(description="Domain of all requests up to `start`.")
    after: Label = Field(description="Domain of all requests from `end` on.")
    start: Place = Field(description="Where the change begins [s, or share of the requests].")
    end: Place = Field(description="Where it is complete, likewise.")

    @model_validator(mode="after")
    def _forward(self) -> DomainDrift:
        if self.end <= self.start:
            raise ModelError(f"must be after start ({self.start:g}), got {self.end:g}", "end")
        return self

    @property
    def places(self) -> dict[str, float]:
        """Where it begins and ends."""
        return {"start": self.start, "end": self.end}

    @property
    def names(self) -> tuple[str, ...]:
        """Before, after."""
        return (self.before, self.after)

    def drawn(self, x: Floats, draws: Draws) -> Ints:
        """1 with a chance that rises from 0 at the start to 1 at the end."""
        chance = (x - self.start) / (self.end - self.start)
        return (draws("domains").random(len(x)) < chance).astype(np.int64)


class Regimes(ChangingDomain):
    """All requests are of one domain for a while, then of the next, round and round."""

    kind: Literal["regimes"] = Field(
        default="regimes", description="Domains in turn, each for a while, the first again at last."
    )
    domains: tuple[Label, ...] = Field(
        min_length=2, max_length=1000, description="Domains in turn; the run begins in the first."
    )
    dwell: Annotated[
        Annotated[Dwell, Tag("number")]
        | Annotated[tuple[Dwell, ...], Field(min_length=2, max_length=1000), Tag("list")],
        Discriminator(number_or_list),
    ] = Field(
        description="Mean stay in each domain, or a list of one a domain "
        "[s, or share of the requests]."
    )
    dwell_cv: ThinkSpread = Field(
        default=1.0, description="Spread of a stay over its mean; 0 constant, 1 exponential."
    )

    @model_validator(mode="after")
    def _one_a_domain(self) -> Regimes:
        if isinstance(self.dwell, tuple) and len(self.dwell) != len(self.domains):
            raise ModelError(
                f"must have one stay a domain, {len(self.domains)}, got {len(self.dwell)}", "dwell"
            )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The domains in turn."""
        return self.domains

    def drawn(self, x: Floats, draws: Draws) -> Ints:
        """The domain whose turn it is.

        Raises
        ------
        ModelError
            If there are too many changes to draw.
        """
        end = float(x.max(initial=0.0))
        means = np.broadcast_to(np.array(self.dwell), len(self.domains))
        if end / means.mean() > MOST_SWITCHES:
            raise ModelError(f"changes more than {MOST_SWITCHES} times, got {self.dwell}", "dwell")
        rng, ends = draws("regimes"), np.zeros(0)
        while not len(ends) or ends[-1] <= end:
            # As many again each time: the same stays come first however long the run is.
            stays = pauses(rng, max(64 * len(means), len(ends)), 1.0, self.dwell_cv)
            stays = stays.reshape(-1, len(means)) * means
            start = ends[-1] if len(ends) else 0.0
            ends = np.concatenate([ends, start + np.cumsum(stays)])
        return np.searchsorted(ends, x, side="right") % len(means)


class DomainTrace(ChangingDomain):
    """Domains as a file lists them."""

    kind: Literal["trace"] = Field(default="trace", description="Domains as a file lists them.")
    file: str = Field(
        min_length=1,
        description="CSV with columns `at,domain`, the first at 0, as a path relative to this "
        "file: each domain holds from its place to the next.",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The domains, each once."""
        return read_domains(self.file, self.unit == "share").names

    def drawn(self, x: Floats, draws: Draws) -> Ints:
        """The domain listed last before each place."""
        listed = read_domains(self.file, self.unit == "share")
        return listed.codes[np.searchsorted(listed.at, x, side="right") - 1]


Domain = Annotated[
    Annotated[Label, Tag("word")]
    | Annotated[
        Annotated[DomainStep | DomainDrift | Regimes | DomainTrace, Field(discriminator="kind")],
        Tag("block"),
    ],
    Discriminator(word_or_block),
]
