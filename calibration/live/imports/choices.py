"""What an import can be told: the format of its results, and which of their stages it keeps."""

from __future__ import annotations

from typing import Literal

Format = Literal["auto", "vllm", "guidellm", "aiperf", "csv"]
Mode = Literal["closed_loop", "open_loop", "trace"]
