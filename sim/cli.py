"""The command line: results on stdout, progress and errors on stderr.

Exit status: 0 done, 1 failure, 2 bad input, 130 interrupted, 141 reader of a pipe gone, 143
terminated.
"""

from __future__ import annotations

import difflib
import io
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from models.schema import ModelError
from models.strict_yaml import InputError, one_line
from sim import interrupts
from sim.verbs import VerbGroup

PIPE_WIDTH = 100
NARROWEST = 40
INTERRUPTED, BROKEN_PIPE = 130, 141
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    cls=VerbGroup,
    name="speccast",
    help="Forecast LLM serving for every speculative decoding strategy.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Scenario = Annotated[Path, typer.Argument(metavar="FILE", help="Scenario file (YAML).")]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be given often."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Width = Annotated[
    int | None,
    typer.Option("--width", min=NARROWEST, help="Characters a line; default the terminal's."),
]


def _version(asked: bool) -> None:
    if asked:
        from sim.manifest import speccast_version

        print(f"speccast {speccast_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Forecast LLM serving for every speculative decoding strategy."""


@app.command()
def run(
    file: Scenario,
    overrides: Overrides = [],  # noqa: B006
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Also write report.html and tables here."),
    ] = None,
    perfetto: Annotated[
        str | None,
        typer.Option(
            "--perfetto",
            metavar="TRACE",
            help="Also write steps and requests of a window here, for ui.perfetto.dev (JSON).",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            "--perfetto-window",
            metavar="FROM:TO",
            help="What --perfetto shows, in seconds of simulated time; default 0:60.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Take over from --out the points of `vary` an earlier run completed."
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
    width: Width = None,
) -> None:
    """Compare the strategies of a scenario: latency, throughput, memory, verdict.

    Ctrl-C ends it early with what is complete by then; once more, and nothing is written.
    """
    stop = interrupts.Stop()
    try:
        with interrupts.handled(stop):
            with interrupts.leaving_at_once():
                from sim.scenario.load import load_scenario

                scenario = load_scenario(file, overrides)

                from sim import whole_run
                from sim.analysis.report import interruption, run_report
                from sim.output import to_json

                todo = whole_run.prepare(scenario, file, out, perfetto, window, resume)
            document, said = whole_run.simulate_and_write(todo, stop, quiet)
            write_text(to_json(document) if as_json else run_report(document, *screen(width)))
    except KeyboardInterrupt as error:
        raise typer.Exit(_fail(str(error), stop.status) if error.args else stop.status) from None
    if todo.outputs and not (quiet and not stop.asked):
        said.insert(0, f"wrote {', '.join(str(output.path) for output in todo.outputs)}")
    if stop.asked:
        said.insert(0, interruption(document))
    if said:
        print("; ".join(said), file=sys.stderr)
    if stop.asked:
        raise typer.Exit(stop.status)


@app.command()
def explain(
    file: Scenario,
    overrides: Overrides = [],  # noqa: B006
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences decoding.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens of context each.")] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Take one engine step apart: where the time goes, and which roof binds."""
    from sim import explain as explaining
    from sim import output
    from sim.analysis.explain_report import explain_report
    from sim.scenario.load import load_scenario

    document = explaining.explain(load_scenario(file, overrides), batch=batch, context=context)
    if as_json:
        write_text(output.to_json(document))
    else:
        write_text(explain_report(document, *screen(width)))


@app.command()
def catalog(
    section: Annotated[
        str | None, typer.Argument(metavar="[SECTION]", help="One section; default all.")
    ] = None,
    width: Width = None,
) -> None:
    """List hardware, transformers, engines, strategies, profiles, residuals and acceptance."""
    from models.catalog import SECTIONS, describe
    from models.catalog.facts import facts
    from models.strategies import strategy_types
    from sim.analysis.explain_report import catalog_report

    def rows(name: str) -> list[tuple[str, str, str]]:
        if name != "strategies":
            return list(describe(name))
        return [
            (kind, (strategy.__doc__ or kind).splitlines()[0], "")
            for kind, strategy in strategy_types().items()
        ]

    known = list(dict.fromkeys([*SECTIONS[:3], "strategies", *SECTIONS[3:]]))
    if section is not None and section not in known:
        near = difflib.get_close_matches(section, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(known)}"
        raise ModelError(f"unknown section, got '{section}'; {hint}", "catalog")
    asked = known if section is None else [section]
    write_text(catalog_report({name: rows(name) for name in asked}, *screen(width), facts))


@app.command()
def init(
    transformer: Annotated[str, typer.Option(help="Catalogue name.")] = "llama-3.1-70b",
    hardware: Annotated[str, typer.Option(help="Catalogue name.")] = "h100_sxm",
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel GPUs a replica.")] = 4,
) -> None:
    """Print a commented scenario file to start from."""
    from sim.scenario.template import commented_scenario

    write_text(commented_scenario(transformer, hardware, tp))


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editor completion."""
    from sim.output import to_json
    from sim.scenario.template import json_schema

    write_text(to_json(json_schema()))


def write_text(text: str) -> None:
    """Print a result on stdout; exits where its reader is gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at exit: give it somewhere to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


def screen(width: int | None) -> tuple[int, bool]:
    """Line width, and whether to colour: a pipe gets plain text of a fixed width."""
    terminal = sys.stdout.isatty()
    usual = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if terminal else PIPE_WIDTH
    return max(width or usual, NARROWEST), terminal


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    _ready_streams()
    try:
        status = app(args=arguments, prog_name="speccast", standalone_mode=False)
    except InputError as error:
        status = _fail(str(error), 2)
    except ModelError as error:
        status = _fail(f"{error.key}: {error}" if error.key else str(error), 2)
    except USAGE_ERROR as error:
        what = " ".join(error.format_message().split())
        status = _fail(f"speccast: {what} (see speccast --help)", 2)
    except (OSError, RuntimeError) as error:
        status = _fail(f"speccast: {error}", 1)
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _fail(message: str, status: int) -> int:
    print(one_line(message, 3000), file=sys.stderr)
    return status


def _ready_streams() -> None:
    """Let any text be printed: to nowhere where a stream is closed, '?' for what it cannot say."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    # Remarks of matplotlib, as on its cache folder, are none of the user's business.
    logging.getLogger("matplotlib").addHandler(logging.NullHandler())


__all__ = ["AsJson", "Width", "app", "main", "screen", "write_text"]
