"""Prompts made up from templates: rows of data, word problems, records with questions.

Each side of the split has its own templates and its own pools of names; see ``prompts``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

INSTANCES = 400
"""So many different prompts of each domain and side."""

NAMES = {
    "train": "Ada Bruno Chen Dilara Emil Fatima Goran Hana Ivan Jonas Keiko Liam Mona Nadia Omar",
    "test": "Paula Quentin Rosa Samir Tove Ugo Vera Wen Xenia Yusuf Zoe Arne Bea Carlo Dunja",
}
FAMILIES = {
    "train": "Okafor Lindqvist Marino Novak Tanaka Haddad Costa Weber Dubois Petrov",
    "test": "Andersson Moreau Rossi Kowalski Yamada Silva Becker Laurent Ivanova Mensah",
}
CITIES = {
    "train": "Lyon Porto Bergen Graz Turin Leeds Gdansk Utrecht Malmo Seville",
    "test": "Bilbao Cork Aarhus Basel Genoa Nantes Krakow Ghent Tampere Valencia",
}

Value = Callable[[random.Random, "Pools"], Any]


class Pools:
    """Names of one side."""

    def __init__(self, split: str) -> None:
        self.names, self.families, self.cities = (
            pool[split].split() for pool in (NAMES, FAMILIES, CITIES)
        )


def _one(words: str) -> Value:
    several = words.split()
    return lambda draw, _: draw.choice(several)


def _whole(low: int, high: int) -> Value:
    return lambda draw, _: draw.randint(low, high)


def _money(low: int, high: int) -> Value:
    return lambda draw, _: draw.randint(low * 100, high * 100) / 100


def _date(draw: random.Random, _: Pools) -> str:
    return f"20{draw.randint(15, 25)}-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"


def _person(draw: random.Random, pools: Pools) -> str:
    return f"{draw.choice(pools.names)} {draw.choice(pools.families)}"


def _city(draw: random.Random, pools: Pools) -> str:
    return draw.choice(pools.cities)


def _flag(draw: random.Random, _: Pools) -> bool:
    return draw.random() < 0.5


def _phone(draw: random.Random, _: Pools) -> str:
    return f"555-{draw.randint(1000, 9999)}"


TABLES: Mapping[str, Mapping[str, Mapping[str, Value]]] = {
    "train": {
        "orders": {"customer": _person, "city": _city, "total": _money(5, 400), "paid": _flag},
        "sensors": {"room": _one("lab hall attic cellar office"), "celsius": _money(10, 30)}
        | {"battery": _whole(1, 100), "checked": _date},
        "books": {"author": _person, "pages": _whole(80, 900), "language": _one("en fr de it")},
        "employees": {"name": _person, "team": _one("sales support legal finance")}
        | {"salary": _whole(28000, 90000), "hired": _date},
        "shipments": {"origin": _city, "target": _city, "kilograms": _whole(1, 900)},
        "servers": {"host": _one("alpha beta gamma delta"), "cores": _whole(2, 96)}
        | {"memory_gb": _whole(4, 512), "active": _flag},
    },
    "test": {
        "products": {"label": _one("lamp chair desk shelf rug"), "price": _money(9, 500)}
        | {"in_stock": _flag, "added": _date},
        "patients": {"patient": _person, "age": _whole(1, 99), "ward": _one("A1 A2 B1 B2")},
        "flights": {"departs": _city, "arrives": _city, "minutes": _whole(40, 300)}
        | {"delayed": _flag},
        "students": {"student": _person, "grade": _one("first second third")}
        | {"points": _whole(0, 100)},
        "tickets": {"owner": _person, "status": _one("open closed waiting"), "opened": _date},
        "rentals": {"bike": _one("city cargo road folding"), "place": _city}
        | {"fee": _money(3, 60), "day": _date},
    },
}

FIELDS: Mapping[str, Mapping[str, Mapping[str, Value]]] = {
    "train": {
        "staff list": {"Name": _person, "Office": _city, "Phone": _phone, "Since": _date},
        "guest book": {"Guest": _person, "Home": _city, "Nights": _whole(1, 21)},
        "invoices": {"Payer": _person, "Amount": _money(20, 900), "Due": _date},
        "car park": {
            "Driver": _person,
            "Colour": _one("red blue grey white"),
            "Bay": _whole(1, 99),
        },
    },
    "test": {
        "club members": {"Member": _person, "Town": _city, "Number": _phone, "Joined": _date},
        "loans": {"Reader": _person, "Shelf": _whole(100, 999), "Return by": _date},
        "race results": {"Runner": _person, "Club": _city, "Minutes": _money(30, 90)},
        "lost property": {"Finder": _person, "Thing": _one("hat scarf key bag"), "Found": _date},
    },
}

PROBLEMS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "train": (
        (
            "{a} buys {x} boxes with {y} pencils each and gives away {z}. "
            "How many pencils are left?",
            "{x} boxes hold {x} * {y} = {xy} pencils. After giving away {z}, {xy} - {z} = {rest} "
            "are left.",
        ),
        (
            "{a} reads {x} pages a day for {y} days and then {z} pages more. How many pages?",
            "{x} pages a day for {y} days are {x} * {y} = {xy} pages. With {z} more it is "
            "{xy} + {z} = {sum}.",
        ),
        (
            "A bus starts with {xy} people. At {z} stops one person gets off each. How many stay?",
            "{z} stops with one person each are {z} people. {xy} - {z} = {rest} people stay.",
        ),
        (
            "{a} sells {x} jars of honey for {y} euros each and pays {z} euros for the "
            "stall. What is earned?",
            "{x} jars bring {x} * {y} = {xy} euros. Less the stall it is {xy} - {z} = {rest}.",
        ),
        (
            "{a} has {x} stamps, and {b} has {y} times as many. Then {b} finds {z} more. "
            "How many has {b}?",
            "{y} times {x} is {x} * {y} = {xy}. With {z} more, {b} has {xy} + {z} = {sum} stamps.",
        ),
    ),
    "test": (
        (
            "A baker fills {x} trays with {y} rolls each. {z} rolls burn. How many can be sold?",
            "The trays hold {x} * {y} = {xy} rolls. Without the burnt ones, {xy} - {z} = {rest} "
            "can be sold.",
        ),
        (
            "{a} saves {x} coins a week. After {y} weeks {b} adds {z} coins. How many are there?",
            "In {y} weeks {a} saves {x} * {y} = {xy} coins. With those of {b} there are "
            "{xy} + {z} = {sum}.",
        ),
        (
            "A hall has {x} rows of {y} seats. {z} seats are taken. How many are free?",
            "There are {x} * {y} = {xy} seats. As {z} are taken, {xy} - {z} = {rest} are free.",
        ),
        (
            "{a} plants {x} beds with {y} tulips each, and {b} plants {z} tulips. How many tulips?",
            "{a} plants {x} * {y} = {xy} tulips. Together they plant {xy} + {z} = {sum}.",
        ),
    ),
}


def instances(domain: str, split: str) -> Iterator[str]:
    """Different prompts of one domain and side, templates taking turns.

    Parameters
    ----------
    domain : str
        ``json_sql``, ``maths`` or ``extract``.
    split : str
        ``train`` or ``test``.
    """
    make = {"json_sql": _json_sql, "maths": _maths, "extract": _extract}[domain]
    draw, pools, seen = random.Random(f"{domain} {split}"), Pools(split), set[str]()
    turn = 0
    while len(seen) < INSTANCES:
        text = make(draw, pools, split, turn)
        turn += 1
        if text not in seen:
            seen.add(text)
            yield text


def _rows(draw: random.Random, pools: Pools, columns: Mapping[str, Value], count: int) -> list[Any]:
    return [{name: value(draw, pools) for name, value in columns.items()} for _ in range(count)]


def _json_sql(draw: random.Random, pools: Pools, split: str, turn: int) -> str:
    names = list(TABLES[split])
    name = names[turn // 2 % len(names)]
    first = draw.randint(1, 500)
    rows = _rows(draw, pools, TABLES[split][name], 3)
    numbered = [{"id": first + place} | row for place, row in enumerate(rows)]
    return _sql(name, numbered) if turn % 2 else _json(name, numbered)


def _json(name: str, rows: list[dict[str, Any]]) -> str:
    lines = "".join(f"    {json.dumps(row)},\n" for row in rows)
    return f'{{\n  "{name}": [\n{lines}'


def _sql(name: str, rows: list[dict[str, Any]]) -> str:
    kinds = {str: "TEXT", bool: "BOOLEAN", int: "INTEGER", float: "REAL"}
    columns = ", ".join(f"{key} {kinds[type(value)]}" for key, value in rows[0].items())
    into = f"INSERT INTO {name} ({', '.join(rows[0])}) VALUES"
    lines = "".join(f"{into} ({', '.join(map(_literal, row.values()))});\n" for row in rows)
    return f"CREATE TABLE {name} ({columns});\n{lines}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else str(value)


def _maths(draw: random.Random, pools: Pools, split: str, turn: int) -> str:
    problems = PROBLEMS[split]
    worked, asked = problems[turn % len(problems)], problems[(turn + 1) % len(problems)]
    first, second = (_numbers(draw, pools) for _ in range(2))
    return (
        f"Question: {worked[0].format(**first)}\nAnswer: {worked[1].format(**first)}\n\n"
        f"Question: {asked[0].format(**second)}\nAnswer:"
    )


def _numbers(draw: random.Random, pools: Pools) -> dict[str, Any]:
    a, b = draw.sample(pools.names, 2)
    x, y = draw.randint(4, 30), draw.randint(3, 12)
    z = draw.randint(2, x * y - 1)
    return {"a": a, "b": b, "x": x, "y": y, "z": z} | {
        "xy": x * y,
        "rest": x * y - z,
        "sum": x * y + z,
    }


def _extract(draw: random.Random, pools: Pools, split: str, turn: int) -> str:
    names = list(FIELDS[split])
    name = names[turn % len(names)]
    rows = _rows(draw, pools, FIELDS[split][name], 4)
    key, *others = rows[0]
    records = "".join("; ".join(f"{k}: {v}" for k, v in row.items()) + "\n" for row in rows)
    if turn // len(names) % 2:
        listed = f"- {rows[0][key]} | {rows[0][others[-1]]}\n"
        return f"{name.capitalize()}:\n{records}\nEvery {key} with {others[-1]}:\n{listed}-"
    done = "".join(f"Q: {other} of {rows[0][key]}?\nA: {rows[0][other]}\n" for other in others[:1])
    return f"{name.capitalize()}:\n{records}\n{done}Q: All about {rows[1][key]}?\nA:"
