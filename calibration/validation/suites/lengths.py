"""Prompt and output lengths of the data sets that speculation was measured on."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from pydantic import Field

from models.schema import Fraction, Frozen, PositiveInt
from models.strict_yaml import load_yaml

DOMAINS = {
    "GSM8K": "gsm8k",
    "CNN/DailyMail": "cnn_dm",
    "ShareGPT": "sharegpt",
    "InstructCoder": "instructcoder",
}
"""Name of a data set where it is published, to its name here."""


class Matches(Frozen):
    """N-gram lookup replayed: share of steps with a match, and of accepted tokens given one."""

    match_rate: Fraction
    match_stay: Fraction
    accepted: tuple[Fraction, ...]


class DataSet(Frozen):
    """One data set, answered by Llama-3.1-8B-Instruct.

    Attributes
    ----------
    title : str
        Name where it is published.
    requests : int
        Behind the distributions.
    prompt_tokens, output_tokens : tuple of int
        40 quantiles.
    eagle_accepted : dict
        By K: share of the steps that accept 0, 1, .. K drafts of an EAGLE chain.
    ngram : dict
        The same of n-gram lookup, by K.
    """

    title: str
    requests: PositiveInt
    prompt_tokens: tuple[PositiveInt, ...] = Field(min_length=40, max_length=40)
    output_tokens: tuple[PositiveInt, ...] = Field(min_length=40, max_length=40)
    eagle_accepted: dict[int, tuple[Fraction, ...]]
    ngram: dict[int, Matches]


class _Lengths(Frozen):
    source: str
    data_sets: dict[str, DataSet]


@cache
def _lengths() -> _Lengths:
    path = resources.files("calibration").joinpath("data/lengths.yaml")
    return _Lengths.model_validate(load_yaml(path.read_text("utf-8"), path.name).data)


def names() -> list[str]:
    """Data sets there are, as ``gsm8k``."""
    return list(_lengths().data_sets)


def data_set(name: str) -> DataSet:
    """One data set.

    Parameters
    ----------
    name : str
        Of ``names()``, or where it is published, as ``CNN/DailyMail``.

    Raises
    ------
    KeyError
        If there is no such data set.
    """
    return _lengths().data_sets[DOMAINS.get(name, name)]


def stream(name: str) -> dict[str, Any]:
    """Stream of a scenario with the lengths of a data set, its domain the data set.

    Parameters
    ----------
    name : str
        As in ``data_set``.
    """
    found = data_set(name)
    return {
        "domain": DOMAINS.get(name, name),
        "prompt_tokens": {"kind": "empirical", "values": list(found.prompt_tokens)},
        "output_tokens": {"kind": "empirical", "values": list(found.output_tokens)},
    }
