"""A command over several lines that a shell reads as one."""

from __future__ import annotations

import re
import shlex

INDENT = "  "


def command_lines(command: str, width: int) -> list[str]:
    r"""Break a command before its options, each line but the last ending in a backslash.

    A quoted JSON argument too long for a line goes on after one of its commas or colons, where
    JSON takes a line break; any other word longer than ``width`` stays whole.

    Parameters
    ----------
    command : str
        As ``shlex`` would split it.
    width : int
        Characters a line may have.
    """
    lines = [""]
    for part in _options(command):
        start = INDENT if len(lines) == 1 else 2 * INDENT
        if not lines[-1]:
            lines[-1] = start + part
        elif len(lines[-1]) + 1 + len(part) + 2 <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(2 * INDENT + part)
    return [piece for line in lines for piece in _json_broken(line, width)]


def _options(command: str) -> list[str]:
    """Words, an option with its value."""
    try:
        words = [shlex.quote(word) for word in shlex.split(command)]
    except ValueError:
        words = command.split()
    parts: list[str] = []
    for word in words:
        if parts and parts[-1].startswith("-") and " " not in parts[-1] and word[:1] != "-":
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


def _json_broken(line: str, width: int) -> list[str]:
    start = line.find("'{")
    if len(line) <= width or start < 0:
        return [line]
    pieces = re.findall(r".+?(?:[,:](?= ?[\"\d{\[tfn]) ?|$)", line[start:])
    made = [line[:start]]
    for piece in pieces:
        if len(made[-1]) + len(piece.rstrip()) > width and made[-1].strip():
            made[-1] = made[-1].rstrip()
            made.append(2 * INDENT + piece)
        else:
            made[-1] += piece
    return made
