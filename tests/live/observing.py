"""`speccast observe` against a real server, in a process of its own beside the server's core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from calibration.decoding.prompts import DOMAINS, prompts
from live.servers import KINDS, NAME, ROOT

LADDER = "1,2,4,8"
SHORT = 120
"""Characters of a short prompt."""


def server_core() -> int:
    """Core of the server's worker thread; `make SERVER_CORE=N`."""
    return int(os.environ.get("SERVER_CORE", "0"))


def client_core() -> int:
    """Core of the client; `make CLIENT_CORE=N`."""
    return int(os.environ.get("CLIENT_CORE", "1"))


def command(*arguments: object) -> list[str]:
    """Command line of speccast, on the core of the client."""
    python = ["taskset", "-c", str(client_core()), sys.executable, "-m", "sim"]
    return [*python, *map(str, arguments)]


def settings() -> dict[str, str]:
    """Environment of the command line: this tree, whatever is installed."""
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def speccast(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=settings(), capture_output=True, text=True, check=False
    )


def observed(kind: str, base_url: str, out: Path, *options: object) -> list[object]:
    """Arguments of `observe` for one kind of vLLM server."""
    asked: list[object] = ["observe", "--base-url", base_url, "--model", NAME, "--out", out]
    asked += ["--strategy", KINDS[kind].block, "--label", kind, "--seed", 2, "--quiet"]
    return [*asked, "--api", "completions", *options]


def write_prompts(path: Path, per_domain: int) -> Path:
    """Prompts no part was trained on, domain by domain in turns; long ones beside short ones.

    Of the prompts of a domain one in four is cut short and one is three in one: what a prompt costs
    is told by prompts of several lengths.
    """
    texts = {domain: prompts(domain, "test", per_domain) for domain in DOMAINS}
    rows = [
        json.dumps({"text": _sized(texts[domain], place), "domain": domain})
        for place in range(per_domain)
        for domain in DOMAINS
    ]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


def _sized(texts: Sequence[str], place: int) -> str:
    text = texts[place]
    if place % 4 == 1:
        return text[:SHORT]
    if place % 4 == 3:
        return "\n\n".join(texts[(place + step) % len(texts)] for step in (1, 2, 0))
    return text
