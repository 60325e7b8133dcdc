"""The report in headless chromium: quiet, whole, legible, at two widths and in both themes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chrome import Browser, browser
from report_cases import HOSTILE, LABELS, case

from sim.analysis.html_report import render

pytestmark = pytest.mark.browser

SCENARIO = """\
# Does <b>this</b> report stand up in a browser?
hardware: {gpu: h100_sxm}
model: {transformer: llama-3.1-8b}
workload:
  arrivals: {kind: poisson, rate_per_s: 10}
  requests: 300
  streams:
    - {name: "<img src=x onerror=alert(2)>", share: 0.5}
    - {name: code, share: 0.5}
strategies:
  - {kind: autoregressive}
  - {kind: eagle3, k: 3, label: "<script>alert(1)</script>"}
  - {kind: ngram, k: 4, label: "$x_y$ & \\"quotes\\" 長い名前"}
slo: {ttft_s: {p95: 0.5}, tpot_s: {p95: 0.03}, attainment: 0.95}
vary:
  workload.arrivals.rate_per_s: [10, 30, 100]
"""

VIEWS = list(itertools.product(("run", "everything"), (1280, 400), (False, True)))

TEXTS = """
const clear = colour => /rgba\\(.*, 0\\)|transparent/.test(colour);
const behind = element => {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!clear(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
const seen = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (!own || e.closest('.hidden, [aria-hidden]')) continue;
  const svg = e.closest('svg'), style = getComputedStyle(e);
  const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
  seen.push([e.textContent.trim().slice(0, 60), svg ? style.fill : style.color,
             behind(svg ? svg.parentElement : e), parseFloat(style.fontSize) * scale, !!svg]);
}
return seen;
"""
CUT_OFF = """
return [...document.querySelectorAll('table')].filter(table => {
  const around = table.parentElement;
  return table.offsetWidth > around.clientWidth && getComputedStyle(around).overflowX !== 'auto';
}).map(table => table.caption.textContent);
"""
IN_FIGURES = """
return [...document.querySelectorAll('figure svg')].map(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => t.textContent.trim()).map(t => {
    const r = t.getBoundingClientRect();
    return [t.textContent, r.left - frame.left, r.top - frame.top, r.width, r.height,
            frame.width, frame.height];
  });
});
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of the command line, and one with every picture there is."""
    folder = tmp_path_factory.mktemp("report")
    scenario = folder / "scenario.yaml"
    scenario.write_text(SCENARIO, "utf-8")
    start = [sys.executable, "-c", "from sim.cli import main; main()", "run", str(scenario)]
    done = subprocess.run(
        [*start, "--out", str(folder / "out")], check=True, capture_output=True, timeout=300
    )
    assert done.stderr.decode().splitlines() == [f"wrote {folder / 'out'}"]
    (folder / "everything.html").write_text(render(*case()), "utf-8")
    return {"run": folder / "out/report.html", "everything": folder / "everything.html"}


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}-{'dark' * view[2]}")
def view(request: pytest.FixtureRequest, window: Browser, pages: dict[str, Path]) -> Browser:
    """One report opened at one width in one theme, everything unfolded."""
    name, width, dark = request.param
    window.show(pages[name], width, dark)
    window.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    return window


def luminance(colour: str) -> float:
    channels = [float(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    """Contrast ratio of two colours by WCAG 2."""
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_it_is_quiet_and_asks_for_nothing_but_itself(view: Browser):
    assert view.console() == []
    asked = [url for url in view.requested() if url != "about:blank"]
    assert asked == [view.driver.current_url]


def test_the_page_never_scrolls_sideways(view: Browser):
    width, inner = view.run("return [document.scrollingElement.scrollWidth, innerWidth]")
    assert width <= inner
    wide = view.run(CUT_OFF)
    assert wide == []


def test_every_text_stands_out_from_its_ground_and_is_large_enough(view: Browser):
    seen: list[list[Any]] = view.run(TEXTS)
    assert any(in_figure for *_, in_figure in seen)
    weak = [(text, contrast(ink, ground)) for text, ink, ground, _, _ in seen]
    assert [each for each in weak if each[1] < 4.5] == []
    small = [(text, size) for text, _, _, size, _ in seen if size < 9]
    assert small == []


def test_texts_in_figures_are_inside_and_apart(view: Browser):
    figures = view.run(IN_FIGURES)
    assert figures
    for texts in figures:
        for text, left, top, width, height, full_width, full_height in texts:
            assert left >= -1, text
            assert left + width <= full_width + 1, text
            assert top >= -1, text
            assert top + height <= full_height + 1, text
        for one, two in itertools.combinations(texts, 2):
            across = min(one[1] + one[3], two[1] + two[3]) - max(one[1], two[1])
            down = min(one[2] + one[4], two[2] + two[4]) - max(one[2], two[2])
            # Boxes of text include some air above and below the letters.
            assert across <= 1 or down <= 0.35 * min(one[4], two[4]), (one[0], two[0])


def test_themes_differ(window: Browser, pages: dict[str, Path]):
    grounds = []
    for dark in (False, True):
        window.show(pages["run"], 1280, dark)
        grounds.append(window.run("return getComputedStyle(document.body).backgroundColor"))
    assert luminance(grounds[0]) > 0.8
    assert luminance(grounds[1]) < 0.05


def test_figures_stand_three_abreast_or_alone(window: Browser, pages: dict[str, Path]):
    script = "return getComputedStyle(document.querySelector('.pictures')).gridTemplateColumns"
    for width, columns in ((1280, 3), (400, 1)):
        window.show(pages["run"], width)
        assert len(window.run(script).split()) == columns


def test_hostile_text_is_text(window: Browser, pages: dict[str, Path]):
    window.show(pages["everything"], 1280)
    assert window.run("return document.scripts.length + document.images.length") == 0
    shown = window.run("return document.body.innerText")
    assert all(label in shown for label in LABELS)
    inside = "return [...document.querySelectorAll('svg text')].map(t => t.textContent)"
    assert HOSTILE in window.run(inside)
    window.show(pages["run"], 1280)
    assert "<b>this</b>" in window.run("return document.title")
    assert window.run("return document.scripts.length + document.images.length") == 0
