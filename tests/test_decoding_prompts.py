"""Prompts: the same ones every time, none on both sides, and files of one's own."""

from __future__ import annotations

import ast
import json
import textwrap

import pytest

from calibration.decoding import prompts as made
from calibration.decoding import templates
from calibration.decoding.prompts import DOMAINS, Prompt, available, prompts, read_prompts
from models.schema import ModelError
from models.strict_yaml import InputError


@pytest.mark.parametrize("domain", DOMAINS)
def test_each_side_has_enough_prompts_and_shares_none(domain):
    train, test = (prompts(domain, side, available(domain, side)) for side in ("train", "test"))
    assert len(train) == len(set(train)) >= 130
    assert len(test) == len(set(test)) >= 40
    assert not set(train) & set(test)


@pytest.mark.parametrize("domain", DOMAINS)
def test_prompts_are_the_same_every_time_and_the_first_ones_of_more(domain):
    once = prompts(domain, "test", 12)
    made._all.cache_clear()
    assert prompts(domain, "test", 12) == once
    assert prompts(domain, "test", 30)[:12] == once


@pytest.mark.parametrize("domain", DOMAINS)
def test_prompts_are_neither_short_nor_long(domain):
    for side in ("train", "test"):
        lengths = list(map(len, prompts(domain, side, 40)))
        assert min(lengths) >= 150
        assert max(lengths) <= 700


def test_no_module_and_no_function_is_on_both_sides():
    modules = {side: set(names.split()) for side, names in made.MODULES.items()}
    assert not modules["train"] & modules["test"]
    heads = {side: {text.split("\n")[0] for text in made._code(side)} for side in modules}
    bodies = {side: {text.split("\n", 1)[1] for text in made._code(side)} for side in modules}
    assert heads["train"]
    assert not bodies["train"] & bodies["test"]


def test_a_code_prompt_is_a_function_broken_off():
    for text in prompts("code", "test", 20):
        assert text.startswith("def ")
        assert text.endswith("\n")
        assert text == textwrap.dedent(text)
        with pytest.raises(SyntaxError):
            ast.parse(text + "    (")


def test_no_paragraph_of_the_reference_is_on_both_sides():
    sides = made._passages()
    tested = {paragraph for passage in sides["test"] for paragraph in passage}
    shared = [passage for passage in sides["train"] if tested & set(passage)]
    begun = [" ".join(passage)[:100] for passage in shared]
    assert not [text for text in made._prose("train") if text[:100] in begun]


@pytest.mark.parametrize("table", [templates.TABLES, templates.FIELDS])
def test_no_template_of_rows_is_on_both_sides(table):
    assert not set(table["train"]) & set(table["test"])
    columns = {side: {tuple(one) for one in table[side].values()} for side in table}
    assert not columns["train"] & columns["test"]


def test_no_word_problem_and_no_name_is_on_both_sides():
    assert not set(templates.PROBLEMS["train"]) & set(templates.PROBLEMS["test"])
    for pool in (templates.NAMES, templates.FAMILIES, templates.CITIES):
        assert not set(pool["train"].split()) & set(pool["test"].split())


def test_rows_of_json_go_on_as_json():
    text = prompts("json_sql", "test", 1)[0]
    (rows,) = json.loads(text.rstrip(",\n") + "]}").values()
    assert len(rows) == 3
    assert rows[1]["id"] == rows[0]["id"] + 1


@pytest.mark.parametrize(
    ("asked", "key", "said"),
    [
        (("poems", "test", 1), "domain", "code, prose, json_sql, maths, extract, got 'poems'"),
        (("code", "dev", 1), "split", "must be train or test, got 'dev'"),
        (("code", "test", 0), "count", "must be 1 to the "),
        (("maths", "test", 401), "count", "must be 1 to the 400 test prompts of 'maths'"),
    ],
)
def test_what_there_is_not_is_refused(asked, key, said):
    with pytest.raises(ModelError, match=said) as refused:
        prompts(*asked)
    assert refused.value.key == key


def test_prompts_of_ones_own_are_read(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"domain": "mails", "text": "Dear all,\\n"}\n\n{"domain": "a", "text": "é"}')
    assert read_prompts(file) == [Prompt("mails", "Dear all,\n"), Prompt("a", "é")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", ":2: must be an object with 'domain' and 'text'"),
        ("{", ":2: is not JSON: "),
        ('{"text": "x"}', ":2: domain: must be a text"),
        ('{"domain": "a", "text": " "}', ":2: text: must be a text"),
        ('{"domain": "a", "text": "x", "n": 1}', ":2: n: is no key of a prompt"),
        ('{"domain": "a b", "text": "x"}', ":2: domain: must be a name"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path, line, said):
    file = tmp_path / "own.jsonl"
    file.write_text('{"domain": "a", "text": "x"}\n' + line + "\n")
    with pytest.raises(InputError) as refused:
        read_prompts(file)
    assert str(file) + said in str(refused.value)


def test_a_file_that_is_missing_or_empty_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match=r"empty\.jsonl: holds no prompts"):
        read_prompts(tmp_path / "empty.jsonl")
