"""Start a real server of SmolLM2-135M, wait until it answers, stop it again.

python -m live.servers plain|ngram|medusa --folder DIR --port P    (until Ctrl-C)
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from live.checkpoint import MEDUSA, TARGET

ROOT = Path(__file__).parent.parent.parent
NAME = "smol"
K = 4
UP_S = 600.0
"""vLLM compiles for a minute on a free core; on a busy one it takes several."""

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
}


class Served(NamedTuple):
    """One way to serve: what vLLM is told, and the same as a block of a scenario."""

    config: Mapping[str, Any] | None
    strategy: Mapping[str, Any]

    @property
    def block(self) -> str:
        """For ``speccast observe --strategy``."""
        return json.dumps(self.strategy)


KINDS = {
    "plain": Served(None, {"kind": "autoregressive"}),
    "ngram": Served(
        {
            "method": "ngram",
            "num_speculative_tokens": K,
            "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        },
        {"kind": "ngram", "k": K},
    ),
    "medusa": Served(
        {"method": "medusa", "model": MEDUSA, "num_speculative_tokens": K},
        {"kind": "medusa", "heads": K, "shared_lm_head": True},
    ),
}


class Process(NamedTuple):
    """A server that answers.

    Attributes
    ----------
    base_url : str
        With ``/v1``.
    log : Path
        What it printed.
    process : subprocess.Popen
        Leads a process group of its own.
    """

    base_url: str
    log: Path
    process: subprocess.Popen[bytes]


def environment() -> Path:
    """Where `make` installed vLLM: ``SPECCAST_LIVE``, else .venv-live."""
    return Path(os.environ.get("SPECCAST_LIVE", ROOT / ".venv-live")).absolute()


def vllm_command(kind: str, folder: Path, port: int) -> list[str]:
    """Command line of `vllm serve` on a folder of `live.checkpoint`."""
    served = KINDS[kind]
    command = [str(environment() / "bin" / "python"), str(Path(__file__).parent / "vllm_launch.py")]
    command += ["serve", str(folder / TARGET), "--served-model-name", NAME]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "bfloat16", "--max-model-len", "2048"]
    if served.config is not None:
        config = dict(served.config)
        if "model" in config:
            config["model"] = str(folder / config["model"])
        command += ["--speculative-config", json.dumps(config)]
        command += ["--per-request-spec-decode-metrics", "detailed"]
    return command


def vllm_settings(core: int) -> dict[str, str]:
    """Environment: its one worker thread stays on a core, the KV cache takes 1 GiB."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
        "LD_PRELOAD": str(environment() / "lib" / "libiomp5.so"),
    }


@contextmanager
def vllm(kind: str, folder: Path, log: Path, core: int = 0, port: int = 0) -> Iterator[Process]:
    """Serve plain, with n-gram lookup or with Medusa heads.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    folder : Path
        What `live.checkpoint` made.
    log : Path
        Overwritten.
    core : int
        Core of its worker thread.
    port : int
        0: a free one.

    Raises
    ------
    RuntimeError
        If it does not come up; with the end of its log.
    """
    port = port or free_port()
    command = vllm_command(kind, folder.absolute(), port)
    with running(command, vllm_settings(core), port, log) as process:
        yield process


@contextmanager
def transformers(folder: Path, log: Path) -> Iterator[Process]:
    """Serve with ``transformers serve``: one request at a time, no /metrics."""
    port = free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder / TARGET)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with running(command, {}, port, log) as process:
        yield process


@contextmanager
def running(
    command: Sequence[str], settings: Mapping[str, str], port: int, log: Path
) -> Iterator[Process]:
    """Run a server until the block ends; whatever it started ends with it.

    Another server on that port would be taken for it: refused.
    """
    with socket.socket() as one:
        if one.connect_ex(("127.0.0.1", port)) == 0:
            raise RuntimeError(f"port {port} is taken: another server answers there")
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | OFFLINE | settings,
            start_new_session=True,
        )
        try:
            wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
            yield Process(f"http://127.0.0.1:{port}/v1", log, process)
        finally:
            stop(process)


def wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Ask until it says it is healthy."""
    give_up = time.monotonic() + UP_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            if httpx.get(url, timeout=5.0, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    said = log.read_text("utf-8", errors="replace").splitlines()[-20:]
    raise RuntimeError("the server did not come up; it said last:\n" + "\n".join(said))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End its process group: asked first, then killed."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m live.servers")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--core", type=int, default=0)
    asked = parser.parse_args()
    log = Path(asked.folder) / f"{asked.kind}.log"
    with vllm(asked.kind, asked.folder, log, asked.core, asked.port) as up:
        print(up.base_url, flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            sys.exit(130)
