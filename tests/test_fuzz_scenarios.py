"""Fuzzing of scenario files: whatever is asked, it is served to the end or refused in one line.

``SPECCAST_FUZZ=5000`` in the environment tries that many cases a test, new ones every time.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

import numpy as np
import yaml
from any_scenario import at, places, put, small_scenarios, whole_scenarios
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from models.schema import ModelError
from models.strict_yaml import Document, InputError, load_yaml
from sim import experiment
from sim.output import to_json
from sim.scenario.dump import resolved_yaml, to_yaml
from sim.scenario.load import ScenarioFile, parse_scenario
from sim.scenario.workload import generate
from sim.tables import Status

CASES = int(os.environ.get("SPECCAST_FUZZ", "0"))


def fuzz(cases: int) -> settings:
    """The same cases in every run of the suite."""
    return settings(
        max_examples=CASES or cases,
        deadline=None,
        derandomize=not CASES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def loaded(document: Document) -> ScenarioFile | None:
    """The scenario file; None where it was refused as bad input should be."""
    try:
        return parse_scenario(document)
    except InputError as error:
        check_refusal(error)
        return None


def check_refusal(error: InputError | ModelError) -> None:
    """One printable line that says what is wrong and where."""
    text = str(error)
    assert text.isprintable(), text
    assert len(text) < 3000
    message = error.message if isinstance(error, InputError) else text
    assert re.search(r"\w", message), error
    assert error.key or getattr(error, "line", None) is not None, error
    for mark in ("pydantic", "Traceback", "validation error", "NoneType", "object at 0x"):
        assert mark not in text


def again(file: ScenarioFile) -> ScenarioFile:
    return parse_scenario(load_yaml(resolved_yaml(file.resolved), "resolved.yaml"))


def check_accepted(file: ScenarioFile) -> None:
    """Written out, it is the same scenario."""
    back = again(file)
    assert [point.scenario for point in back.points] == [p.scenario for p in file.points]
    assert [point.values for point in back.points] == [p.values for p in file.points]


@fuzz(100)
@given(whole_scenarios())
def test_what_fits_the_schema_loads_and_survives_a_file_or_is_refused(data: dict[str, Any]) -> None:
    file = loaded(Document(data, "what-if.yaml", {"": 1}))
    event(f"accepted: {file is not None}")
    if file is not None:
        check_accepted(file)
        check_accepted(parse_scenario(load_yaml(to_yaml(data), "what-if.yaml")))


# Runs


def check_numbers(value: Any, where: str = "") -> None:
    """No number of a result is infinite or not a number."""
    if isinstance(value, dict):
        for key, part in value.items():
            check_numbers(part, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for part in value:
            check_numbers(part, where)
    elif isinstance(value, float):
        assert math.isfinite(value), where


def check_result(result: experiment.Result) -> None:
    """Requests are conserved in rows and tables, and what happens to one happens in order."""
    check_numbers(result.document)
    assert to_json(result.document)
    for row in result.document["rows"]:
        tables = [
            table.columns
            for table in result.requests
            if (table.strategy, table.point) == (row["strategy"], row["point"])
        ]
        counts = sum((np.bincount(t["status"], minlength=len(Status)) for t in tables), 0)
        for status in Status:
            assert row[status.name.lower()] == counts[status]
        assert sum(counts) == sum(len(table["id"]) for table in tables)
        for table in tables:
            done = table["status"] == Status.FINISHED
            events = ("arrival_s", "schedule_s", "first_token_s", "finish_s")
            times = np.array([table[name][done] for name in events])
            assert np.isfinite(times).all()
            assert (np.diff(times, axis=0) >= -1e-9 * np.abs(times[1:])).all()


def is_small(file: ScenarioFile) -> bool:
    """Whether it runs in a fraction of a second."""
    scenario = file.points[0].scenario
    requests = generate(scenario.workload, scenario.run.seed)
    most = requests.output_tokens.max() < 2000 and requests.prompt_tokens.max() < 200_000
    return len(file.points) == 1 and bool(most)


@fuzz(60)
@given(small_scenarios())
def test_what_is_accepted_runs_to_the_end(data: dict[str, Any]) -> None:
    file = loaded(Document(data, "what-if.yaml", {"": 1}))
    assume(file is not None)
    assert file is not None
    try:
        assume(is_small(file))
        result = experiment.run(file)
    except ModelError as error:
        event(f"refused: {error}")
        check_refusal(error)
        return
    event(f"ran: {data['workload']['arrivals']['kind']}")
    check_result(result)


# Hostile values


HUGE = 10**400
NASTY_TEXT = [
    "",
    " ",
    "\0",
    "\n",
    "a\nb: 1",
    "\x1b[31m",
    "\u202e",
    "\ud800",
    "é" * 5000,
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "/dev/zero",
    "{{ 7 * 7 }}",
    "%s%n",
    "NaN",
    "1e9",
    "__class__",
    "all",
    "auto",
]
NUMBERS = [-1, 0, 1, 2**31, 2**63, 2**70, HUGE, -HUGE, 1e300, -1e300, 5e-324, -0.0, 0.1, 1e-9]
FLOATS = [math.nan, math.inf, -math.inf]
DEEP: list[Any] = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
SHAPES = [None, True, False, [], {}, [[]], [None], {"a": 1}, {"": {}}, {"kind": "fixed"}, DEEP]
HOSTILE = st.one_of(*map(st.sampled_from, (NASTY_TEXT, NUMBERS, FLOATS, SHAPES)))
KEYS = st.one_of(
    st.sampled_from(["kind", "value", "mean", "requests", "k", "x" * 500, "0", "[0]", "a.b", "é"]),
    st.sampled_from(NASTY_TEXT),
)


@st.composite
def corrupted(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with a few parts replaced, moved, removed, renamed or added."""
    data = draw(whole_scenarios())
    for _ in range(draw(st.integers(1, 3))):
        if not isinstance(data, dict):
            break
        place = draw(st.sampled_from(places(data)))
        value = at(data, place)
        change = draw(st.sampled_from(["replace", "move", "wrap", "remove", "rename", "add"]))
        if change == "replace":
            value = draw(HOSTILE)
        elif change == "move":
            value = at(data, draw(st.sampled_from(places(data))))
        elif change == "wrap":
            value = draw(st.sampled_from([[value], {"kind": value}, [value, value]]))
        elif isinstance(value, dict):
            names = list(value)
            if change == "add" or not names:
                value = {**value, draw(KEYS): draw(HOSTILE)}
            else:
                name = draw(st.sampled_from(names))
                kept = {key: part for key, part in value.items() if key != name}
                value = kept if change == "remove" else {**kept, draw(KEYS): value[name]}
        elif isinstance(value, list):
            value = value[1:] if change == "remove" else [*value, draw(HOSTILE)]
        data = put(data, place, value)
    return data


@fuzz(150)
@given(corrupted())
def test_hostile_values_are_refused_or_meant(data: Any) -> None:
    file = loaded(Document(data, "what-if.yaml", {"": 1}))
    event(f"accepted: {file is not None}")
    if file is not None:
        check_accepted(file)


@fuzz(40)
@given(corrupted())
def test_hostile_values_are_refused_in_a_file_as_well(data: Any) -> None:
    text = yaml.safe_dump(data, allow_unicode=True)
    try:
        document = load_yaml(text, "what-if.yaml")
    except InputError as error:
        check_refusal(error)
        return
    file = loaded(document)
    if file is not None:
        check_accepted(file)


# Text


TOKENS = ["&a ", "*a", "!!int ", "!x ", "<<: ", "? ", "- ", ": ", "---\n", "...\n", "%YAML 1.1\n"]
TOKENS += [
    "#",
    "|\n",
    ">\n",
    '"',
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\t",
    "\r",
    "\0",
    "\ufeff",
    "\ud800",
]
TOKENS += [".nan", "-.inf", "1e999", "0x1F", "0o17", "1_000", "no", "~", "\u2028", "é"]


@st.composite
def mutilated(draw: st.DrawFn) -> str:
    """The text of a scenario file with lines doubled, lost or moved and odd characters put in."""
    flow = draw(st.sampled_from([None, True, False]))
    data = draw(whole_scenarios())
    lines = yaml.safe_dump(data, default_flow_style=flow, sort_keys=False).splitlines(True)
    for _ in range(draw(st.integers(1, 3))):
        line = draw(st.integers(0, len(lines) - 1))
        other = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(["double", "lose", "swap", "indent", "put", "cut"]))
        if change == "double":
            lines.insert(other, lines[line])
        elif change == "lose" and len(lines) > 1:
            del lines[line]
        elif change == "swap":
            lines[line], lines[other] = lines[other], lines[line]
        elif change == "indent":
            lines[line] = " " * draw(st.integers(1, 4)) + lines[line].lstrip(" ")
        else:
            where = draw(st.integers(0, len(lines[line])))
            much = draw(st.integers(0, 9)) if change == "cut" else 0
            odd = draw(st.sampled_from(TOKENS)) if change == "put" else ""
            lines[line] = lines[line][:where] + odd + lines[line][where + much :]
    return "".join(lines)


@fuzz(150)
@given(mutilated())
def test_any_text_loads_or_is_refused(text: str) -> None:
    try:
        document = load_yaml(text, "what-if.yaml")
    except InputError as error:
        if error.message != "is empty":
            check_refusal(error)
        return
    file = loaded(document)
    event(f"accepted: {file is not None}")
    if file is not None:
        check_accepted(file)
