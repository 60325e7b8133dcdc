"""The journal of decoding runs: one line a finished prompt, from which tables are written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from calibration.decoding.decoder import Generation, Row, Step, Times
from calibration.decoding.plan import Batch, Encoded, Key
from calibration.json_lines import append_line, differing, read_lines
from models.strict_yaml import InputError

FILE = "journal.jsonl"


class Done(NamedTuple):
    """A finished batch.

    Attributes
    ----------
    label, domain : str
        Strategy, and kind of text.
    numbers, digests : tuple
        Of its prompts.
    prompt_tokens : tuple of int
        Length of each prompt.
    generation : Generation
    state : object
        What the strategy has learned so far, as JSON; None where it learns nothing.
    """

    label: str
    domain: str
    numbers: tuple[int, ...]
    digests: tuple[str, ...]
    prompt_tokens: tuple[int, ...]
    generation: Generation
    state: Any = None

    @classmethod
    def of(cls, batch: Batch, generation: Generation, state: Any = None) -> Done:
        """What has become of a batch."""
        return cls(
            batch.label,
            batch.domain,
            tuple(one.number for one in batch.prompts),
            tuple(one.digest for one in batch.prompts),
            tuple(len(one.tokens) for one in batch.prompts),
            generation,
            state,
        )

    @property
    def keys(self) -> list[Key]:
        """Of its prompts."""
        return [(self.label, self.domain, number) for number in self.numbers]

    @property
    def seconds(self) -> float:
        """From taking in the prompts to the last token."""
        steps = self.generation.steps
        return self.generation.prefill.total_s + sum(step.times.total_s for step in steps)


class Journal:
    """What decoding runs in one folder have done so far; written with the first prompt.

    Parameters
    ----------
    path : Path
    run : mapping
        What all its lines share: model, machine, versions, seed, lengths.
    date : str
        Of today; that of the first run is kept.

    Attributes
    ----------
    done : list of Done
        In the order they were finished.
    run, date
        As above.
    strategies : dict
        Settings of each strategy by label; ``block`` is that of a scenario.

    Raises
    ------
    InputError
        If the file holds prompts of another run, or something else; it is left as it is.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], date: str) -> None:
        self.path, self.run, self.date = path, dict(run), date
        self.strategies, self.done = dict[str, dict[str, Any]](), list[Done]()
        self._unsaid: list[dict[str, Any]] = []
        before = self._read()
        if self.done:
            if before["run"] != self.run:
                self._refuse(len(self.keys), "another run", differing(before["run"], self.run))
            self.date = before["date"]
        else:
            self.strategies = {}
            self._unsaid.append({"run": self.run, "date": date})

    def enter(self, label: str, settings: Mapping[str, Any]) -> None:
        """Say how a strategy is to run, before its first prompt of this run.

        Raises
        ------
        InputError
            If it has run in another way before.
        """
        before, now = self.strategies.get(label, {}), dict(settings)
        if before == now:
            return
        prompts = sum(key[0] == label for key in self.keys)
        if prompts:
            self._refuse(prompts, f"another '{label}'", differing(_flat(before), _flat(now)))
        self._unsaid.append({"strategy": label, "settings": now})
        self.strategies[label] = now

    def _read(self) -> dict[str, Any]:
        """Take over what is there; the first line, which says what all others share."""
        try:
            first, *lines = read_lines(self.path) or [{"run": {}, "date": ""}]
            for line in lines:
                if "settings" in line:
                    self.strategies[line["strategy"]] = line["settings"]
                else:
                    self.done.append(_done(line))
            return {"run": dict(first["run"]), "date": str(first["date"])}
        except (ValueError, TypeError, KeyError):
            message = "holds no decoded prompts that can be read; remove it to start anew"
            raise InputError(str(self.path), None, "", message) from None

    def _refuse(self, prompts: int, of: str, what: str) -> NoReturn:
        message = (
            f"{prompts} prompts of {of} are kept there ({what}); give the same options to go on "
            "with it, or another --out"
        )
        raise InputError(str(self.path), None, "", message)

    def check(self, prompts: Iterable[Encoded]) -> None:
        """Refuse prompts of which earlier runs decoded others under the same number.

        Raises
        ------
        InputError
            That names the first of them.
        """
        known = {
            (one.domain, number): digest
            for one in self.done
            for number, digest in zip(one.numbers, one.digests, strict=True)
        }
        for prompt in prompts:
            if known.get((prompt.domain, prompt.number), prompt.digest) != prompt.digest:
                message = (
                    f"prompt {prompt.number} of {prompt.domain} was another one in the runs kept "
                    "there; give the same prompts to go on with them, or another --out"
                )
                raise InputError(str(self.path), None, "--prompts", message)

    @property
    def keys(self) -> Collection[Key]:
        """Of all that is done."""
        return {key for one in self.done for key in one.keys}

    def state(self, label: str) -> Any:
        """What a strategy had learned when its last prompt was finished."""
        return next((one.state for one in reversed(self.done) if one.label == label), None)

    def append(self, done: Done) -> None:
        """Keep a finished batch; its line is whole when this returns."""
        if not self.done:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("", "utf-8")
        for line in (*self._unsaid, _line(done)):
            append_line(self.path, line)
        self._unsaid.clear()
        self.done.append(done)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in settings.items() if key != "block"}
    return {**settings.get("block", {}), **others}


def _line(done: Done) -> dict[str, Any]:
    steps = [[step.rows, step.emitted, step.times, step.note] for step in done.generation.steps]
    return {
        "strategy": done.label,
        "domain": done.domain,
        "prompts": done.numbers,
        "digests": done.digests,
        "prompt_tokens": done.prompt_tokens,
        "tokens": done.generation.tokens,
        "prefill": done.generation.prefill,
        "steps": steps,
        "state": done.state,
    }


def _done(line: Mapping[str, Any]) -> Done:
    steps = tuple(
        Step(tuple(map(_row, rows)), tuple(emitted), Times(*times), str(note))
        for rows, emitted, times, note in line["steps"]
    )
    tokens = tuple(map(tuple, line["tokens"]))
    return Done(
        line["strategy"],
        line["domain"],
        tuple(line["prompts"]),
        tuple(line["digests"]),
        tuple(line["prompt_tokens"]),
        Generation(tokens, Times(*line["prefill"]), steps),
        line["state"],
    )


def _row(row: Sequence[Any]) -> Row:
    one = Row(*row)
    return one._replace(tokens=tuple(one.tokens), ranks=tuple(one.ranks))
