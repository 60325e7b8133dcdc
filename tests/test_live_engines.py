"""Which engine entry speaks for a server, and how large its KV cache is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_recordings import EAGLE, PLAIN, about, observation

from calibration.live.fit.deployed import Deployed
from calibration.live.fit.engines import engine_for
from calibration.live.recording import Observation
from models.schema import ModelError
from models.strategies import fixed_types
from sim.scenario.build import build

CPU = str(Path(__file__).parent / "measured" / "decoding" / "cpu.yaml")


def server(engine: str, version: str | None, **info: str) -> Observation:
    said = {"engine": engine, "version": version, "info": info}
    return observation([], [])._replace(about=about(PLAIN) | {"server": said})


@pytest.mark.parametrize(
    ("engine", "version", "hardware", "entry"),
    [
        ("sglang", "0.5.23", "h100_sxm", "sglang_0.5.23"),
        ("sglang", "0.5.24.post1", "h100_sxm", "sglang_0.5.23"),
        ("sglang", "0.5.7", "h100_sxm", "sglang_0.5"),
        ("vllm", "0.32.0", "h100_sxm", "vllm_0.32"),
        ("vllm", "0.32.1rc1", CPU, "vllm_cpu_0.32"),
        ("vllm", "0.16.0", "h100_sxm", "vllm_0.15"),
        ("vllm", "0.25.1", "h100_sxm", "vllm_0.24"),
        ("sglang", "0.5.23", CPU, "sglang_0.5.23"),
        ("vllm", "0.32.0", "h100_sxm_trtllm", "vllm_0.32"),
        ("vllm", "0.32.0", "no_such", "vllm_0.32"),
    ],
)
def test_an_entry_is_found_by_version_and_device(engine, version, hardware, entry):
    assert engine_for(server(engine, version), hardware) == entry


@pytest.mark.parametrize(
    ("engine", "version", "hardware", "said"),
    [
        ("unknown", None, "h100_sxm", "must be given, the server did not say what it is; for exa"),
        ("vllm", None, "h100_sxm", "the server is vllm, and did not say of which version: choose"),
        ("vllm", "0.34.0", "h100_sxm", "there is no entry for vllm 0.34.0: choose the nearest of "),
        ("vllm", "0.31.0", CPU, "there is no entry for vllm 0.31.0: choose the nearest of vllm_cp"),
        ("llama.cpp", "b6123", "h100_sxm", "there is no entry for llama.cpp b6123: choose the nea"),
        (
            *("tensorrt-llm", "1.2.0", "h100_sxm"),
            "there is no entry for tensorrt-llm 1.2.0: choose the nearest of tensorrt_llm, tensorr",
        ),
    ],
)
def test_what_has_no_entry_is_refused_with_the_nearest(engine, version, hardware, said):
    with pytest.raises(ModelError) as error:
        engine_for(server(engine, version), hardware)
    assert error.value.key == "--engine"
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("strategies", [PLAIN, EAGLE])
def test_the_kv_cache_is_that_of_the_server_beside_its_drafts(strategies):
    (block,) = strategies.values()
    seen = server("vllm", "0.32.0", num_gpu_blocks="20000", block_size="16")
    seen = seen._replace(about=seen.about | {"strategies": strategies})
    told = Deployed("h100_sxm", "llama-3.1-8b").with_kv_cache(seen)
    assert told.note == ""
    strategy = fixed_types()[block["kind"]].model_validate(block)
    budget = build(told.scenario([{"kind": "autoregressive"}])).kv_budget(strategy)
    assert budget.n_blocks == pytest.approx(20000, rel=0.005)
    stated = Deployed("h100_sxm", "llama-3.1-8b").with_kv_cache(server_of(seen), block)
    assert stated == told


def server_of(seen: Observation) -> Observation:
    """The same, said to be plain decoding."""
    return seen._replace(about=seen.about | {"strategies": PLAIN})


def test_a_kv_cache_that_does_not_fit_is_said():
    seen = server("vllm", "0.32.0", num_gpu_blocks="90000", block_size="16")
    told = Deployed("h100_sxm", "llama-3.1-8b").with_kv_cache(seen)
    assert told.gpu_memory_utilization is None
    assert told.note.startswith("The KV cache of 1440000 tokens the server tells of does not fit")
