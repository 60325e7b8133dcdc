"""Which kernels were priced, and from what."""

from __future__ import annotations

from typing import NamedTuple


class Use(NamedTuple):
    """One kernel that was priced.

    Attributes
    ----------
    kernel : str
        Operation and size in words.
    collective : bool
        It joins GPUs.
    wanted, measured : bool
        Whether its time was to come from measured rows, and whether it did.
    """

    kernel: str
    collective: bool
    wanted: bool
    measured: bool
