"""Observes vLLM on this CPU for tests/measured/live: plain, n-gram lookup and Medusa in turns.

    python -m live.record SERVED

Run by ``make live-record`` on a machine that does nothing else. All servers stay up, their worker
threads on one core of which each has the whole in its turn; an idle one takes about 1 % of it.
Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from calibration.kernels.device import machine as machines
from live import observing, servers

OUT = servers.ROOT / "tests" / "measured" / "live"
REPEATS, TOKENS, PER_DOMAIN = 5, 64, 8
FIRST_PORT = 8201
KEPT = ("run.json", "requests.parquet", "stages.json", "acceptance.parquet", "errors.csv")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m live.record")
    parser.add_argument("served", type=Path, help="folder of live.checkpoint")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--concurrency", default=observing.LADDER)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--first-port", type=int, default=FIRST_PORT)
    parser.add_argument("--requests", type=int, help="a stage; default: observe's")
    asked = parser.parse_args()
    runs = asked.served / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    texts = observing.write_prompts(runs / "prompts.jsonl", PER_DOMAIN)
    options: list[object] = ["--concurrency", asked.concurrency, "--tokens", asked.tokens]
    options += ["--prompts", texts, "--machine", machines.find("cpu").name, "--yes"]
    if asked.requests:
        options += ["--requests", asked.requests]
    with all_up(asked.served, asked.first_port) as urls:
        for repeats in range(1, asked.repeats + 1):
            for kind, url in urls.items():
                print(f"{kind}: repeat {repeats} of {asked.repeats}", flush=True)
                given = observing.observed(kind, url, runs / kind, *options, "--repeats", repeats)
                subprocess.run(
                    observing.command(*given),
                    cwd=servers.ROOT,
                    env=observing.settings(),
                    check=True,
                )
    for kind in urls:
        keep(runs / kind, asked.out / kind)


@contextmanager
def all_up(served: Path, first_port: int) -> Iterator[dict[str, str]]:
    """Every kind of server; one port each, the same ones when the recording goes on."""
    with ExitStack() as stack:
        urls = {}
        for place, kind in enumerate(servers.KINDS):
            log = served / f"{kind}.log"
            core, port = observing.server_core(), first_port + place
            process = stack.enter_context(servers.vllm(kind, served, log, core, port))
            urls[kind] = process.base_url
            print(f"{kind}: {process.base_url}", flush=True)
        yield urls


def keep(run: Path, out: Path) -> None:
    """The tables of a run, and what the server said of itself in the end."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in KEPT:
        if (run / name).exists():
            shutil.copy(run / name, out / name)
    for table in out.glob("*.parquet"):
        compact(table)
    last = max((run / "metrics").glob("*.after.txt"), key=lambda one: one.stat().st_mtime)
    (out / "metrics.txt").write_text(of_vllm(last.read_text("utf-8")), "utf-8")


def compact(table: Path) -> None:
    """The same row groups without statistics, which take more room than a few rows."""
    rows = pq.ParquetFile(table)
    groups = [rows.read_row_group(place) for place in range(rows.num_row_groups)]
    how = {"compression": "zstd", "write_statistics": False, "use_dictionary": False}
    with pq.ParquetWriter(table, rows.schema_arrow, **how) as out:
        for group in groups:
            out.write_table(group)


def of_vllm(text: str) -> str:
    """Its own metrics but for buckets and times of creation, which fill most of the page."""
    lines = [line for line in text.splitlines() if "vllm:" in line]
    kept = [line for line in lines if "_bucket{" not in line and "_created{" not in line]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    main()
