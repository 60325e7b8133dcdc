"""Which engine answers, in which version, and how it says it is configured.

Only what is asked for is kept: SGLang's server info, for one, holds the whole command line.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from calibration.live.names import UNKNOWN
from calibration.live.readings import Reading

VERSIONS = {
    "/version": "version",
    "/server_info": "version",
    "/get_server_info": "version",
    "/props": "build_info",
}
"""Where servers tell their version, and under which key: vLLM and trtllm-serve at the first, SGLang
at the second, once the third, llama.cpp at the last."""

VLLM_FINGERPRINT = re.compile(r"vllm-(?P<version>\d[^-\s]*)-\S+")
LLAMA_FINGERPRINT = re.compile(r"(?P<version>b\d+-[0-9a-f]+)")
OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "tensorrt_llm": "tensorrt-llm",
}
"""Engine by ``owned_by`` of the list of models."""


class Server(NamedTuple):
    """A server.

    Attributes
    ----------
    engine : str
        vllm | sglang | llama.cpp | tensorrt-llm | unknown.
    version : str or None
    info : dict of str
        Its configuration as its metrics tell it.
    """

    engine: str
    version: str | None
    info: dict[str, str]


def identity(
    reading: Reading | None = None,
    version: str | None = None,
    owner: str | None = None,
    fingerprint: str | None = None,
) -> Server:
    """Put together what a server says of itself.

    Parameters
    ----------
    reading : Reading, optional
        Its metrics.
    version : str, optional
        What it answers at one of ``VERSIONS``.
    owner : str, optional
        ``owned_by`` of its models.
    fingerprint : str, optional
        ``system_fingerprint`` of an answer, as ``vllm-0.32.0-76ca82da`` or ``b6123-1a2b3c4``.
    """
    engine = reading.engine if reading else UNKNOWN
    if engine == UNKNOWN:
        engine = OWNERS.get(owner or "", UNKNOWN)
    for found, pattern in (("vllm", VLLM_FINGERPRINT), ("llama.cpp", LLAMA_FINGERPRINT)):
        match = pattern.fullmatch(fingerprint or "")
        if match and engine in (found, UNKNOWN):
            engine, version = found, version or match["version"]
    return Server(engine, version, dict(reading.info) if reading else {})


def text_at(body: Any, key: str) -> str | None:
    """A text under a key of an answer; None where there is none."""
    value = body.get(key) if isinstance(body, dict) else None
    return value if isinstance(value, str) and value else None


def owner_of(models: Any) -> str | None:
    """``owned_by`` of the first of a list of models."""
    listed = models.get("data") if isinstance(models, dict) else None
    return text_at(listed[0], "owned_by") if isinstance(listed, list) and listed else None
