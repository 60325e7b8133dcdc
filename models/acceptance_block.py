"""Acceptance as users state it: the ``acceptance:`` block of a strategy, and what it leaves out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pydantic import Field, model_validator

from models import catalog
from models.schema import Basis, Frozen, ModelError, NonNegative, Positive, PositiveInt

SPREAD = 0.36
"""Standard deviation of logit(alpha) between requests of one data set, net of binomial noise:
SpecDecode-Bench acceptance traces, Llama-3.1-8B EAGLE K=3, arXiv 2601.11580 (1,373 requests:
GSM8K .17, CNN/DailyMail .24, ShareGPT .44, InstructCoder .43). The n-gram rates of the
same requests need the same spread: .15, .28, .48, .43."""

OTHER_TASK_SE = 0.09
"""Relative sd of tau between tasks: EAGLE-3 paper (arXiv 2503.01840), Table 1, Llama-3.1-8B."""

OTHER_TASK_NGRAM_SE = 0.18
"""The same of n-gram lookup between the four data sets of arXiv 2601.11580."""

_WAYS = ("tau", "tau_at_k", "alpha", "alpha_by_pos", "heads", "match_rate", "catalog", "file")
_VARIATION = ("spread", "step_spread", "step_memory")
_CONTEXT = ("context_slope", "context_reference", "context_range")
_NOTES = (*_VARIATION, *_CONTEXT, "uncertainty", "basis")


class Acceptance(Frozen):
    """The ``acceptance:`` block of a strategy: exactly one way of stating it.

    ``match_rate`` (n-gram lookup) goes with ``alpha`` or ``alpha_by_pos``, the rates given a match.
    Only what a measurement states is an input; a request's own rates are drawn around it.
    """

    tau: float | None = Field(
        default=None, ge=1, description="Mean tokens a step, measured with this very strategy."
    )
    tau_at_k: float | None = Field(
        default=None, ge=1, description="Mean tokens a step of a chain of at_k draft tokens."
    )
    at_k: PositiveInt | None = Field(
        default=None, description="Draft tokens behind tau_at_k or match_rate; default: own K."
    )
    alpha: float | None = Field(
        default=None, ge=0, le=1, description="P(accepted | all before were), at every position."
    )
    alpha_by_pos: tuple[float, ...] | None = Field(
        default=None, min_length=1, description="The same by position (or depth of a tree)."
    )
    heads: tuple[tuple[float, ...], ...] | None = Field(
        default=None, min_length=1, description="P(rank is right), a list by rank for each head."
    )
    conditional: bool = Field(
        default=True,
        description="Rates are conditional on all before being accepted; false: shares of steps.",
    )
    path_exponent: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description="Of marginal head accuracies: 1 independent heads, 0 right together.",
    )
    good_every: float = Field(
        default=1.0, ge=1, description="Lookahead: one good speculation in this many steps (f)."
    )
    match_rate: float | None = Field(
        default=None, gt=0, lt=1, description="N-gram: share of steps in which a match is found."
    )
    match_stay: float | None = Field(
        default=None, gt=0, lt=1, description="N-gram: P(match | the last was accepted in full)."
    )
    catalog: str | None = Field(default=None, description="Published figures by catalogue name.")
    file: str | None = Field(
        default=None, description="File of fits and records that `speccast calibrate` wrote."
    )
    entry: str | None = Field(
        default=None, description="Entry of the file; default: the only one of this strategy."
    )
    replay: bool | None = Field(
        default=None, description="Repeat the file's recorded requests instead of drawing."
    )
    by_domain: dict[str, Acceptance] = Field(
        default={}, description="Blocks that replace this one for requests of a domain."
    )
    spread: NonNegative | None = Field(
        default=None, description="Sd of a request's logit(alpha); default from public traces."
    )
    step_spread: NonNegative | None = Field(
        default=None,
        description="Sd of the same within a request, from passage to passage; rates are then "
        "those of the whole population at every position, not tau alone.",
    )
    step_memory: float | None = Field(
        default=None, ge=0, lt=1, description="P(a step is in the passage of the one before)."
    )
    context_slope: float | None = Field(
        default=None, description="Change of logit(alpha) per doubling of the context."
    )
    context_reference: Positive | None = Field(
        default=None, description="Context at which the rates hold [token]."
    )
    context_range: tuple[Positive, Positive] | None = Field(
        default=None, description="Contexts measured; beyond them the slope is flat [token]."
    )
    uncertainty: NonNegative | None = Field(
        default=None, description="Relative standard error of tau; default by how it is given."
    )
    basis: Basis | None = Field(default=None, description="How far to trust it; default: as given.")

    @model_validator(mode="after")
    def _one_way(self) -> Acceptance:
        ways = [name for name in _WAYS if getattr(self, name) is not None]
        if self.match_rate is not None and ways[:1] in (["alpha"], ["alpha_by_pos"]):
            ways = ways[1:]
        elif self.match_rate is not None:
            raise ValueError("match_rate needs alpha or alpha_by_pos, the rates given a match")
        if len(ways) > 1:
            raise ValueError(f"state acceptance one way, got {' and '.join(ways)}")
        if not ways and not self.by_domain:
            raise ValueError(f"state acceptance by one of {', '.join(_WAYS)}")
        for domain, block in self.by_domain.items():
            if block.by_domain:
                raise ValueError(
                    f"by_domain.{domain} has domains of its own: state them one level up"
                )
        self._check_companions()
        self._check_rates()
        return self

    def _check_companions(self) -> None:
        needed = {
            "at_k": self.tau_at_k is not None or self.match_rate is not None,
            "conditional": self.alpha_by_pos is not None or self.heads is not None,
            "path_exponent": self.heads is not None and not self.conditional,
            "match_stay": self.match_rate is not None,
            **dict.fromkeys(_CONTEXT, self.match_rate is None),
        }
        for key, used in needed.items():
            if key in self.model_fields_set and not used:
                raise ValueError(f"{key} says nothing about acceptance stated this way")
        self._check_variation()
        self._check_file()

    def _check_variation(self) -> None:
        if self.step_memory is not None and self.step_spread is None:
            raise ValueError("step_memory needs step_spread, what the steps of a passage share")
        given = [key for key in _CONTEXT if getattr(self, key) is not None]
        if given and len(given) < len(_CONTEXT):
            missing = next(key for key in _CONTEXT if key not in given)
            raise ValueError(f"{given[0]} needs {missing}")
        if self.context_range is not None and self.context_range[0] > self.context_range[1]:
            lo, hi = self.context_range
            raise ValueError(f"context_range must not fall, got {lo:g} to {hi:g}")

    def _check_file(self) -> None:
        for key in ("entry", "replay"):
            if getattr(self, key) is not None and self.file is None:
                raise ValueError(f"{key} needs file")
        if self.replay:
            beside = [key for key in (*_VARIATION, *_CONTEXT) if getattr(self, key) is not None]
            if beside:
                raise ValueError(f"{beside[0]} says nothing about requests that are replayed")
            if self.by_domain:
                raise ValueError("replay covers the domains of its file, got by_domain beside it")
        if any(block.replay for block in self.by_domain.values()):
            raise ValueError("replay is stated for all domains at once, not in by_domain")

    def _check_rates(self) -> None:
        rates = self.alpha_by_pos or ()
        for row in (rates, *(self.heads or ())):
            bad = [rate for rate in row if not 0 <= rate <= 1]
            if bad:
                raise ValueError(f"rates are between 0 and 1, got {bad[0]}")
        if not self.conditional and any(b > a for a, b in pairwise(rates)):
            raise ValueError("shares of steps (conditional: false) cannot rise with position")
        for head in self.heads or ():
            if sum(head) > 1 + 1e-9:
                raise ValueError(
                    f"the ranks of a head exclude each other but sum to {sum(head):.3g}; "
                    "turn cumulative top-k into differences"
                )

    def for_domain(self, domain: str) -> Acceptance:
        """The block that holds for a domain: by_domain, then the catalogue entry, resolved.

        Raises
        ------
        ModelError
            Unknown catalogue entry, or no block covers the domain.
        """
        block = self.by_domain.get(domain)
        if block is not None:
            return block._with_notes_of(self).for_domain(domain)
        if self.catalog is not None:
            return _entry(self.catalog, domain)._with_notes_of(self, stronger=True)
        if self.file is not None:
            return _fit(self.file, self.entry, domain)._with_notes_of(self, stronger=True)
        if not self.stated:
            raise ModelError(f"no acceptance for domain '{domain}'", "acceptance.by_domain")
        return self

    @property
    def entries(self) -> list[str]:
        """Catalogue entries it rests on, those of its domains included."""
        own = [self.catalog] if self.catalog else []
        return own + [name for block in self.by_domain.values() for name in block.entries]

    @property
    def stated(self) -> bool:
        """Whether it covers domains that ``by_domain`` does not name."""
        return any(getattr(self, name) is not None for name in _WAYS)

    def rates(self, length: int) -> tuple[float, ...]:
        """P(accepted | all before were) at positions 1..length; the last one given is repeated."""
        given = self.alpha_by_pos or (0.0 if self.alpha is None else self.alpha,)
        if not self.conditional:
            before = (1.0, *given[:-1])
            given = tuple(a / b if b else 0.0 for a, b in zip(given, before, strict=True))
        return (*given, *given[-1:] * (length - len(given)))[:length]

    def _with_notes_of(self, other: Acceptance, stronger: bool = False) -> Acceptance:
        """Variation, uncertainty and basis of ``other`` where missing here, or over those here."""
        notes = {
            key: getattr(other, key)
            for key in _NOTES
            if getattr(other, key) is not None and (stronger or getattr(self, key) is None)
        }
        return self.model_copy(update=notes) if notes else self


def _entry(name: str, domain: str) -> Acceptance:
    """Catalogue entry for a domain, less certain where it does not name that domain."""
    entry: dict[str, Any] = catalog.entry("acceptance", name)
    block = Acceptance.model_validate({"basis": entry["basis"], **entry["acceptance"]})
    return _known(block, domain)


def _fit(path: str, name: str | None, domain: str) -> Acceptance:
    """Fit of a domain in an acceptance file."""
    from models.acceptance_file import read

    file = read(path)
    name = file.named(name, "")
    block = file.entries[name].acceptance
    if domain not in block.by_domain and not block.stated:
        raise ModelError(
            f"entry '{name}' has fits of {', '.join(block.by_domain)}, got domain '{domain}'",
            "acceptance.file",
        )
    return _known(block, domain)


def _known(block: Acceptance, domain: str) -> Acceptance:
    found = block.for_domain(domain)
    if found.uncertainty is not None or domain in block.by_domain:
        return found
    other = OTHER_TASK_SE if found.match_rate is None else OTHER_TASK_NGRAM_SE
    return found.model_copy(update={"uncertainty": other})
