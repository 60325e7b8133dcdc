"""An oracle: in every step each sequence is in the mode that pays, known in advance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from models.strategies.base import Strategy
from models.strategies.modes import AnyMode, Switching


class Oracle(Switching):
    """Knows every draw and switches free of charge; aims at the mean rate, to measure others by."""

    kind: Literal["oracle"] = "oracle"
    among: tuple[AnyMode, ...] = Field(
        min_length=2, max_length=8, description="Strategies it chooses from."
    )

    def _default_label(self) -> str:
        return f"oracle over {', '.join(mode.name for mode in self.modes)}"

    @property
    def modes(self) -> tuple[Strategy, ...]:
        """Strategies it chooses from."""
        return self.among

    @property
    def loaded(self) -> Mapping[str, Strategy]:
        """All of them."""
        return {f"among[{index}]": mode for index, mode in enumerate(self.among)}
