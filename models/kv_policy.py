"""What is kept of a context's KV besides all of it: windows, budgets, and blocks kept elsewhere.

Each policy says which tokens attention reads and which blocks the GPU holds. What it costs in
acceptance and in quality is the user's to state: there is no default.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.schema import Frozen, NonNegative, Positive, PositiveInt, Share

Counts = NDArray[np.int64]


class KvLoss(Frozen):
    """Two prices of KV that is cut, moved or quantised, both stated by the user."""

    acceptance_loss: Share = Field(
        description="Chance that a draft token the target accepted is refused after all, as KV "
        "it would have needed is gone or changed. Quantised KV has it in every step, a policy in "
        "steps whose context it no longer keeps whole on the GPU. Write 0 for none."
    )
    quality_loss: Share = Field(
        description="Loss of answer quality, by a measure of your own: carried to the result, "
        "used for nothing; write 0 for none."
    )


class _Policy(KvLoss):
    """What every policy does, unless it says otherwise."""

    def attended(self, prompt: Counts, context: Counts) -> Counts:
        """Tokens attention reads in a step, those fetched included."""
        return context

    def packed(self, prompt: Counts, context: Counts) -> Counts:
        """Context as the blocks see it, where kept tokens are packed together."""
        return context

    def dropped(self, context: Counts, block_tokens: int) -> Counts:
        """Whole blocks of the context that the GPU does not hold."""
        return np.zeros_like(context)

    def cold(self, context: Counts) -> Counts:
        """Tokens fetched from outside the GPU in a step."""
        return np.zeros_like(context)

    def cut(self, prompt: Counts, context: Counts) -> NDArray[np.bool_]:
        """Whether a step has less than its whole context on the GPU; once so, so up to the end."""
        cut: NDArray[np.bool_] = self.attended(prompt, context) < context
        return cut | (self.cold(context) > 0)


class StreamingLlm(_Policy):
    """The first tokens and a sliding window (Xiao et al., arXiv 2309.17453)."""

    kind: Literal["streaming_llm"]
    sinks: PositiveInt = Field(le=1_000_000, description="First tokens kept [tokens]; theirs: 4.")
    window: PositiveInt = Field(
        le=10_000_000, description="Latest tokens kept [tokens], the current one included."
    )

    def attended(self, prompt: Counts, context: Counts) -> Counts:
        """Sinks and window."""
        return np.minimum(context, self.sinks + self.window)

    def dropped(self, context: Counts, block_tokens: int) -> Counts:
        """Blocks between the last of the sinks and the first of the window."""
        sinks = -(-self.sinks // block_tokens)
        return np.maximum((context - self.window) // block_tokens - sinks, 0)


class SnapKv(_Policy):
    """A budget of prompt tokens kept after the prefill (Li et al., arXiv 2404.14469)."""

    kind: Literal["snapkv"]
    budget_tokens: PositiveInt = Field(
        le=10_000_000, description="Prompt tokens kept of each head [tokens]."
    )

    def attended(self, prompt: Counts, context: Counts) -> Counts:
        """What is kept of the prompt, and all that was generated."""
        return context - np.maximum(prompt - self.budget_tokens, 0)

    def packed(self, prompt: Counts, context: Counts) -> Counts:
        """Kept tokens lie together: heads keep different ones, but equally many."""
        return self.attended(prompt, context)


class Offload(_Policy):
    """Blocks behind the latest tokens lie in CPU memory or on NVMe and are read every step."""

    kind: Literal["offload"]
    hot_tokens: PositiveInt = Field(
        le=10_000_000, description="Latest tokens that stay on the GPU [tokens]."
    )
    gb_per_s: Positive = Field(
        le=1e6, description="Rate at which a GPU reads cold KV [GB/s]: of PCIe, or of the disks."
    )
    latency_us: NonNegative = Field(
        le=1e9, description="Time a step with cold KV waits besides [us]."
    )
    overlap: bool = Field(description="Whether reading runs while the GPU computes.")

    def dropped(self, context: Counts, block_tokens: int) -> Counts:
        """Whole blocks in front of the hot tokens."""
        return np.maximum(self.cold(context) // block_tokens, 0)

    def cold(self, context: Counts) -> Counts:
        """All but the hot tokens."""
        return np.maximum(context - self.hot_tokens, 0)


AnyPolicy = StreamingLlm | SnapKv | Offload
KvPolicy = Annotated[AnyPolicy, Field(discriminator="kind")]


class Fetch(NamedTuple):
    """Reading cold KV in every step.

    Attributes
    ----------
    s_per_token : float
        Time to move the KV of one token to its GPU [s].
    latency_s : float
        What a step that fetches waits besides [s].
    overlap : bool
    """

    s_per_token: float = 0.0
    latency_s: float = 0.0
    overlap: bool = False

    @classmethod
    def of(cls, policy: AnyPolicy | None, bytes_per_token: float) -> Fetch:
        """Fetching under a policy, at so many bytes of KV a token on one GPU."""
        if not isinstance(policy, Offload):
            return cls()
        rate = policy.gb_per_s * 1e9
        return cls(bytes_per_token / rate, policy.latency_us * 1e-6, policy.overlap)

    def fetch_s(self, step_s: float, cold_tokens: float) -> float:
        """Time of a step that would take ``step_s`` had it all its KV on the GPU [s].

        Parameters
        ----------
        step_s : float
        cold_tokens : float
            Sum over the sequences of what each fetches.
        """
        if not cold_tokens:
            return step_s
        moving = cold_tokens * self.s_per_token
        whole = max(step_s, moving) if self.overlap else step_s + moving
        return whole + self.latency_s


NO_FETCH = Fetch()
