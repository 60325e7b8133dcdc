"""Tables and pictures of docs/kernels.md, from the kernel tables: ``make kernels-page``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pages import Lines, replaced, table

from calibration.kernels import command, output, panels
from calibration.kernels.fits.held_out import RANGES, Score
from calibration.kernels.shipped import shipped
from calibration.validation import open_loop, verify_attention
from models import catalog
from models.kernels import Backend, Kernels
from models.schema import Constant
from sim.analysis import kernel_plots, plots
from sim.kernel_rows import kernel_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/kernels.md"
MEASURED = ROOT / "tests/measured"
PUBLISHED = ROOT / "calibration/data/kernels/verify_attention_hopper.csv"
PICTURES = {
    "gemm": ("GEMM",),
    "attention": ("Decode", "Prefill", "Verification"),
    "other": ("All-reduce", "Experts"),
}
"""Panels of each picture, by how their titles begin."""

BACKENDS: tuple[Backend, ...] = ("roofline", "auto", "table")
DRAWN = "h100_sxm"
"""The device whose pictures and forms the page shows in full."""


def main() -> None:
    """Fit every shipped profile again and write what the page shows of it."""
    fitted = {
        one.name: command.fit(command.Source(one.system, f"{one.engine}/{one.version}"))
        for one in shipped()
    }
    text = PAGE.read_text("utf-8")
    for name, lines in (
        ("timed", timed(fitted)),
        ("held-out", held_out(fitted)),
        ("datasheet", datasheet(fitted)),
        ("open-loop", whole_steps()),
        ("back-ends", back_ends()),
        ("verification", verification()),
    ):
        text = replaced(text, name, lines)
    PAGE.write_text(text, "utf-8")
    draw(fitted[DRAWN])


def timed(fitted: dict[str, command.Fitted]) -> Lines:
    """Rows timed and left out, a line a device, a column an operation."""
    operations = list(dict.fromkeys(name for f in fitted.values() for name in f.rows["operation"]))

    def rows() -> Iterator[Sequence[str]]:
        for found in fitted.values():
            cells = []
            for operation in operations:
                flags = found.rows.loc[found.rows["operation"] == operation, "flag"]
                bad = int((flags != "").sum())
                cells.append(f"{len(flags):,} ({bad:,})" if len(flags) else "")
            yield found.profile.device, found.profile.engine, *cells

    return table(("device", "software", *operations), rows())


def held_out(fitted: dict[str, command.Fitted]) -> Lines:
    """Errors of every form of one device, and of the forms taken on the others."""

    def rows() -> Iterator[Sequence[str]]:
        for name, found in fitted.items():
            by_form: dict[tuple[str, str, str], dict[object, Score]] = {}
            for score in found.scores:
                form = score.operation, score.dtype, score.what
                limits = score.m if score.m in RANGES.values() else None
                by_form.setdefault(form, {})[limits] = score
            taken = set()
            for form, scores in by_form.items():
                of_gemm = form[:2] if form[0] == "gemm" else form
                if name == DRAWN or of_gemm not in taken:
                    cells = [error(scores.get(limits)) for limits in (*RANGES.values(), None)]
                    yield found.profile.device, *form, *cells
                taken.add(of_gemm)

    return table(("device", "operation", "type", "form", *RANGES, "all"), rows())


def error(score: Score | None) -> str:
    """Median and 90 % quantile, or nothing."""
    return "" if score is None else f"{100 * score.median:.1f} / {100 * score.p90:.1f}"


def datasheet(fitted: dict[str, command.Fitted]) -> Lines:
    """Shares of the datasheet's rates that the constants come to, a column a device."""
    profiles = [found.profile for found in fitted.values()]
    lines: dict[str, list[str]] = {}

    def note(name: str, values: Sequence[Constant | None], digits: int = 2) -> None:
        lines[name] = ["" if one is None else f"{one.value:.{digits}f}" for one in values]

    for dtype in ("bf16", "fp8"):
        gemms = [profile.gemm.get(dtype) for profile in profiles]
        for name in ("compute", "memory", "launch_us"):
            note(f"gemm {dtype} {name}", [gemm and getattr(gemm, name) for gemm in gemms])
    for kv in ("bf16", "fp8"):
        decodes = [profile.attention.get(kv) for profile in profiles]
        for name in ("memory", "launch_us"):
            note(f"decode attention {kv} {name}", [one and getattr(one, name) for one in decodes])
        for name in ("memory", "launch_us"):
            larges = [one and one.large and getattr(one.large, name) for one in decodes]
            note(f"decode attention {kv} {name}, much read", larges)
    prompts = [profile.prefill_attention for profile in profiles]
    note("prefill attention compute", [one.compute for one in prompts])
    note("prefill attention memory", [one.memory for one in prompts])
    experts = [profile.moe for profile in profiles]
    note("experts compute", [one and one.compute for one in experts])
    note("experts memory", [one and one.memory for one in experts])
    for gpus in (2, 4, 8):
        links = [profile.all_reduce.get(gpus) for profile in profiles]
        note(f"all-reduce of {gpus}, link", [one and one.large.efficiency for one in links])
        note(f"all-reduce of {gpus}, latency_us", [one and one.latency_us for one in links])
    header = ("constant", *(profile.device for profile in profiles))
    return table(header, ((name, *cells) for name, cells in lines.items()))


def whole_steps() -> Lines:
    """Errors of the step by model, and of all stages."""
    stages = open_loop.stages()
    accelerator = catalog.hardware(DRAWN)
    kernels = Kernels(accelerator, catalog.profile(accelerator.profile))
    found = open_loop.errors(stages, kernels)

    def rows() -> Iterator[Sequence[str]]:
        names = sorted({stage.transformer for stage in stages})
        for name in (*names, "all"):
            part = [one for one in found if name in (one.stage.transformer, "all")]
            sizes = sorted({one.stage.tp for one in part})
            yield name, ", ".join(map(str, sizes)), *scored(part)

    return table(("model", "TP", *SCORED), rows())


SCORED = ("stages", "MAPE", "median", "p90", "mean error")


def scored(found: Sequence[open_loop.Error]) -> Sequence[str]:
    """Cells of the columns ``SCORED``."""
    score = open_loop.score(found)
    shares = [f"{100 * value:.1f} %" for value in (score.mape, score.median, score.p90)]
    return str(score.stages), *shares, f"{100 * score.bias:+.1f} %"


def back_ends() -> Lines:
    """The same stages by where the times of kernels come from."""
    stages = open_loop.stages()
    accelerator = catalog.hardware(DRAWN)
    (one,) = (one for one in shipped() if one.name == DRAWN)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fitted.yaml"
        found = command.fit(command.Source(one.system, f"{one.engine}/{one.version}"), path)
        output.write(found.profile, found.rows, path)
        measured = kernel_table(output.table_of(path))

    def rows() -> Iterator[Sequence[str]]:
        for backend in BACKENDS:
            kernels = Kernels(accelerator, found.profile, measured, backend)
            yield backend, *scored(open_loop.errors(stages, kernels))

    return table(("hardware.kernels", *SCORED), rows())


def verification() -> Lines:
    """Published and predicted times of attention with few query tokens."""
    published = verify_attention.read_published(PUBLISHED)
    predicted = verify_attention.predicted_s(published)

    def rows() -> Iterator[Sequence[str]]:
        for call, seconds in zip(published.itertuples(), predicted, strict=True):
            yield (
                *(str(call.device), str(call.kernel), str(call.heads), str(call.batch)),
                *(str(call.context_tokens), str(call.query_tokens)),
                *(f"{1e6 * call.time_s:,.0f}", f"{1e6 * seconds:,.0f}"),
                f"{round(100 * (seconds / call.time_s - 1)):+d} %",
            )

    header = ("device", "kernel", "heads", "batch", "context", "query tokens")
    return table((*header, "published us", "predicted us", "error"), rows())


def draw(found: command.Fitted) -> None:
    """Pictures of the H100 fit in docs/images."""
    accelerator = catalog.hardware(found.profile.device)
    every = panels.panels(found.rows, found.profile, accelerator)
    for name, titles in PICTURES.items():
        chosen = [panel for panel in every if panel.title.startswith(titles)]
        figure = kernel_plots.measured_against_fitted(chosen)
        (ROOT / f"docs/images/kernels_{name}.svg").write_bytes(plots.save(figure, "svg"))


if __name__ == "__main__":
    main()
