"""The table schemas and their Parquet files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import requests

from sim import tables
from sim.tables import REQUESTS, STATUS_NAMES, STEPS, TIMELINE, ParquetFile, RunTable, Status


def run_table(n: int = 4) -> RunTable:
    table = requests(n, status=np.arange(n) % len(Status), stream=np.arange(n) % 2)
    names = ("chat", "sql"), ("prose",)
    return RunTable({"model.tp": 4, "workload.requests": n}, "eagle3", 2, table, *names)


@pytest.mark.parametrize(
    "schema", [REQUESTS, STEPS, TIMELINE, tables.ACCEPTANCE, tables.MODES, tables.SWITCHES]
)
def test_every_column_says_what_it_holds(schema):
    for field in schema:
        assert field.metadata[b"about"]
        assert field.name.endswith("_s") == (field.metadata[b"unit"] == b"s")


def test_the_names_of_the_contract_are_there():
    assert {"id", "arrival_s", "first_token_s", "n_steps", "accepted"} <= set(REQUESTS.names)
    assert {"start_s", "draft_s", "verify_tokens", "blocks_used"} <= set(STEPS.names)
    assert STATUS_NAMES == ("finished", "rejected", "unfinished", "timed_out", "failed")


def test_a_table_survives_the_file(tmp_path):
    path = tmp_path / "requests.parquet"
    tables.write_parquet(tables.run_to_arrow(REQUESTS, run_table()), path)
    back = tables.read_parquet(path)
    assert back["status"].tolist() == [0, 1, 2, 3]
    assert back["stream"].tolist() == ["chat", "sql", "chat", "sql"]
    assert set(back["domain"]) == {"prose"}
    assert set(back["strategy"]) == {"eagle3"}
    assert set(back["point"]) == {"model.tp=4 workload.requests=4"}
    assert set(back["replication"]) == {2}
    assert back["finish_s"].tolist() == run_table().columns["finish_s"].tolist()


def test_same_data_same_bytes(tmp_path):
    for name in ("a", "b"):
        with ParquetFile(tmp_path / name, REQUESTS) as file:
            for _ in range(2):
                file.write(tables.run_to_arrow(REQUESTS, run_table()))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failure_leaves_no_file(tmp_path):
    with (
        pytest.raises(RuntimeError, match="interrupted"),
        ParquetFile(tmp_path / "r", REQUESTS) as file,
    ):
        file.write(tables.run_to_arrow(REQUESTS, run_table()))
        raise RuntimeError("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_the_file_appears_only_when_complete(tmp_path):
    path = tmp_path / "r"
    with ParquetFile(path, REQUESTS) as file:
        file.write(tables.run_to_arrow(REQUESTS, run_table()))
        assert not path.exists()
    assert path.exists()


def test_a_missing_column_is_named():
    run = run_table()
    del run.columns["n_steps"]
    with pytest.raises(KeyError, match="n_steps"):
        tables.run_to_arrow(REQUESTS, run)


def test_an_empty_table_is_a_table():
    table = tables.run_to_arrow(REQUESTS, run_table(0))
    assert table.num_rows == 0
    assert tables.to_columns(table)["status"].tolist() == []
    assert isinstance(table, pa.Table)


def test_status_codes_match_their_names():
    assert [Status[name.upper()] for name in STATUS_NAMES] == list(Status)


def test_a_table_is_one_row_group_however_long_it_is(tmp_path):
    """Runs are read back by the number of theirs."""
    path, schema = tmp_path / "long.parquet", pa.schema([REQUESTS.field("id")])
    with ParquetFile(path, schema) as file:
        for rows in (2_000_000, 0, 3):
            file.write(tables.to_arrow(schema, {"id": np.zeros(rows, dtype=np.int64)}))
    parquet = pq.ParquetFile(path).metadata
    groups = range(parquet.num_row_groups)
    assert [parquet.row_group(group).num_rows for group in groups] == [2_000_000, 0, 3]
