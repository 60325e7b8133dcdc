"""The page of a capacity plan: it answers first, fetches nothing, and takes no text for markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from plan_document import document
from plan_variants import VARIANTS, bare

from sim.analysis import plan_html, plan_plots, plan_words

HOSTILE = '<img src=x onerror="alert(1)">'
WRITTEN = {
    "document": {"gpus", "pareto", "tornado", "day"},
    "missed": {"gpus", "pareto", "tornado", "day"},
    "bare": {"gpus"},
    "nothing_at_all": set(),
    "nothing_runs": {"gpus", "pareto"},
}
"""Variants written as files, and their pictures."""


class Reader(HTMLParser):
    """Collects elements, attributes and visible text; every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str], Path]]:
    """Page, files and folder of variants that differ in what is drawn."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_html, "KINDS", ("svg",))
        for name in WRITTEN:
            folder = tmp_path_factory.mktemp(name)
            files = plan_html.write(VARIANTS[name](), folder)
            made[name] = ((folder / "report.html").read_text("utf-8"), files, folder)
    return made


@pytest.mark.parametrize("name", VARIANTS)
def test_a_page_comes_of_every_kind_of_plan(name: str):
    text = Reader(plan_html.page(VARIANTS[name](), {})).text
    assert "None" not in text
    assert "nan" not in text.split()
    assert plan_words.answer(VARIANTS[name]()) in text.replace("\u00a0", " ")


@pytest.mark.parametrize("name", WRITTEN)
def test_every_plan_becomes_a_page_that_fetches_nothing(name: str, pages: Any):
    page, files, folder = pages[name]
    drawn = WRITTEN[name]
    figures = {f"figures/{each}.svg" for each in drawn}
    assert set(files) == {"report.html", *figures}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == set(files)
    read = Reader(page)
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "img", "iframe", "object"})
    for _, attributes in read.tags:
        assert not [key for key in attributes if key.startswith("on") or key == "src"]
    assert not re.search(r"@import|url\((?!#)", page)
    assert page.count("<svg") == len(drawn)


def test_the_same_plan_gives_the_same_bytes(
    pages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, files, folder = pages["document"]
    monkeypatch.setattr(plan_html, "KINDS", ("svg",))
    assert plan_html.write(document(), tmp_path) == files
    for name in files:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_every_picture_is_written_as_svg_and_as_png(tmp_path: Path):
    figures = ["figures/gpus.svg", "figures/gpus.png"]
    assert plan_html.write(bare(), tmp_path) == ["report.html", *figures]
    assert (tmp_path / figures[1]).read_bytes()[:4] == b"\x89PNG"


def test_the_page_answers_first_and_tells_what_the_report_tells(pages: Any):
    text = " ".join(Reader(pages["document"][0]).text.replace("\u00a0", " ").split())
    order = (
        "Buy 8 h100_sxm (90 %: 8-12)",
        "The cheapest plan of each strategy and GPU",
        "Launch each replica with",
        "A full day of the plan chosen",
        "What to measure next",
        "What this rests on",
        "What cannot run, or cannot hold the SLO",
        "512 candidates",
    )
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "Candidates searched, cheapest first: 16" in text


def test_the_page_marks_bounds_held_and_missed(pages: Any):
    assert 'class="card good-line"' in pages["document"][0]
    assert 'class="card bad-line"' in pages["missed"][0]
    assert "✓ within 25 ms" in pages["document"][0].replace("\u00a0", " ")
    made = document()
    made["plans"][0]["worst"]["tpot_s_p95"] = 0.026
    assert "✗ over 25 ms" in plan_html.page(made, {}).replace("\u00a0", " ")


def test_text_from_input_stays_text():
    made = document(question=HOSTILE, engine=HOSTILE)
    for plan in made["plans"][:2]:
        plan["strategy"] = HOSTILE
        plan["launch"] = f"vllm serve {HOSTILE}"
    for row in (*made["impossible"], *made["search"]):
        row["strategy"] = HOSTILE
    for row in made["inputs"]:
        row |= {"input": HOSTILE, "value": HOSTILE, "source": HOSTILE}
    for row in made["tornado"]:
        row["what"] = HOSTILE
    svgs = {"gpus": plan_html.inline(picture(made), "gpus", HOSTILE)}
    page = plan_html.page(made, svgs)
    assert HOSTILE not in page
    assert HOSTILE in Reader(page).text


def picture(made: dict[str, Any]) -> bytes:
    return plan_html.plots.save(plan_plots.gpus_by_plan(made), "svg")


def test_pictures_follow_the_theme(pages: Any):
    for svg in re.findall(r"<svg.*?</svg>", pages["document"][0], re.DOTALL):
        assert not re.search(r"#[0-9a-f]{6}", re.sub(r">[^<]*<", "><", svg))
        assert "var(--" in svg
    ids = re.findall(r'\bid="([^"]+)"', pages["document"][0])
    assert len(ids) == len(set(ids))
