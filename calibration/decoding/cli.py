"""The verb ``speccast calibrate decode``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from models.strict_yaml import InputError
from sim import interrupts
from sim.cli import AsJson, Width, screen, write_text

if TYPE_CHECKING:
    from calibration.decoding.command import Prepared
    from models.trees import Tree


def decode(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of tables to write.")],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="smollm2-135m, or a folder of weights.")
    ] = "smollm2-135m",
    which: Annotated[
        str, typer.Option("--strategies", metavar="A,B", help="all, or labels by comma.")
    ] = "all",
    prompts: Annotated[
        str, typer.Option(metavar="A,B", help="Domains by comma, or a file of prompts (.jsonl).")
    ] = "code,prose,json_sql,maths,extract",
    device: Annotated[Literal["cuda", "cpu"], typer.Option(help="Where to run.")] = "cpu",
    heads: Annotated[
        Path, typer.Option(metavar="DIR", help="What calibrate train-heads has left.")
    ] = Path("heads"),
    draft: Annotated[
        str | None, typer.Option(metavar="DIR", help="Draft model of your own.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, max=64, help="Draft tokens of chains.")] = 4,
    tree: Annotated[
        str | None,
        typer.Option(metavar="TREE", help="Of Medusa: medusa_63, [3,2,1], [[0],[0,0],[1]]."),
    ] = None,
    lookahead: Annotated[
        str, typer.Option(metavar="W,N,G", help="Window, n-gram size, guesses.")
    ] = "5,4,5",
    temperature: Annotated[float, typer.Option(min=0.01, help="Of draft_model_sampled.")] = 0.8,
    per_domain: Annotated[int, typer.Option(min=1, help="Prompts of each domain.")] = 16,
    max_new_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each text.")] = 64,
    batch: Annotated[int, typer.Option(min=1, max=1024, help="Prompts side by side.")] = 1,
    dtype: Annotated[Literal["bf16", "fp32"], typer.Option(help="Of the weights.")] = "bf16",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of what is sampled.")] = 0,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Of calibrate device: also predict these runs with it."),
    ] = None,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Decode real prompts by every strategy: what is accepted, and how long steps take.

    The same command goes on where it was interrupted. Strategies and prompts may be added.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from calibration.decoding import command
        from calibration.decoding.asked import Options
        from calibration.decoding.strategies import Knobs
        from sim import progress

        knobs = Knobs(k, _tree(tree), _three(lookahead), temperature)
        options = Options(
            *(out, model, which, prompts, device, heads, draft, knobs, per_domain),
            *(max_new_tokens, batch, dtype, threads, seed, profile),
        )
        prepared = command.prepare(options, _note)
    interrupted = False
    try:
        with interrupts.handled(stop), progress.shown(quiet=False) as bar:
            command.decode(prepared, bar.update)
    except KeyboardInterrupt:
        interrupted = True
        _note(command.interruption(prepared))
    _show(prepared, not interrupted, as_json, width)
    if interrupted:
        raise typer.Exit(stop.status)


def _show(prepared: Prepared, whole: bool, as_json: bool, width: int | None) -> None:
    """Write and print what was measured; with a profile also what was forecast, once all ran."""
    from calibration.decoding import command, report
    from sim import progress
    from sim.output import to_json

    options = prepared.options
    written = command.write(prepared)
    measured, streams = command.measured(prepared), command.streams(prepared)
    if not as_json:
        write_text(report.decode_report(prepared.title, measured, streams, *screen(width)))
    _note(f"wrote {', '.join(str(path) for path in written)}")
    comparison = None
    if options.profile is not None and whole:
        with progress.shown(quiet=False) as bar:
            comparison = command.forecast(prepared, bar.update)
    if as_json:
        document = report.as_json(command.about(prepared), measured, streams)
        more = {} if comparison is None else {"forecast": comparison.as_json()}
        write_text(to_json(document | more))
    elif comparison is not None:
        write_text("\n" + comparison.text(*screen(width)))
    if comparison is not None:
        made = (options.out / command.ACCEPTANCE, *comparison.files)
        _note(f"wrote {', '.join(map(str, made))}")


def _three(text: str) -> tuple[int, int, int]:
    try:
        w, n, g = map(int, text.split(","))
        if w < 1 or n < 2 or g < 1:
            raise ValueError
    except ValueError:
        message = f"must be W,N,G as in 5,4,5, N from 2 on, got '{text}'"
        raise InputError("", None, "--lookahead", message) from None
    return w, n, g


def _tree(text: str | None) -> Tree | None:
    from pydantic import TypeAdapter, ValidationError

    from models.trees import TreeSpec, make_tree

    if text is None:
        return None
    try:
        spec = json.loads(text) if text.startswith("[") else text
        return make_tree(TypeAdapter(TreeSpec).validate_python(spec))
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
    except ValueError as error:
        reason = str(error)
    raise InputError("", None, "--tree", f"{reason}, got '{text}'")


def _note(text: str) -> None:
    print(text, file=sys.stderr)
