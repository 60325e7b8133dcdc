"""Tables and pictures of docs/audit.md, from the shipped claims: ``make audit``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pages import Lines, replaced, table

from models.schema import Frozen
from sim.audit import page, run
from sim.audit.claims import Claim, Claimed, ClaimsFile, Curve, Quantity, Sensitivity
from sim.audit.load import load_claims, shipped
from sim.audit.measures import MEASURES

ROOT = Path(__file__).resolve().parent.parent
PAGE, IMAGES = ROOT / "docs/audit.md", ROOT / "docs/images"
BLOCKS = {
    "the file": ClaimsFile,
    "a claim": Claim,
    "a figure": Quantity,
    "`claimed`": Claimed,
    "`sensitivity`": Sensitivity,
    "`curve`": Curve,
}


def main() -> None:
    """Audit the shipped claims and write what the page shows of them."""
    document = run.audit(load_claims(shipped()))
    drawn = page.draw(document)
    for old in IMAGES.glob("audit_*.svg"):
        old.unlink()
    for each in drawn:
        (IMAGES / each.file).write_bytes(each.svg)
    text = PAGE.read_text("utf-8")
    text = replaced(text, "claims", iter(page.markdown(document, drawn).splitlines()))
    text = replaced(text, "keys", keys())
    PAGE.write_text(replaced(text, "measures", measures()), "utf-8")


def keys() -> Lines:
    """Every key of a claims file."""
    yield from table(("in", "key", "meaning"), _rows())


def _rows() -> Iterator[tuple[str, str, str]]:
    known = set(Quantity.model_fields)
    for place, model in BLOCKS.items():
        for name, text in described(model):
            if model is not Curve or name not in known:
                yield place, f"`{name}`", text


def described(model: type[Frozen]) -> Iterator[tuple[str, str]]:
    """Keys of a block and what they mean."""
    for name, field in model.model_fields.items():
        yield name, (field.description or "").replace("|", "\\|")


def measures() -> Lines:
    """Everything a claim can measure."""
    rows = (
        (f"`{name}`", each.unit, "run" if each.simulated else "step or memory", f"{each.about}.")
        for name, each in MEASURES.items()
    )
    yield from table(("measure", "unit", "of a", "meaning"), rows)


if __name__ == "__main__":
    main()
