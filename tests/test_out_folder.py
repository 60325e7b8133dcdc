"""``run --out``: what cannot be written is found before anything is simulated or touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_cases import parts
from rows import document, row

from models.strict_yaml import InputError
from sim import output
from sim.output import FILES, check_folder, write_folder


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An input file in the current folder, beside things in the way."""
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("nowhere")
    Path("file").touch()
    Path("full/steps.parquet").mkdir(parents=True)
    Path("old").mkdir()
    Path("old/summary.json").write_text("old", "utf-8")
    path = Path("scenario.yaml")
    path.write_text("mine", "utf-8")
    Path("linked").mkdir()
    Path("linked/scenario.yaml").symlink_to(path.absolute())
    return path


def everything() -> dict[str, str | None]:
    return {
        str(path): path.read_text("utf-8") if path.is_file() else None
        for path in sorted(Path().rglob("*"))
    }


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("", "--out: needs a folder, got ''"),
        (".", "would replace the input file 'scenario.yaml'"),
        ("old/..", "would replace the input file 'old/../scenario.yaml'"),
        ("linked", "would replace the input file 'linked/scenario.yaml'"),
        ("full", "would replace the folder 'full/steps.parquet'"),
        ("file", "needs a folder, got the file 'file'"),
        ("file/deep", "needs a folder, got the file '"),
        ("dangling", "needs a folder, got the dangling link 'dangling'"),
        ("dangling/deep", "needs a folder, got the dangling link '"),
        ("n" * 300, "cannot write there: File name too long"),
        ("new/" + "n" * 300 + "/deep", "cannot write there: File name too long"),
        ("a\0b", "cannot write there: embedded null byte"),
        ("/proc", "cannot write there: "),
        ("/proc/deep", "cannot write there: "),
    ],
)
def test_what_is_in_the_way_is_named_and_nothing_changes(
    scenario: Path, folder: str, message: str
) -> None:
    before = everything()
    with pytest.raises(InputError) as caught:
        check_folder(folder, scenario)
    assert message in str(caught.value)
    assert everything() == before


@pytest.mark.parametrize("folder", ["new", "new/deep", "old", "n" * 250, "linked/../new"])
def test_a_folder_that_will_do_is_left_as_it_was(scenario: Path, folder: str) -> None:
    before = everything()
    assert check_folder(folder, scenario) == Path(folder)
    assert everything() == before


@pytest.mark.parametrize("folder", ["new/deep", "old"])
def test_a_write_that_fails_changes_nothing(
    scenario: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    before = everything()
    monkeypatch.setattr(output, "manifest", fail)
    with pytest.raises(OSError, match="disk full"):
        write_folder(Path(folder), "text", document([]), (), ())
    assert everything() == before


def test_an_earlier_result_is_replaced(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "manifest", lambda _: {})
    Path("old/figures").mkdir()
    Path("old/figures/stale.png").touch()
    write_folder(Path("old"), "text", document([row(**parts())]), (), ())
    assert {path.name for path in Path("old").iterdir()} == {*FILES, "figures"}
    assert "rows" in Path("old/summary.json").read_text("utf-8")
    found = {path.name for path in Path("old/figures").iterdir()}
    assert "stale.png" not in found
    assert {"step.svg", "step.png", "memory.svg"} <= found


def test_a_folder_of_pictures_holds_nothing_else(scenario: Path) -> None:
    Path("old/figures").mkdir()
    Path("old/figures/mine.txt").touch()
    with pytest.raises(InputError, match=r"would remove 'old/figures/mine.txt'"):
        check_folder("old", scenario)
    Path("new").mkdir()
    Path("new/figures").touch()
    with pytest.raises(InputError, match="would replace the file 'new/figures'"):
        check_folder("new", scenario)
