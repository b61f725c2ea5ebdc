"""A headless Chromium with an empty profile: it opens pages from disk, and keeps what they log and ask for."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

# The page's scripts have run, and the table of results answers its reader.
READY = "document.readyState === 'complete' && !document.getElementById('controls').hidden"
# Nothing that is open waits to be built.
BUILT = "![...document.querySelectorAll('.later')].some((part) => !part.closest('details:not([open])'))"
# A busy machine may be slow; what takes so long does not come at all.
PATIENCE_SECONDS = 60


class Browser:
    def __init__(self, profile: Path) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        for switch in (*SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=str(DRIVER))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(120)  # axe looks at every element, and a machine may be busy

    def open(self, page: Path, width: int = 1280, theme: str = "light", anchor: str = "") -> None:
        """Returns when the page is loaded; what it builds in idle moments may be missing yet."""
        self.driver.get("about:blank")  # from here on the page before it can say nothing more
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.driver.get(page.as_uri() + anchor)

    def open_whole(self, page: Path, width: int = 1280, theme: str = "light") -> None:
        """The same, and wait until its scripts have run."""
        self.open(page, width, theme)
        self.wait(READY)

    def open_drawn(self, page: Path, width: int = 1280, theme: str = "light") -> None:
        """Open every section and come by every table and all samples, as a reader would who looks at it all."""
        self.open_whole(page, width, theme)
        while self.run("return document.querySelectorAll('.later, details:not([open])').length"):
            self.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            self.wait(BUILT)
        self.run("document.querySelectorAll('.box').forEach((one) => { one.style.contentVisibility = 'visible'; })")
        count = self.run("return document.querySelectorAll('.samples').length")
        for index in range(count):
            self.run("document.querySelectorAll('.samples')[arguments[0]].scrollIntoView()", index)
            self.wait(f"document.querySelectorAll('.samples')[{index}].querySelector('canvas')")

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression holds."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.run(f"return !!({condition})"):
            assert time.monotonic() < end, f"it never came to: {condition}"
            time.sleep(0.05)

    def reload_until(self, condition: str, again: str) -> None:
        """Load the page again; where a JavaScript expression does not hold then, run `again` and load it once more.

        What a page stores reaches the browser's store a moment later, and a page that goes in that moment may take it along.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.driver.refresh()
            self.wait(READY)
            if self.run(f"return !!({condition})"):
                return
            assert time.monotonic() < end, f"however often the page is loaded, it never came to: {condition}"
            self.run(again)
            time.sleep(1)

    @contextmanager
    def pages_begin_with(self, script: str) -> Iterator[None]:
        """A script that runs in each page before the page's own."""
        added = self.command("Page.addScriptToEvaluateOnNewDocument", source=script)
        try:
            yield
        finally:
            self.command("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that a page asked for since it was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def violations(self) -> list[tuple[str, str, str]]:
        """All that axe-core finds in the open page."""
        axe = (resources.files("axe_core_python") / "axe.min.js").read_text("utf-8")
        # Through the debugger, not as a script element: the page's policy rightly refuses scripts that are not its own.
        self.command("Runtime.evaluate", expression=axe)
        result = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
        )
        return [(found["impact"], found["id"], found["nodes"][0]["html"][:200]) for found in result["violations"]]
