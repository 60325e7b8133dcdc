"""Headless chromium for the browser tests and the screenshots of the docs."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


class Browser:
    """One window that shows a page at a width and in a theme.

    Parameters
    ----------
    driver : selenium.webdriver.Chrome
        Started with logs of console and network.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(self, page: Path, width: int, dark: bool = False) -> None:
        """Open a page at ``width`` pixels; logs of earlier pages are dropped."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        self.driver.get("about:blank")
        self.console(), self.requested()
        self.driver.get(page.as_uri())

    def run(self, script: str) -> Any:
        """Value of a JavaScript function body."""
        return self.driver.execute_script(script)

    def console(self) -> list[str]:
        """What the page wrote on the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """What the page asked the network for since the last call."""
        messages = (json.loads(entry["message"]) for entry in self.driver.get_log("performance"))
        sent = (m["message"] for m in messages)
        return [
            message["params"]["request"]["url"]
            for message in sent
            if message["method"] == "Network.requestWillBeSent"
        ]

    def picture(self, height: int | None = None) -> bytes:
        """The page as PNG, down to its end or to ``height`` pixels."""
        size = "return [innerWidth, document.scrollingElement.scrollHeight]"
        width, full = self.run(size)
        clip = {"x": 0, "y": 0, "width": width, "height": min(height or full, full), "scale": 1}
        shot = {"clip": clip, "captureBeyondViewport": True}
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start chromium, and end it.

    Raises
    ------
    RuntimeError
        If chromium or its driver is not installed.
    """
    from selenium import webdriver

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise RuntimeError("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()
