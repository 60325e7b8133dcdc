"""``run --out``: what cannot be written is found before anything is simulated or touched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from report_cases import parts
from rows import document, requests, row

from models.strict_yaml import InputError
from sim import output
from sim.output import FILES, OutputFolder, check_folder
from sim.perfetto_file import check_trace
from sim.staging import MARKS, foreign
from sim.tables import STEPS, Columns, RunTable, read_parquet


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


RUN = RunTable({"model.tp": 2}, "eagle3 K=3", 0, {}, ("chat",), ("prose",))
DOCUMENT = document([row(**parts())])


def steps(count: int, first: int = 0) -> Columns:
    """Steps of one replica, a second each, from number ``first`` on."""
    known: Columns = {"start_s": np.arange(first, first + count, dtype=np.float64)}
    ones = {name: np.ones(count, dtype=np.int64) for name in STEPS.names}
    return ones | known | {"replica": np.zeros(count, dtype=np.int64)}


def fill(folder: OutputFolder, request_count: int = 3) -> None:
    """Write two parts of steps and a request table."""
    for first in (0, 5):
        folder.add_steps(RUN._replace(columns=steps(5, first)))
    folder.add_requests(RUN._replace(columns=requests(request_count)))


@pytest.mark.parametrize("folder", ["new/deep", "old"])
@pytest.mark.parametrize("when", ["at once", "with tables", "in the last file"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_does_not_come_to_its_end_changes_nothing(
    scenario: Path,
    folder: str,
    when: str,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error("disk full")

    before = everything()
    monkeypatch.setattr(output, "manifest", fail)
    with pytest.raises(error, match="disk full"), OutputFolder(Path(folder), "text") as made:
        if when == "at once":
            fail()
        fill(made)
        if when == "with tables":
            fail()
        made.finish(DOCUMENT)
    assert everything() == before


def test_a_folder_of_pictures_holds_nothing_else(scenario: Path) -> None:
    Path("old/figures").mkdir()
    Path("old/figures/mine.txt").touch()
    with pytest.raises(InputError, match=r"would remove 'old/figures/mine.txt'"):
        check_folder("old", scenario)
    Path("new").mkdir()
    Path("new/figures").touch()
    with pytest.raises(InputError, match="would replace the file 'new/figures'"):
        check_folder("new", scenario)


def test_an_earlier_result_is_replaced_when_the_new_one_is_complete(scenario: Path) -> None:
    Path("old/figures").mkdir()
    Path("old/figures/stale.png").touch()
    with OutputFolder(Path("old"), "text") as made:
        fill(made)
        assert Path("old/summary.json").read_text("utf-8") == "old"
        assert made.finish(DOCUMENT) is None
    assert {path.name for path in Path("old").iterdir()} == {*FILES, "figures"}
    found = {path.name for path in Path("old/figures").iterdir()}
    assert "stale.png" not in found
    assert {"step.svg", "step.png", "memory.svg"} <= found
    assert json.loads(Path("old/summary.json").read_text("utf-8")) == DOCUMENT
    assert Path("old/scenario.yaml").read_text("utf-8") == "text"


def test_parts_of_a_table_make_one_and_runs_follow_one_another(scenario: Path) -> None:
    with OutputFolder(Path("new"), "text") as made:
        fill(made)
        fill(made)
        made.finish(DOCUMENT)
    table = read_parquet(Path("new/steps.parquet"))
    assert table["start_s"].tolist() == [*range(10), *range(10)]
    assert set(table["point"]) == {"model.tp=2"}
    assert read_parquet(Path("new/requests.parquet"))["id"].tolist() == [0, 1, 2, 0, 1, 2]
    assert not len(read_parquet(Path("new/timeline.parquet"))["start_s"])


def test_tables_written_can_be_read_back_run_by_run(scenario: Path) -> None:
    with OutputFolder(Path("new"), "text") as made:
        for count in (3, 0, 2):
            fill(made, count)
        back = list(made.written("requests.parquet"))
        made.finish(DOCUMENT)
    assert [len(run.columns["id"]) for run in back] == [3, 2]
    for run in back:
        assert run[:3] == RUN[:3]
        assert run.stream_names == ("chat",)
        for name, column in requests(len(run.columns["id"])).items():
            assert (run.columns[name] == column).all(), name


def test_the_files_of_a_run_are_no_target_of_a_trace(scenario: Path) -> None:
    for file in ("new/summary.json", "new/deep/../steps.parquet", "./new/manifest.json"):
        with pytest.raises(InputError, match="is one of the files of --out"):
            check_trace(file, scenario, Path("new"))
    assert check_trace("new/t.json", scenario, Path("new")) == Path("new/t.json")
    assert check_trace("summary.json", scenario, None) == Path("summary.json")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "--perfetto: needs a file, got ''"),
        (".", "would replace the folder '.'"),
        ("old", "would replace the folder 'old'"),
        ("scenario.yaml", "would replace the input file 'scenario.yaml'"),
        ("linked/scenario.yaml", "would replace the input file 'linked/scenario.yaml'"),
        ("file/trace.json", "needs a folder, got the file 'file'"),
        ("/dev/null", "would replace the device '/dev/null'"),
        ("n" * 300, "cannot write there: File name too long"),
        ("a\0b", "cannot write there: embedded null byte"),
        ("/proc/trace.json", "cannot write there: "),
    ],
)
def test_a_trace_that_cannot_be_written_is_refused_and_nothing_changes(
    scenario: Path, file: str, message: str
) -> None:
    before = everything()
    with pytest.raises(InputError) as caught:
        check_trace(file, scenario, None)
    assert message in str(caught.value)
    assert everything() == before


@pytest.mark.parametrize("verb", ["run", "sweep", "plan", "audit"])
def test_no_verb_replaces_the_result_of_another(tmp_path: Path, verb: str) -> None:
    for other, marks in MARKS.items():
        folder = tmp_path / other
        folder.mkdir()
        (folder / marks[0]).touch()
        (folder / "report.html").touch()
        told = foreign(folder, verb, ["report.html"])
        taken = f"holds the result of `speccast {other}`; choose another folder"
        assert told == (None if other == verb else taken)


def test_a_page_of_the_users_own_is_not_replaced(scenario: Path) -> None:
    Path("new").mkdir()
    Path("new/report.html").touch()
    with pytest.raises(InputError, match=r"would replace 'new/report.html', which no `speccast"):
        check_folder("new", scenario)
