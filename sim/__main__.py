"""Start the command line: ``speccast``, or ``python -m sim``.

Importing it takes a while, in which Ctrl-C ends the program as quietly as later on.
"""

from __future__ import annotations

import signal

from sim import interrupts


def main() -> None:
    """Import the command line, run it, and exit with its status."""
    with interrupts.leaving_at_once():
        from sim import cli
    try:
        cli.main()
    finally:
        # All is said and done: a late signal must not print a traceback while Python shuts down.
        for number in interrupts.SIGNALS:
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
