"""Pictures of the report for docs/images, from an example: ``make screenshots``."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from chrome import browser

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/azure_conv_2x4.yaml"
SHOTS = {
    "light": (1280, False, ".pictures"),
    "dark": (1280, True, ".pictures"),
    "phone": (400, False, ".pictures figure"),
}
"""Width [px], dark theme, and the first element of its kind that ends the picture."""


def main() -> None:
    """Run the example and take each picture."""
    images = ROOT / "docs/images"
    images.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        code = "from sim.cli import main; main()"
        command = [sys.executable, "-c", code, "run", str(EXAMPLE), "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        for name, (width, dark, last) in SHOTS.items():
            window.show(Path(folder) / "report.html", width, dark)
            end = f"document.querySelector('{last}').getBoundingClientRect().bottom"
            height = window.run(f"return Math.ceil({end}) + 20")
            (images / f"report_{name}.png").write_bytes(_smaller(window.picture(height)))


def _smaller(png: bytes) -> bytes:
    """The same picture, compressed as far as it goes."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "png", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
