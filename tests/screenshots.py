"""Pictures of the report for docs/images, from an example: ``make screenshots``."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from chrome import browser

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/llama70b_strategies.yaml"
SHOTS = {"light": (1280, False, 1900), "dark": (1280, True, 1900), "phone": (400, False, 2400)}
"""Width, dark theme, and height shown [px]."""


def main() -> None:
    """Run the example and take each picture."""
    images = ROOT / "docs/images"
    images.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        code = "from sim.cli import main; main()"
        command = [sys.executable, "-c", code, "run", str(EXAMPLE), "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        for name, (width, dark, height) in SHOTS.items():
            window.show(Path(folder) / "report.html", width, dark)
            (images / f"report_{name}.png").write_bytes(_smaller(window.picture(height)))


def _smaller(png: bytes) -> bytes:
    """The same picture, compressed as far as it goes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "png", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
