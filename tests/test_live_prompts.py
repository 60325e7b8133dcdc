"""What is sent: prompts of files and traces, and a first line no other request has."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.live.observe import prompts, schedule
from calibration.live.observe.prompts import Prompt, first_line
from models.strict_yaml import InputError


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_the_shipped_prompts_take_turns_between_kinds_of_text():
    shipped = prompts.read(None)
    assert len(shipped) == 30
    assert len({one.text for one in shipped.listed}) == 30
    assert len({shipped.of(number).domain for number in range(5)}) == 5
    assert shipped.of(30) == shipped.of(0)


def test_a_file_of_lines_or_of_objects(tmp_path):
    lines = prompts.read(written(tmp_path, "a.txt", "one\n\n two \n"))
    assert lines.listed == (Prompt("one"), Prompt("two"))
    chat = '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}'
    text = f'{{"prompt": "p", "domain": "code", "max_tokens": 9}}\n{chat}\n'
    found = prompts.read(written(tmp_path, "a.jsonl", text))
    assert found.listed[0] == Prompt("p", domain="code", max_tokens=9)
    assert found.of(1).chat("[x]\n")[0] == {"role": "system", "content": "[x]\ns"}
    assert found.of(0).chat() == [{"role": "user", "content": "p"}]
    with pytest.raises(InputError, match="only --api chat takes"):
        prompts.check_api(found, "completions")
    assert lines.digest != found.digest


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"}\n{"text"', "a.jsonl:2: is not JSON"),
        ("[1]", "a.jsonl:1: must be an object"),
        ('{"text": "a", "txt": 1}', "a.jsonl:1: txt: is no key of a prompt"),
        ('{"domain": "a"}', "a.jsonl:1: needs one of text, prompt and messages, got none"),
        ('{"text": "a", "prompt": "b"}', "got text and prompt"),
        ('{"text": " "}', "text: must be a text that is not empty"),
        ('{"text": "a", "max_tokens": 0}', "max_tokens: must be a count from 1, got 0"),
        ('{"text": "a", "domain": "a b"}', "domain: must be a name"),
        ('{"messages": [{"role": "user"}]}', "messages: must be a list of messages"),
        ("", "holds no prompts"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match="jsonl") as caught:
        prompts.read(written(tmp_path, "a.jsonl", line))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "arrival_s,prompt_tokens,output_tokens\n0,100,7\n1,9,2\n"),
        (
            "a.jsonl",
            '{"timestamp": 0, "input_length": 100, "output_length": 7}\n'
            '{"timestamp": 1000, "input_length": 9, "output_length": 2}\n',
        ),
    ],
)
def test_a_trace_gives_lengths_and_words_of_its_own(tmp_path, name, text):
    found = prompts.read(written(tmp_path, name, text), seed=1)
    one, other = found.of(0), found.of(1)
    assert (len(one.text.split()), one.max_tokens) == (92, 7)
    assert (len(other.text.split()), other.max_tokens) == (1, 2)
    assert found.of(2) == one, "the same words whenever it is asked for"
    assert prompts.read(tmp_path / name, seed=2).of(0) != one


def test_first_lines_differ_between_all_requests_and_stay_the_same():
    lines = {
        first_line(seed, stage, repeat, number)
        for seed in (0, 1)
        for stage in ("concurrency=1", "concurrency=2")
        for repeat in range(3)
        for number in range(50)
    }
    assert len(lines) == 600
    assert first_line(0, "a", 1) == first_line(0, "a", 1)
    assert all(len(line) == 13 and line.endswith("]\n") for line in lines)


def test_stages_go_repeat_by_repeat_and_grow_with_their_users():
    asked = schedule.Asked(concurrency=[1, 16], repeats=2)
    planned = schedule.stages(asked)
    assert [one.key for one in planned] == [
        ("concurrency=1", 0),
        ("concurrency=16", 0),
        ("concurrency=1", 1),
        ("concurrency=16", 1),
    ]
    assert [(one.requests, one.warm_up) for one in planned[:2]] == [(16, 1), (48, 16)]


def test_poisson_times_scale_with_the_rate_and_differ_between_repeats():
    asked = schedule.Asked(rates_per_s=[1.0, 4.0], requests=2000, repeats=2)
    slow, fast, again, _ = (one.due_s for one in schedule.stages(asked))
    assert slow is not None and fast is not None and again is not None
    assert slow == pytest.approx(4 * fast)
    assert slow[-1] / 2000 == pytest.approx(1, abs=0.1)
    assert (slow != again).all()
    with pytest.raises(InputError, match="1001 requests, warm-up included"):
        schedule.check_size(1001, agreed=False)
    schedule.check_size(1001, agreed=True)
    schedule.check_size(1000, agreed=False)


def test_the_line_goes_before_a_content_of_parts():
    text, picture = {"type": "text", "text": "u"}, {"type": "image_url", "image_url": {"url": "x"}}
    marked = {"type": "text", "text": "[x]\n"}
    for content, sent in (
        ([text, picture], [{"type": "text", "text": "[x]\nu"}, picture]),
        ([picture, text], [marked, picture, text]),
    ):
        prompt = Prompt("", ({"role": "user", "content": content},))
        assert prompt.chat("[x]\n") == [{"role": "user", "content": sent}]
        assert prompt.chat() == [{"role": "user", "content": content}], "as it was without a line"
    none = Prompt("", ({"role": "assistant", "content": None}, {"role": "user", "content": "u"}))
    assert [one["content"] for one in none.chat("[x]\n")] == [None, "[x]\nu"]


def test_files_beyond_a_megabyte_are_read(tmp_path, monkeypatch):
    lines = prompts.read(written(tmp_path, "a.txt", f"{'word ' * 50}\n" * 5000))
    assert len(lines) == 5000
    request = '{"timestamp": 0, "input_length": 100, "output_length": 7, "hash_ids": [1]}\n'
    trace = prompts.read(written(tmp_path, "a.jsonl", "\n" + request * 15_000))
    assert (tmp_path / "a.jsonl").stat().st_size > 1_000_000
    assert (len(trace), trace.of(0).max_tokens) == (15_000, 7)
    monkeypatch.setattr(prompts, "LARGEST", 1000)
    assert len(prompts.read(tmp_path / "a.jsonl")) == 15_000, "a trace is not read whole"
    with pytest.raises(InputError, match="larger than 1000 bytes, got 1255000"):
        prompts.read(tmp_path / "a.txt")
