"""The verb ``speccast observe``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calibration.live.observe.schedule import check_size
from models.strict_yaml import one_line
from sim import interrupts
from sim.cli import AsJson, Width, screen, write_text

if TYPE_CHECKING:
    from calibration.live.observe.observer import Observer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def observe(
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="Of the API, as http://host:8000/v1.")
    ],
    model: Annotated[str, typer.Option(metavar="NAME", help="As the server calls it.")],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder to write.")],
    concurrency: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Users at a time, a stage each; default 1,2,4,8."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="R,R", help="Poisson requests a second instead.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Send the trace of --prompts at its times instead.")
    ] = False,
    rate_scale: Annotated[
        float, typer.Option(min=1e-3, max=1e6, help="How much faster than recorded.")
    ] = 1.0,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of an answer; default 128.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prompts (.jsonl, .txt) or a trace; default our own."),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Of a stage; default 16, or 3 a user.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Times the ladder is measured; may be raised later.")
    ] = 1,
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="Requests before a stage; default one a user.")
    ] = None,
    api: Annotated[Literal["chat", "completions"], typer.Option(help="Which one.")] = "chat",
    strategy: Annotated[
        str | None,
        typer.Option(metavar="YAML", help="What the server runs, as '{kind: ngram, k: 4}'."),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME", help="Of it in tables.")] = None,
    temperature: Annotated[
        str, typer.Option(metavar="T", help="Of sampling; none leaves it to the server.")
    ] = "0",
    max_tokens_key: Annotated[
        Literal["max_tokens", "max_completion_tokens"],
        typer.Option(help="What the server calls the most tokens of an answer."),
    ] = "max_tokens",
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Let every answer have all its tokens.")
    ] = False,
    extra_body: Annotated[
        str | None, typer.Option(metavar="JSON", help="Further keys of every request.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, help="Longest wait for a whole answer.")
    ] = 600.0,
    retries: Annotated[int, typer.Option(min=0, max=10, help="After errors.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of arrival times and prompts.")] = 0,
    same_prompts: Annotated[
        bool, typer.Option("--same-prompts", help="Without the line that defeats prefix caches.")
    ] = False,
    metrics_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Default /metrics of the server.")
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics/--no-metrics", help="Read the server's metrics.")
    ] = True,
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Variable with the API key; default OPENAI_API_KEY."),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the server runs on, for tables.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send more than 1000 requests.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Put a live server under load and measure it: any with the OpenAI API.

    The same command goes on where it was interrupted. Repeats may be added.
    """
    stop = interrupts.Stop()
    with interrupts.leaving_at_once():
        from calibration.live.observe.command import Given, prepare
        from calibration.live.observe.observer import Observer
        from calibration.live.recording import ERRORS

        given = Given(
            *(base_url, model, out, concurrency, rate, replay, rate_scale, tokens, prompts),
            *(requests, repeats, warm_up, api, strategy, label, temperature, ignore_eos),
            *(extra_body, timeout_s, retries, seed, same_prompts, metrics_url, metrics),
            *(api_key_env, machine, max_tokens_key),
        )
        options = prepare(given)
    with Observer(options, _note) as observer:
        check_size(observer.to_send, yes)
        for remark in given.remarks(options):
            _note(remark)
        _measure(observer, stop, quiet, as_json, width)
        _show(observer, quiet, as_json, width)
    if stop.asked:
        raise typer.Exit(stop.status)
    if observer.kept.runs and not observer.kept.answered:
        raise RuntimeError(f"no request was answered; see '{observer.options.out / ERRORS}'")


def _measure(
    observer: Observer, stop: interrupts.Stop, quiet: bool, as_json: bool, width: int | None
) -> None:
    """Measure what is left, and say what is kept where it ends early."""
    from calibration.live.observe.pulse import DeadError, GoneError
    from sim import progress

    try:
        with interrupts.handled(stop), progress.shown(quiet) as bar:
            observer.run(stop, bar.update)
    except GoneError as error:
        if isinstance(error, DeadError):
            _show(observer, True, as_json, width)
        raise RuntimeError(f"{error}; {observer.kept_words}") from None
    except KeyboardInterrupt:
        _note(f"interrupted: {observer.kept_words}")
        raise typer.Exit(stop.status) from None
    if stop.asked:
        _note(f"interrupted: {observer.kept_words}")


def _show(observer: Observer, quiet: bool, as_json: bool, width: int | None) -> None:
    from calibration.live.observe.report import document, report
    from sim.output import to_json

    kept = observer.kept
    if not kept.runs:
        return
    said = document(kept.about(), kept.stages, kept.runs)
    said["notes"] = [*said["notes"], *filter(None, [kept.failures])]
    write_text(to_json(said) if as_json else report(said, *screen(width)))
    if not quiet:
        _note(f"wrote '{observer.options.out}'")


def _note(text: str) -> None:
    print(one_line(text, 3000), file=sys.stderr)
