"""What is known of the server itself: which engine, which version."""

from __future__ import annotations

import re
from typing import Any

from calibration.live.names import UNKNOWN
from calibration.live.readings import Reading

_FINGERPRINT = re.compile(r"(vllm|sglang|llama\.cpp)-(\d[\w.+]*)")


def described(
    reading: Reading | None, fingerprint: str | None, version: str | None
) -> dict[str, Any]:
    """Engine, version and configuration, as far as they are told.

    Parameters
    ----------
    reading : Reading, optional
        Of its metrics.
    fingerprint : str, optional
        ``system_fingerprint`` of an answer: vLLM writes ``vllm-0.32.0-8bda1682``.
    version : str, optional
        What it answers at ``/version``.
    """
    engine = UNKNOWN if reading is None else reading.engine
    info = {} if reading is None else reading.info
    told = _FINGERPRINT.match(fingerprint or "")
    if told:
        engine = told[1] if engine == UNKNOWN else engine
        version = version or told[2]
    return {"engine": engine, "version": version or info.get("version"), "info": dict(info)}
