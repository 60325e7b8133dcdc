"""Further verbs of the command line, found by the entry-point group ``speccast.verbs``.

An entry point names a ``typer.Typer``, or a function whose parameters become options. Nothing is
imported until the verb is called or the help lists it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

GROUP = "speccast.verbs"


class VerbGroup(TyperGroup):
    """The built-in verbs, then those of other packages; a built-in name cannot be taken over."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all verbs, the built-in ones first."""
        own = list(super().list_commands(ctx))
        return own + sorted({point.name for point in entry_points(group=GROUP)} - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of that name, imported if it is another package's; None if there is none."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = entry_points(group=GROUP, name=cmd_name)
        return _load(next(iter(found))) if found else None


def _load(point: EntryPoint) -> Any:
    try:
        verb = point.load()
    except Exception as error:
        return _broken(point, error)
    app = verb
    if not isinstance(verb, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(name=point.name)(verb)
    command = typer.main.get_command(app)
    command.name = point.name
    return command


def _broken(point: EntryPoint, error: Exception) -> Any:
    """A verb that cannot be imported is still listed, and says why when called."""
    reason = f"{type(error).__name__}: {error}"
    app = typer.Typer(add_completion=False)

    @app.command(name=point.name, help=f"(cannot be loaded: {reason})")
    def verb() -> None:
        raise RuntimeError(f"verb '{point.name}' from {point.value} cannot be loaded: {reason}")

    return typer.main.get_command(app)
