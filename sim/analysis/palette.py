"""Colours, markers and line styles of pictures and page, in a light and a dark theme.

Pictures are drawn in the light colours; on the page each becomes the CSS variable of its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Shade(NamedTuple):
    """One colour in both themes."""

    light: str
    dark: str


SHADES = {
    "page": Shade("#f4f6f8", "#0e1115"),
    "paper": Shade("#ffffff", "#171b21"),
    "ink": Shade("#16191d", "#eef1f4"),
    "muted": Shade("#515a66", "#a9b2bd"),
    "grid": Shade("#dfe4e9", "#323943"),
    "accent": Shade("#0a5fb4", "#6cb2ff"),
    "good": Shade("#14713a", "#63d493"),
    "bad": Shade("#b3261e", "#ff9a92"),
    "chosen": Shade("#e8f1fb", "#1b2b3d"),
    "series-0": Shade("#5f6670", "#a3abb5"),
    "series-1": Shade("#0b6bcb", "#5aa9ff"),
    "series-2": Shade("#c8500b", "#ff9a57"),
    "series-3": Shade("#00856a", "#2fcfa6"),
    "series-4": Shade("#8f3fb0", "#cf93ec"),
    "series-5": Shade("#8a6d00", "#e3c344"),
    "series-6": Shade("#c2185b", "#ff86b0"),
    "series-7": Shade("#00799c", "#5fd4ee"),
    "part-weights": Shade("#1f4e8c", "#4d86cf"),
    "part-kv": Shade("#4a90d9", "#8dbdf2"),
    "part-attention": Shade("#a3c9ee", "#2f557d"),
    "part-elementwise": Shade("#c3ccd6", "#5b6673"),
    "part-lm-head": Shade("#2a8c7d", "#3fb8a4"),
    "part-collectives": Shade("#8fcbbf", "#256b5f"),
    "part-sampling": Shade("#d3ab2c", "#e6c75c"),
    "part-draft": Shade("#d9691e", "#f08b45"),
    "part-host": Shade("#6b6b73", "#b9b9c2"),
}
"""By name; the light colours are all different."""

INK, MUTED, GRID, PAPER, BAD = (
    SHADES[name].light for name in ("ink", "muted", "grid", "paper", "bad")
)
SERIES = [name for name in SHADES if name.startswith("series-")]
GLYPHS = {
    "o": "\u25cf",
    "s": "\u25a0",
    "^": "\u25b2",
    "D": "\u25c6",
    "v": "\u25bc",
    "P": "\u271a",
    "X": "\u2716",
    "<": "\u25c0",
    ">": "\u25b6",
    "h": "\u2b22",
    "p": "\u2b1f",
}
"""Markers of matplotlib, and the letters that look like them."""
MARKERS = tuple(GLYPHS)
CROSS: dict[str, Any] = {"marker": "x", "linestyle": "", "markeredgewidth": 1.5}
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 11,
    "markerfacecolor": "none",
    "color": BAD,
    "markeredgecolor": BAD,
    "markeredgewidth": 1.6,
    "linestyle": "",
    "zorder": 5,
}
LINES = ("-", "--", "-.", ":")


class Look(NamedTuple):
    """How the marks of one strategy are drawn."""

    colour: str
    marker: str
    line: str

    def style(self) -> dict[str, Any]:
        """Arguments of matplotlib's ``plot``, but for the line style."""
        return {"color": self.colour, "marker": self.marker, "linewidth": 1.6}


PLAIN = Look(SHADES["series-0"].light, MARKERS[0], LINES[0])


def looks(strategies: Iterable[str], baseline: str | None = None) -> dict[str, Look]:
    """A look for every strategy, in their order; plain decoding is grey.

    No two of the first 70 share both colour and marker.
    """
    made: dict[str, Look] = {}
    colours = SERIES[1:]
    for strategy in dict.fromkeys(strategies):
        if strategy == baseline:
            made[strategy] = PLAIN
            continue
        index = len(made) - (baseline in made)
        made[strategy] = Look(
            SHADES[colours[index % len(colours)]].light,
            MARKERS[1:][index % (len(MARKERS) - 1)],
            LINES[index // len(colours) % len(LINES)],
        )
    return made


def part(name: str) -> str:
    """Light colour of one component of a step or of a memory budget."""
    return SHADES[f"part-{_PARTS[name]}"].light


HATCHES = {
    "draft": "////",
    "fetch": "....",
    "kv_free": "--",
    "sampling": "xx",
    "unused": "\\\\\\\\",
}
"""Patterns that tell neighbours apart without their colour."""

_PARTS = {
    "weights": "weights",
    "kv": "kv",
    "attention": "attention",
    "elementwise": "elementwise",
    "lm_head": "lm-head",
    "collectives": "collectives",
    "sampling": "sampling",
    "draft": "draft",
    "host": "host",
    "fetch": "kv",
    "other": "elementwise",
    "kv_peak_used": "lm-head",
    "kv_free": "collectives",
    "reserve": "host",
    "unused": "elementwise",
}


def css(theme: str) -> str:
    """Every colour of one theme, ``light`` or ``dark``, as CSS variables."""
    return "".join(f"--{name}:{getattr(shade, theme)};" for name, shade in SHADES.items())


def variables() -> dict[str, str]:
    """The CSS variable of every light colour."""
    return {shade.light: f"var(--{name})" for name, shade in SHADES.items()}


STYLE: Any = {
    "figure.dpi": 72,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": INK,
    "text.parse_math": False,
    "axes.facecolor": PAPER,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 10.5,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 10.5,
    "ytick.left": False,
    "legend.fontsize": 10.5,
    "legend.frameon": False,
    "lines.markersize": 5.5,
    "lines.markeredgecolor": PAPER,
    "lines.markeredgewidth": 0.6,
    "hatch.color": PAPER,
    "hatch.linewidth": 1.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "speccast",
}
"""Settings of matplotlib for a picture 380 pixels wide, a point being a pixel."""
