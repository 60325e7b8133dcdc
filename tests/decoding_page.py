"""Tables and pictures of docs/decoding.md, from the recorded runs: ``make decoding-page``."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from acceptance_tables import checks, crossed, fits, heads, taus, verdicts
from pages import Lines, replaced, table

from calibration.acceptance import command as acceptance
from calibration.acceptance.runs import read
from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast import report
from calibration.decoding.forecast.command import Comparison, compare
from sim.analysis import decoding_plots, plots
from sim.tables import read_parquet

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/decoding.md"
RECORD = ROOT / "tests/measured/decoding"
RUNS, PROFILE, TRAINED = RECORD / "runs", RECORD / "cpu.yaml", RECORD / "heads/heads.json"
EXACT = RECORD / "fp32.json"
"""``run.json`` of the run in fp32, which shows that decoding is lossless."""
FITTED = RECORD / "acceptance.yaml"
MS, PERCENT = 1e3, 100


def main() -> None:
    """Fit the recorded runs again, forecast them, and write what the page shows of both."""
    fitted = acceptance.fit(read(RUNS), True, lambda *_: None)
    acceptance.write(fitted.file, FITTED)
    compared = comparison()
    text = PAGE.read_text("utf-8")
    for name, lines in (
        ("run", about()),
        ("tau", taus(fitted)),
        ("fit", fits(fitted)),
        ("heads", heads(fitted)),
        ("check", checks(fitted)),
        ("steps", steps(compared)),
        ("runs", whole(compared)),
        ("sums", sums(compared, fitted)),
        ("active", active()),
        ("exact", exact()),
        ("trained", trained()),
    ):
        text = replaced(text, name, lines)
    PAGE.write_text(text, "utf-8")
    for name, figure in pictures(fitted, compared):
        (ROOT / f"docs/images/decoding_{name}.svg").write_bytes(plots.save(figure, "svg"))


def comparison() -> Comparison:
    """Forecast of a copy of the runs: a forecast writes beside them."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / RECORD.name
        shutil.copytree(RECORD, copy)
        return compare(copy / RUNS.name, str(copy / PROFILE.name), copy / FITTED.name)


def about() -> Lines:
    """What ran, where."""
    run = json.loads((RUNS / "run.json").read_text("utf-8"))
    requests = read_parquet(RUNS / "requests.parquet")
    steps_ = read_parquet(RUNS / "steps.parquet")
    yield (
        f"{run['target']} in {run['dtype']} on {run['machine']}, {run['threads']} thread, torch "
        f"{run['torch']}, transformers {run['transformers']}, {run['date']}: {run['prompts']} "
        f"prompts, at most {run['max_new_tokens']} tokens each, {len(requests['id'])} texts, "
        f"{int((steps_['n_decode'] > 0).sum())} decode steps."
    )


def steps(compared: Comparison) -> Lines:
    """Mean step by strategy and domain."""
    cells = {
        (row.strategy, row.domain): f"{MS * row.measured_s:.0f} / {MS * row.forecast_s:.0f} "
        f"({PERCENT * row.error:+.0f} %)"
        for row in compared.cells.itertuples()
    }
    yield from crossed(cells)


def whole(compared: Comparison) -> Lines:
    """Speedup by strategy and domain: measured, forecast as recorded, forecast as drawn."""
    cells = {
        (row.strategy, row.domain): f"{row.measured_speedup:.2f} / {row.replayed_speedup:.2f} / "
        f"{row.fitted_speedup:.2f}"
        for row in compared.runs.itertuples()
        if row.strategy != BASELINE
    }
    yield from crossed(cells)


def sums(compared: Comparison, fitted: acceptance.Fitted) -> Lines:
    """All errors in a few lines."""
    found = report.figures(compared)
    checks = {"in a domain": [row.check for row in fitted.rows if row.check is not None]}
    checks["over all domains"] = list(fitted.together.values())
    inside = sum(row.tau_holds for row in fitted.rows)
    yield from table(
        ("what", "found"),
        [
            (
                "mean step by strategy and domain, MAPE (worst)",
                f"{PERCENT * found['mean_step_mape']:.1f} % "
                f"({PERCENT * found['mean_step_worst']:.1f} %)",
            ),
            (f"single steps ({found['steps']}), MAPE", f"{PERCENT * found['step_mape']:.1f} %"),
            ("prompts, MAPE", f"{PERCENT * found['prefill_mape']:.1f} %"),
            *(
                (
                    f"speedup, acceptance {how}: MAPE, right side of 1",
                    f"{PERCENT * found[f'{name}_speedup_mape']:.1f} %, "
                    f"{found[f'{name}_sides']['right']} of {found[f'{name}_sides']['told']}",
                )
                for name, how in (("replayed", "as recorded"), ("fitted", "drawn from the fit"))
            ),
            (
                "tau of the fitted sampler inside the measured interval",
                f"{inside} of {len(fitted.rows)}",
            ),
            *(row for where, found in checks.items() for row in verdicts(where, found)),
        ],
    )


def active() -> Lines:
    """Gate and dynamic K before and after the stream's switch of domain."""
    columns = read_parquet(RUNS / "steps.parquet")
    domains = requests_domains()
    frame = pd.DataFrame({name: columns[name] for name in ("strategy", "request", "note")})
    frame["emitted"], frame["duration_s"] = columns["emitted"], columns["duration_s"]
    frame["accepted"] = 0
    frame = frame[frame["note"] != ""]
    frame["domain"] = [
        domains[key] for key in zip(frame["strategy"], frame["request"], strict=True)
    ]

    def rows() -> Iterator[Sequence[str]]:
        for (strategy, domain), part in frame.groupby(["strategy", "domain"], sort=False):
            plain = part["note"].isin([BASELINE, "k=0"])
            ks = part["note"].str.extract(r"^k=(\d+)$")[0].dropna().astype(int)
            yield (
                *(str(strategy), str(domain), str(len(part))),
                f"{PERCENT * (1 - plain.mean()):.0f} %",
                f"{ks.mean():.2f}" if len(ks) else "",
                f"{part['emitted'].mean():.2f}",
                f"{MS * part['duration_s'].sum() / part['emitted'].sum():.1f}",
            )

    header = ("strategy", "domain", "steps", "speculating", "mean K", "tokens a step")
    yield from table((*header, "ms a token"), rows())


def requests_domains() -> dict[tuple[str, int], str]:
    """Domain of every request, by strategy and id."""
    columns = read_parquet(RUNS / "acceptance.parquet")
    keys = zip(columns["strategy"], columns["request"], strict=True)
    return dict(zip(keys, columns["domain"], strict=True))


def exact() -> Lines:
    """Share of texts that are not plain decoding's, in both types."""
    found = [json.loads(file.read_text("utf-8")) for file in (EXACT, RUNS / "run.json")]
    header = ["strategy", *(f"{one['dtype']}, {one['prompts']} prompts" for one in found)]

    def rows() -> Iterator[Sequence[str]]:
        for label in found[1]["differs"]:
            if label != BASELINE:
                shares = (one["differs"].get(label) for one in found)
                yield label, *("" if s is None else f"{PERCENT * s:.0f} %" for s in shares)

    yield from table(header, rows())


def trained() -> Lines:
    """Held-out accuracy of the trained parts."""
    info = json.loads(TRAINED.read_text("utf-8"))
    text = info["text"]
    yield (
        f"{text['trained_sequences']} sequences trained on, {text['held_out_sequences']} held out, "
        f"{text['tokens']} tokens, {text['written_by']}."
    )
    yield ""

    def rows() -> Iterator[Sequence[str]]:
        for part, said in info["parts"].items():
            told = ", ".join(f"{label} {share:.2f}" for label, share in said["top1"].items())
            yield part, told, f"{said['training_s']:.0f}"

    yield from table(("part", "top-1 on held-out text", "seconds of training"), rows())


def pictures(fitted: acceptance.Fitted, compared: Comparison) -> Iterator[tuple[str, Any]]:
    """What the page draws."""
    rows = [
        {
            "strategy": row.measured.label,
            "domain": row.measured.domain,
            **dict(zip(("tau", "lo", "hi"), row.measured.interval[:3], strict=True)),
            "fitted": row.fitted_tau,
        }
        for row in fitted.rows
    ]
    yield "tau", decoding_plots.acceptance(pd.DataFrame(rows))
    runs = compared.runs[compared.runs["strategy"] != BASELINE]
    names = {"measured_speedup": "measured", "fitted_speedup": "forecast"}
    yield "speedup", decoding_plots.speedups(runs.rename(columns=names))
    yield "steps", decoding_plots.step_parts(parts(compared.steps))


def parts(single: pd.DataFrame) -> pd.DataFrame:
    """Mean parts of a step by strategy, a row measured and a row forecast."""
    means = single.groupby("strategy", sort=False).mean(numeric_only=True)
    found = []
    for strategy, row in means.iterrows():
        for kind in ("measured", "forecast"):
            own = {f"{part}_s": row[f"{kind}_{part}_s"] for part in decoding_plots.PARTS}
            found.append({"strategy": strategy, "kind": kind, **own})
    return pd.DataFrame(found)


if __name__ == "__main__":
    main()
