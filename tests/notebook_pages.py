"""Rendered copies of the notebooks in docs/notebooks, with their pictures: ``make notebooks``.

Needs the extra ``notebooks``, and ``torch`` for what a notebook times on this machine.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER, PAGES = ROOT / "notebooks", ROOT / "docs/notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
BESIDE = ("examples", "tests")
"""What notebooks refer to as ``../examples`` and so on."""
TIMEOUT_S = 600


def main(names: Sequence[str] = ()) -> None:
    """Execute the notebooks of these names, default all, and write their pages."""
    for path in PATHS:
        if not names or path.stem in names:
            write(path.stem, executed(path))


def executed(path: Path) -> Any:
    """The notebook with its outputs; what it writes goes to a folder that is removed."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as scratch:
        home = beside(Path(scratch))
        resources = {"metadata": {"path": str(home)}}
        NotebookClient(notebook, timeout=TIMEOUT_S, resources=resources).execute()
    return notebook


def beside(scratch: Path) -> Path:
    """A folder like ``notebooks`` to run in, with the folders beside it."""
    home = scratch / "notebooks"
    home.mkdir()
    for name in BESIDE:
        (scratch / name).symlink_to(ROOT / name)
    for file in FOLDER.glob("*.yaml"):
        (home / file.name).symlink_to(file)
    return home


def write(stem: str, notebook: Any) -> None:
    """Write the page of an executed notebook and its pictures, in place of earlier ones."""
    from nbconvert import MarkdownExporter

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            _plain(output)
    exporter = MarkdownExporter()
    body, resources = exporter.from_notebook_node(notebook)
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob(f"{stem}_*.svg"):
        old.unlink()
    for number, (name, data) in enumerate(resources["outputs"].items(), 1):
        file = f"{stem}_{number}.svg"
        body = body.replace(f"({name})", f"({file})").replace("![svg](", "![Picture](")
        (PAGES / file).write_bytes(data)
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", body)).strip()
    (PAGES / f"{stem}.md").write_text(f"{head(stem)}\n\n{text}\n", "utf-8")


def head(stem: str) -> str:
    """First line of a page."""
    return f"*Rendered from [notebooks/{stem}.ipynb](../../notebooks/{stem}.ipynb).*"


def _plain(output: Any) -> None:
    """Tables as a page can show them: without the style sheet, which GitHub prints."""
    data = output.get("data", {})
    if "text/html" in data:
        table = re.search(r"<table.*?</table>", data["text/html"], re.DOTALL)
        assert table is not None
        data["text/html"] = re.sub(r' (border|class|style)="[^"]*"', "", table[0])
    for kind in ("image/svg+xml", "text/markdown"):
        if kind in data:
            data.pop("text/plain", None)


def cells(path: Path) -> Iterator[tuple[str, str]]:
    """Kind and text of each cell of a notebook."""
    import json

    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        yield cell["cell_type"], "".join(cell["source"])


if __name__ == "__main__":
    main(sys.argv[1:])
