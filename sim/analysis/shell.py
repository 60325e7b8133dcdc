"""A command over several lines that a shell reads as one."""

from __future__ import annotations

import re
import textwrap

INDENT, COMMENT = "  ", "  # "
OPERATORS = ("&&", "||", "|", ">", ">>", "<", ";")
WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")


def command_lines(command: str, width: int) -> list[str]:
    r"""Break a command before its options, each line but the last ending in a backslash.

    A quoted JSON argument too long for a line goes on after one of its commas or colons, where
    JSON takes a line break; any other word longer than ``width`` stays whole.

    Parameters
    ----------
    command : str
        Commands and comments, one a line.
    width : int
        Characters a line may have.
    """
    lines = [line for part in command.splitlines() for line in _broken(part, width)]
    return [piece for line in lines for piece in _json_broken(line, width)]


def _broken(command: str, width: int) -> list[str]:
    if command.startswith("#"):
        text = command.lstrip("# ")
        return textwrap.wrap(text, width, initial_indent=COMMENT, subsequent_indent=COMMENT)
    lines = [""]
    for part in _options(command):
        if not lines[-1]:
            lines[-1] = INDENT + part
        elif len(lines[-1]) + 1 + len(part) + 2 <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(2 * INDENT + part)
    return lines


def _options(command: str) -> list[str]:
    """Words as they are written, an option with its value."""
    parts: list[str] = []
    for word in WORD.findall(command):
        option = parts and parts[-1].startswith("-") and " " not in parts[-1]
        if option and word[0] != "-" and word not in OPERATORS:
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
