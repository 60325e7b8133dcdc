"""Published claims: files of them, what the model is asked, and the verdict it comes to."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from models import catalog
from models.strict_yaml import InputError
from sim import verbs
from sim.audit import page, run
from sim.audit.load import load_claims, shipped
from sim.audit.measures import MEASURES
from sim.audit.pictures import pictures
from sim.audit.report import audit_report, measures_report, sentence
from sim.audit.words import banded_text, figure_text, range_text
from tests.audit_claims import SMALL


@pytest.fixture
def audit_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    verb = EntryPoint("audit", "sim.audit.cli:audit", verbs.GROUP)
    monkeypatch.setattr(
        verbs, "entry_points", lambda group, name=None: [verb] if name in (None, "audit") else []
    )


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    path = tmp_path / "claims.yaml"
    path.write_text(SMALL, "utf-8")
    return path


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("claims") / "claims.yaml"
    path.write_text(SMALL, "utf-8")
    return run.audit(load_claims(path))


# An audit from a file


def test_verdicts_follow_from_what_the_scenario_predicts(document: dict[str, Any]) -> None:
    fast, free, undecided = document["claims"]
    assert fast["verdict"]["kind"] == "only_if"
    assert fast["verdict"]["text"].startswith(
        "reproduced only if strategies[1].acceptance.alpha = 0.9"
    )
    assert free["verdict"]["kind"] == "contradicts"
    assert "a head has 1.05 GB of its own" in free["verdict"]["text"]
    assert undecided["verdict"]["text"] == "not decidable: quality, which no clock shows"


def test_the_predictions_are_those_of_a_run(document: dict[str, Any]) -> None:
    high, low = document["claims"][0]["cases"]
    assert high["figures"][0]["value"] > 1.2 > low["figures"][0]["value"]
    assert high["figures"][0]["lo"] < high["figures"][0]["value"] < high["figures"][0]["hi"]


def test_the_report_holds_every_claim_and_figure(document: dict[str, Any]) -> None:
    text = audit_report(document, 100)
    for finding in document["claims"]:
        assert f"{finding['id']}: {finding['claim']}" in text
    assert "3 claims: 1 reproduced only if, 1 contradicts the model, 1 not decidable." in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_same_claims_give_the_same_bytes(document: dict[str, Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        page.write(document, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert [str(path) for path in files] == [
        "audit.json",
        "audit.md",
        "images/audit_fast.svg",
        "images/audit_free.svg",
        "report.html",
    ]
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()
    html = (tmp_path / "one/report.html").read_text("utf-8")
    markdown = (tmp_path / "one/audit.md").read_text("utf-8")
    for finding in document["claims"]:
        assert finding["claim"] in html and finding["claim"] in markdown
    assert html.count("<svg") == 2 and "http://" not in html.replace("http://www.w3.org", "")
    assert json.loads((tmp_path / "one/audit.json").read_text("utf-8")) == document


def test_the_command_prints_the_report_and_writes_the_folder(
    speccast: Any, audit_declared: None, claims: Path, tmp_path: Path
) -> None:
    status, out, err = speccast("audit", claims, "--only", "free", "--out", tmp_path / "found")
    assert status == 0 and "1 claim: 1 contradicts the model." in out
    assert err == f"wrote {tmp_path / 'found'}\n"
    assert (tmp_path / "found/images/audit_free.svg").exists()
    status, out, _ = speccast("audit", claims, "--only", "open", "--json")
    assert json.loads(out)["claims"][0]["id"] == "open"


def test_an_interrupt_keeps_the_claims_that_are_complete(claims: Path) -> None:
    def on_progress(label: str, done: int, total: int) -> None:
        if label.startswith("free"):
            raise KeyboardInterrupt

    with pytest.raises(run.Interrupted) as stopped:
        run.audit(load_claims(claims), on_progress)
    assert [finding["id"] for finding in stopped.value.document["claims"]] == ["fast"]
    assert stopped.value.document["interrupted"] is True


def test_progress_grows_to_the_number_of_cases(claims: Path) -> None:
    seen: list[tuple[int, int]] = []
    run.audit(load_claims(claims), lambda _, done, total: seen.append((done, total)))
    assert seen == sorted(seen) and {total for _, total in seen} == {4 * run.SHARE}


def test_what_memory_cannot_hold_is_not_predicted_and_says_why(claims: Path) -> None:
    asked = "measure: step_s, batch: 1000, context: 100000, strategy: heads"
    claims.write_text(SMALL.replace("measure: speedup, strategy: heads", asked), "utf-8")
    (found,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    assert found["verdict"]["kind"] == "not_decidable"
    assert "beyond max_model_len" in found["verdict"]["text"]


# Bad input


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "message"),
    [
        ("measure: speedup,", "measure: speedups,", 22, "claims[0].tested[0].measure", "speedup"),
        ("strategy: heads,", "strategy: head,", 22, "claims[0].tested[0].strategy", "plain, heads"),
        ("{min: 1.2}", "{min: 2, max: 1}", 22, "claims[0].tested[0].claimed.max", "at least min"),
        ("{min: 1.2}", "{tolerance: 0.1}", 22, "claims[0].tested[0].claimed", "at least one of"),
        ("requests: 8", "request: 8", 7, "scenarios.small.workload.request", "unknown key"),
        ("scenario: small", "scenario: smal", 20, "claims[0].scenario", "did you mean 'small'"),
        ("acceptance.alpha\n", "acceptance.beta\n", 27, "values[0]", "unknown key"),
        ("values: [0.9, 0.05]", "values: [0.9, 2]", 27, "values[1]", "less than or equal to 1"),
        ("id: free", "id: fast", None, "claims", "two claims are called 'fast'"),
        ("{one head}", "{two heads}", 37, "claims[1].because", "no figure of arithmetic"),
        ("has {one head}", "has 1.05 GB", 37, "claims[1].because", "writes a number out"),
        ("    missing: quality, which no clock shows\n", "", None, "claims[2]", "what is missing"),
    ],
)
def test_bad_claims_are_refused_in_one_line(
    claims: Path, old: str, new: str, line: int | None, key: str, message: str
) -> None:
    assert old in SMALL
    claims.write_text(SMALL.replace(old, new, 1), "utf-8")
    with pytest.raises(InputError) as refused:
        load_claims(claims)
    text = str(refused.value)
    place = f"{claims}:{line}: " if line else f"{claims}:"
    assert text.startswith(place) and message in text and "\n" not in text
    assert key in refused.value.key


def test_bad_input_of_the_command_ends_with_status_two(
    speccast: Any, audit_declared: None, claims: Path
) -> None:
    claims.write_text(SMALL.replace("measure: speedup,", "measure: speed,"), "utf-8")
    status, out, err = speccast("audit", claims)
    assert (status, out) == (2, "")
    assert err.startswith(f"{claims}:22: claims[0].tested[0].measure: unknown measure")
    claims.write_text(SMALL, "utf-8")
    status, _, err = speccast("audit", claims, "--only", "fats")
    assert status == 2 and "no claim 'fats'" in err
    status, _, err = speccast("audit", claims, "--out", claims)
    assert status == 2 and "--out: needs a folder" in err


# What is shipped


def test_every_shipped_claim_loads_and_its_scenarios_are_valid() -> None:
    posed = load_claims(shipped())
    assert [one.claim.id for one in posed] == [f"C{n}" for n in range(1, 18)]
    assert all(one.cases for one in posed)


def test_the_memory_of_medusa_heads_is_counted() -> None:
    """Hidden 8,192, vocabulary 128,256: an LM head of 2.10 GB and a block of .134 GB a head."""
    (found,) = run.audit(load_claims(shipped(), ["C10"]))["claims"]
    own, shared = (each["figures"][0]["value"] for each in found["cases"])
    target = catalog.transformer("llama-3.1-70b")
    assert (target.hidden, target.vocab) == (8192, 128_256)
    assert own == 4 * 2 * (8192 * 128_256 + 8192**2) == pytest.approx(8.94e9, rel=1e-3)
    assert shared == 4 * 2 * 8192**2 == pytest.approx(0.537e9, rel=1e-3)


def test_the_page_is_of_the_shipped_claims_and_its_example_loads(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parent.parent / "docs/audit.md").read_text("utf-8")
    for one in load_claims(shipped()):
        assert f"### {one.claim.id}\n" in text and one.claim.claim in text
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    (found,) = run.audit(load_claims(mine))["claims"]
    assert found["verdict"]["kind"] != "not_decidable"
    assert all(f"| `{name}` |" in text for name in MEASURES)


# Words and measures


def test_figures_are_shown_in_the_unit_people_read() -> None:
    assert figure_text(0.05, "%") == "5.00 %"
    assert figure_text(8.94e9, "byte") == "8.94 GB"
    assert figure_text(327_680, "byte") == "0.328 MB"
    assert figure_text(24.0, "blocks") == "24 blocks"
    assert figure_text(0.0123, "s") == "12.3 ms"
    assert figure_text(12.5, "s") == "12.5 s"
    assert range_text({"min": 2.1, "max": 2.8}, "tokens") == "2.10-2.80 tokens"
    assert range_text({"min": None, "max": 0.05}, "%") == "at most 5.00 %"
    band = {"unit": "x", "value": 2.0, "lo": 1.5, "hi": None, "why": None}
    assert banded_text(band) == "2.00 (1.50-?) x"


def test_every_measure_is_listed_with_what_it_means() -> None:
    text = measures_report(100)
    for name, measure in MEASURES.items():
        assert measure.about and name in text


def test_a_figure_of_one_stream_is_that_of_its_requests(claims: Path) -> None:
    one = (
        "        - {name: %s, share: 0.5, prompt_tokens: {kind: fixed, value: %d},\n"
        "           output_tokens: {kind: fixed, value: 20}}\n"
    )
    start, end = SMALL.index("        - prompt_tokens"), SMALL.index("    strategies:")
    text = SMALL[:start] + one % ("short", 100) + one % ("long", 4000) + SMALL[end:]
    asked = "measure: ttft_mean_s, strategy: heads, stream: long, claimed: {max: 1}"
    text = text.replace("measure: speedup, strategy: heads, claimed: {min: 1.2}", asked)
    beside = "short: {measure: ttft_mean_s, stream: short}\n      all: {measure: ttft_mean_s}"
    text = text.replace("a step: {measure: step_s, strategy: plain}", beside)
    claims.write_text(text, "utf-8")
    (found,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    case = found["cases"][0]
    short, every = (case["arithmetic"][name][0]["value"] for name in ("short", "all"))
    assert short < every < case["figures"][0]["value"]
    assert case["figures"][0]["stream"] == "long" and case["figures"][0]["lo"] is None
    for old, new, message in (
        ("stream: long", "stream: longer", "no stream 'longer'; there is short, long"),
        ("measure: ttft_mean_s, strategy", "measure: speedup, strategy", "of all requests only"),
    ):
        claims.write_text(text.replace(old, new), "utf-8")
        with pytest.raises(InputError, match=message):
            load_claims(claims)


def test_launches_are_a_share_of_the_step_they_lengthen() -> None:
    (found,) = run.audit(load_claims(shipped(), ["C12"]))["claims"]
    every_pass, once = found["cases"][0], found["cases"][3]
    assert [case["figures"][0]["value"] for case in (every_pass, once)] == [3, 3]
    plain, drafting = (
        every_pass["arithmetic"][name][0]["value"]
        for name in ("launches of plain decoding", "launches with a draft model")
    )
    assert every_pass["figures"][1]["value"] == pytest.approx(drafting / plain) and drafting > plain
    assert once["figures"][1]["value"] < 1


def test_the_page_tells_the_verdicts_of_today() -> None:
    """Those that need no run; ``make audit`` writes them all."""
    text = (Path(__file__).resolve().parent.parent / "docs/audit.md").read_text("utf-8")
    for finding in run.audit(load_claims(shipped(), ["C3", "C4", "C9", "C10", "C12"]))["claims"]:
        assert f"**{sentence(finding)}**" in text, finding["id"]


def test_a_curve_is_drawn_over_the_batch_for_the_cases_asked() -> None:
    (found,) = run.audit(load_claims(shipped(), ["C3"]))["claims"]
    curves = {case["label"]: case["curve"] for case in found["cases"] if case["curve"]}
    assert list(curves) == [
        f"{layout} at 750 tokens" for layout in ("inline", "copy on write", "contiguous")
    ]
    for dots in curves.values():
        assert [dot["value"] / dots[0]["value"] for dot in dots] == [dot["batch"] for dot in dots]
    assert [picture.name for picture in pictures([found])] == ["c3", "c3_curve"]


def test_an_interrupted_command_reports_what_is_complete(
    speccast: Any, audit_declared: None, claims: Path, monkeypatch: Any, document: dict[str, Any]
) -> None:
    cut = {**document, "claims": document["claims"][:1], "interrupted": True, "asked": 3}

    def stopped(*_: Any) -> None:
        raise run.Interrupted(cut)

    monkeypatch.setattr(run, "audit", stopped)
    status, out, err = speccast("audit", claims, "--out", claims.parent / "found")
    assert status == 130 and "1 claim: 1 reproduced only if." in out
    assert err == "interrupted: 1 of 3 claims\n" and not (claims.parent / "found").exists()


def test_a_figure_holds_at_every_point_it_is_asked_at(claims: Path) -> None:
    grid = "    scenario: small\n    vary: {workload.arrivals.users: [1, 8]}\n"
    text = SMALL.replace("    scenario: small\n", grid, 1)
    claims.write_text(text, "utf-8")
    (found,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    figures = found["cases"][0]["figures"]
    assert [figure["point"] for figure in figures] == [
        {"workload.arrivals.users": users} for users in (1, 8)
    ]
    assert found["cases"][0]["agrees"] is all(figure["agrees"] for figure in figures)
    at = "strategy: heads, at: {workload.arrivals.users: 8}"
    claims.write_text(text.replace("strategy: heads", at), "utf-8")
    (only,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    assert only["cases"][0]["figures"] == figures[1:]
    claims.write_text(text.replace("strategy: heads", at.replace("8", "9")), "utf-8")
    with pytest.raises(InputError, match="no point of the scenario has these values"):
        load_claims(claims)


def test_a_ratio_of_two_strategies_is_the_ratio_of_their_figures(claims: Path) -> None:
    asked = "measure: tpot_mean_s, strategy: heads, over: plain, claimed: {max: 1}"
    beside = "a step: {measure: tpot_mean_s, strategy: plain}\n      b: {measure: tpot_mean_s}"
    text = SMALL.replace("measure: speedup, strategy: heads, claimed: {min: 1.2}", asked)
    claims.write_text(text.replace("a step: {measure: step_s, strategy: plain}", beside), "utf-8")
    (found,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    plain, heads = (found["cases"][0]["arithmetic"][name][0]["value"] for name in ("a step", "b"))
    figure = found["cases"][0]["figures"][0]
    assert figure["value"] == pytest.approx(heads / plain) and figure["unit"] == "x"
    assert figure["lo"] is figure["hi"] is None


def test_a_scenario_may_be_a_file_beside_the_claims(claims: Path) -> None:
    scenario = "".join(line[4:] + "\n" for line in SMALL.splitlines()[2:14])
    (claims.parent / "mine.yaml").write_text(scenario, "utf-8")
    claims.write_text(SMALL.replace("scenario: small", "scenario: mine.yaml"), "utf-8")
    assert [one.claim.id for one in load_claims(claims)] == ["fast", "free", "open"]
    (claims.parent / "mine.yaml").write_text(scenario.replace("users: 1", "users: 0"), "utf-8")
    with pytest.raises(InputError) as refused:
        load_claims(claims)
    assert str(refused.value).startswith(f"{claims.parent / 'mine.yaml'}:4: workload.arrivals")


def test_the_stated_value_makes_the_prediction(claims: Path) -> None:
    claims.write_text(SMALL.replace("[0.9, 0.05]", "[0.9, 0.05]\n      stated: 0.05"), "utf-8")
    (found,) = run.audit(load_claims(claims, ["fast"]))["claims"]
    assert found["stated"] == 1
    shown = audit_report({"claims": [found]}, 100)
    assert banded_text(found["cases"][1]["figures"][0]) in shown
    assert banded_text(found["cases"][0]["figures"][0]) not in shown
