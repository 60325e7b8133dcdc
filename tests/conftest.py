"""Fixtures of several files: the command line, and a calibration that went well."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from timed_rows import enough_to_fit

from calibration.kernels import command, output
from sim import cli, verbs


@pytest.fixture
def speccast(capsys):
    """Run the command line in this process: status, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def calibrate_declared(monkeypatch):
    """The verb as an installed package declares it."""
    verb = EntryPoint("calibrate", "calibration.cli:app", verbs.GROUP)

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        return [verb] if group == verbs.GROUP and name in (None, verb.name) else []

    monkeypatch.setattr(verbs, "entry_points", found)


@pytest.fixture(scope="session")
def timings(tmp_path_factory) -> Path:
    """A CSV of our own columns, one row of it far too slow."""
    timed = enough_to_fit()
    timed.loc[5, "time_s"] *= 20
    path = tmp_path_factory.mktemp("timed") / "timed.csv"
    filled = timed.drop(columns=["flag", "source", "spread"])
    filled.loc[:, (filled != 0).any()].to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def fitted(timings, tmp_path_factory) -> Path:
    """A profile fitted to it, its rows beside it."""
    path = tmp_path_factory.mktemp("fitted") / "mine.yaml"
    found = command.fit(command.Source(None, None, (timings,), "h100_sxm"), path, "2026-11-29")
    output.write(found.profile, found.rows, path)
    return path
