"""Timed kernels in CSV files: Vidur's profiling runs, and tables with our own columns."""

from __future__ import annotations

import pytest

from calibration.kernels import plain, rows, vidur
from calibration.kernels.input_columns import read_table
from models.strict_yaml import InputError

MLP = """\
time_stats.attn_pre_proj.median,time_stats.mlp_up_proj.median,time_stats.mlp_down_proj.median,\
time_stats.attn_post_proj.median,time_stats.input_layernorm.median,time_stats.mlp_act.median,\
time_stats.attn_rope.median,time_stats.add.median,time_stats.post_attention_layernorm.median,\
n_head,n_kv_head,n_embd,n_expanded_embd,vocab_size,use_gated_mlp,num_tokens,\
num_tensor_parallel_workers
0.1,0.2,0.3,0.4,0.01,0.02,0.03,0.04,,32,8,4096,14336,32000,True,16,2
0.1,0.2,0.3,0.4,0.01,0.02,0.03,0.04,,32,8,4096,14336,32000,False,16,2
"""

ATTENTION = """\
time_stats.attn_prefill.median,time_stats.attn_decode.median,n_embd,n_q_head,n_kv_head,\
num_tensor_parallel_workers,batch_size,prefill_chunk_size,kv_cache_size,is_prefill
0.5,,4096,32,8,2,1,512,1024,True
,0.25,4096,32,8,2,64,0,2048,False
"""

ALL_REDUCE = """\
,time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node
0,0.02,0,8,2048,all_reduce,8
1,0.09,1,8,2048,all_reduce,8
2,0.50,0,8,2048,all_reduce,4
3,0.70,0,2,2048,send_recv,8
"""

PLAIN = """\
operation,kernel,dtype,m,n,k,time_us,version
gemm,cublas,bf16,16,4096,4096,12.5,0.20

elementwise,rms_norm,bf16,16,4096,,2.5,0.20
gemm,cublas,bf16,32,4096,4096,13,0.20
"""


def read_vidur(folder, text):
    path = folder / "times.csv"
    path.write_text(text)
    return vidur.read(path, "h100_sxm")


def read_plain(folder, text):
    path = folder / "mine.csv"
    path.write_text(text)
    return plain.read(path)


def test_vidur_matrices_are_those_of_one_gpu(tmp_path):
    timed = read_vidur(tmp_path, MLP)
    gemm = timed[timed["operation"] == "gemm"]
    # 16 of 32 query heads, 4 of 8 KV heads twice, each 128 wide; half of 14336, twice if gated
    assert gemm[["m", "n", "k", "time_s"]].to_numpy().tolist() == [
        [16, 3072, 4096, pytest.approx(1e-4)],
        [16, 3072, 4096, pytest.approx(1e-4)],
        [16, 4096, 2048, pytest.approx(4e-4)],
        [16, 4096, 2048, pytest.approx(4e-4)],
        [16, 14336, 4096, pytest.approx(2e-4)],
        [16, 7168, 4096, pytest.approx(2e-4)],
        [16, 4096, 7168, pytest.approx(3e-4)],
        [16, 4096, 7168, pytest.approx(3e-4)],
    ]
    assert set(timed["device"]) == {"h100_sxm"} and set(timed["dtype"]) == {"bf16"}


def test_vidur_small_kernels_have_their_widths_and_those_not_timed_no_row(tmp_path):
    timed = read_vidur(tmp_path, MLP).drop_duplicates(["kernel", "n"])
    small = timed[timed["operation"] == "elementwise"].set_index("kernel")["n"].to_dict()
    assert small == {"rms_norm": 4096, "rotary": 2560, "silu_mul": 7168, "residual_add": 4096}


def test_vidur_decode_reads_its_cache_and_prefill_goes_on_from_it(tmp_path):
    shape = ["batch", "query_tokens", "context_tokens", "heads", "kv_heads", "head_dim", "time_s"]
    assert read_vidur(tmp_path, ATTENTION)[shape].to_numpy().tolist() == [
        [1, 512, 1024, 16, 4, 128, 0.0005],
        [64, 1, 2048, 16, 4, 128, 0.00025],
    ]


def test_vidur_collectives_are_the_first_rank_of_one_node(tmp_path):
    timed = read_vidur(tmp_path, ALL_REDUCE)
    assert timed[["kernel", "gpus", "message_bytes", "time_s"]].to_numpy().tolist() == [
        ["nccl", 8, 2048, pytest.approx(2e-5)]
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "is none of Vidur's tables: no column time_stats.mlp_up_proj.median"),
        (MLP.replace("n_head", "heads"), "columns missing: n_head; there are time_stats"),
        (ATTENTION.replace("0.25", "-1"), r"times.csv:3: time_stats.attn_decode.median: must be"),
        (ATTENTION.replace("2048", "long"), r"times.csv:3: kv_cache_size: .* got 'long'"),
        (ALL_REDUCE + "4,0.1,0,2\n", r"times.csv:6: collective: must be the name .* got nothing"),
    ],
)
def test_vidur_files_that_cannot_be_are_refused_by_line_and_column(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_vidur(tmp_path, text)


def test_a_plain_table_keeps_its_order_and_has_its_work_filled_in(tmp_path):
    timed = read_plain(tmp_path, PLAIN)
    assert timed["operation"].tolist() == ["gemm", "elementwise", "gemm"]
    assert timed["time_s"].tolist() == pytest.approx([12.5e-6, 2.5e-6, 13e-6])
    assert timed["flops"].tolist() == [2 * 16 * 4096**2, 0, 2 * 32 * 4096**2]
    assert timed["bytes"].tolist()[1] == 4 * 16 * 4096
    assert set(timed["version"]) == {"0.20"}
    assert set(timed["source"]) == {str(tmp_path / "mine.csv")}


@pytest.mark.parametrize(("unit", "factor"), [("time_s", 1), ("time_ms", 1e-3), ("time_us", 1e-6)])
def test_times_may_be_given_in_three_units(tmp_path, unit, factor):
    timed = read_plain(tmp_path, PLAIN.replace("time_us", unit))
    assert timed["time_s"].tolist() == pytest.approx([12.5 * factor, 2.5 * factor, 13 * factor])


def test_a_table_written_by_us_is_a_plain_table(tmp_path):
    timed = read_plain(tmp_path, PLAIN)
    rows.write(timed.assign(flag=["", "noisy", ""]), tmp_path / "ours.parquet")
    again = plain.read(tmp_path / "ours.parquet")
    assert again.equals(timed.assign(flag=["", "noisy", ""]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kernel", "kernal", r"mine.csv:1: kernal: unknown column; did you mean 'kernel'\?"),
        ("kernel", "colour", r"mine.csv:1: colour: unknown column; known are operation, kernel"),
        ("time_us", "time_ns", r"mine.csv:1: time_ns: unknown column; did you mean 'time_"),
        ("time_us,version", "time_us,time_s", r"needs one of .*, got time_s and time_us"),
        ("time_us,", "spread,", r"mine.csv:1: needs one of time_s, time_ms, time_us, got none"),
        ("operation", "source", r"mine.csv: columns missing: operation"),
        ("gemm,cublas,bf16,32", "gem,cublas,bf16,32", r"mine.csv:5: operation: .* got 'gem'"),
        ("bf16,32", "fp7,32", r"mine.csv:5: dtype: must be one of bf16, .* got 'fp7'"),
        ("16,32", "16,0", r"mine.csv:5: m: must be above 0 for gemm, got 0"),
        ("16,32", "16,", r"mine.csv:5: m: must be above 0 for gemm, got nothing"),
        ("16,32", "16,3.5", r"mine.csv:5: m: must be a whole number, got 3.5"),
        ("12.5", "-12.5", r"mine.csv:2: time_us: must be a number >= 0, got -12.5"),
        ("12.5", "fast", r"mine.csv:2: time_us: must be a number >= 0, got 'fast'"),
        ("rms_norm", "soft", r"mine.csv:4: kernel: must be one of static_fp8_quant,.* got 'soft'"),
        ("4096,13,0.20", "4096,13,0.20,7", r"mine.csv: cannot be read as CSV: .*line 5"),
    ],
)
def test_a_plain_table_is_refused_by_line_and_column(tmp_path, old, new, message):
    assert old in PLAIN
    with pytest.raises(InputError, match=message) as refused:
        read_plain(tmp_path, PLAIN.replace(old, new))
    assert "\n" not in str(refused.value)


def test_attention_needs_a_known_cache_type_and_mask(tmp_path):
    head = "operation,dtype,kv_dtype,batch,query_tokens,context_tokens,heads,kv_heads,head_dim,"
    row = "attention,bf16,fp8,2,8,100,32,8,128,"
    timed = read_plain(tmp_path, f"{head}mask,time_ms\n{row}tree,1\n{row},1\n")
    assert timed["mask"].tolist() == ["tree", "causal"]
    with pytest.raises(InputError, match=r"mine.csv:2: mask: must be one of causal, tree"):
        read_plain(tmp_path, f"{head}mask,time_ms\n{row}full,1\n")
    with pytest.raises(InputError, match=r"mine.csv:2: kv_dtype: must be one of bf16, fp8"):
        read_plain(tmp_path, f"{head}time_ms\n{row.replace('fp8', 'fp9')}1\n")


def test_files_that_are_no_tables_are_refused_in_one_line(tmp_path):
    path = tmp_path / "a.csv"
    for content, message in [
        (b"", "cannot be read as CSV: No columns"),
        (b"operation,time_s\n", "has no rows"),
        (b"\xff\xfe\x00a,b\n1,2", "cannot be read as CSV"),
    ]:
        path.write_bytes(content)
        with pytest.raises(InputError, match=message) as refused:
            plain.read(path)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="no such file"):
        plain.read(tmp_path / "none.csv")
    with pytest.raises(InputError, match="cannot be read as CSV: Is a directory"):
        plain.read(tmp_path)


def test_lines_are_counted_over_empty_ones(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n\n1,2\n\n\n3,4\n\n")
    assert read_table(path).index.tolist() == [3, 6]
