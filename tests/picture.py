"""docs/report.png, the picture in README.md: the first screen of the report on ten minutes. `make picture` makes it.

A test makes it again and compares both: the words of the page, which the file holds as a text of its own, and the picture.
"""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from runner.paths import PROJECT
from tests import site
from tests.browser.chromium import Browser

FILE = PROJECT / "docs" / "report.png"
WIDTH, HEIGHT = 1440, 560
# A page takes the fonts of its reader's system. The picture has those that each Debian and Ubuntu has or installs (fonts-dejavu-core).
FONTS = {"--font": '"DejaVu Sans"', "--mono": '"DejaVu Sans Mono"'}
_WORDS = "words"
_FOUND = "return [...document.querySelectorAll('header, #results')].map((part) => part.innerText).join('\\n')"
# Pixels that are one in the comparison: so letters that another release of Chromium smooths otherwise differ by little.
_BLOCK = 8


def drawn(browser: Browser, page: Path) -> bytes:
    """The picture of a report, as a PNG with the words of its first screen and its table."""
    browser.open_whole(page, WIDTH)
    browser.command("Emulation.setScrollbarsHidden", hidden=True)
    for name, family in FONTS.items():
        browser.run("document.documentElement.style.setProperty(...arguments)", name, family)
    words = browser.run(_FOUND)
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
    taken = browser.command("Page.captureScreenshot", format="png", clip=clip)["data"]
    held, out = PngInfo(), io.BytesIO()
    held.add_itxt(_WORDS, words)
    browser.command("Emulation.setScrollbarsHidden", hidden=False)
    Image.open(io.BytesIO(base64.b64decode(taken))).convert("RGB").save(out, "PNG", optimize=True, pnginfo=held)
    return out.getvalue()


def words(picture: bytes) -> str:
    """The words that the picture's page had."""
    with Image.open(io.BytesIO(picture)) as image:
        image.load()
        return str(image.info.get(_WORDS, ""))


def difference(one: bytes, other: bytes) -> float:
    """How far two pictures are apart: the mean over their blocks, of 255."""
    blocks = [
        np.asarray(Image.open(io.BytesIO(each)).convert("RGB").reduce(_BLOCK), dtype=float) for each in (one, other)
    ]
    return float(abs(blocks[0] - blocks[1]).mean()) if blocks[0].shape == blocks[1].shape else 255.0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        site.write(Path(folder) / "site")
        browser = Browser(Path(folder) / "profile")
        try:
            FILE.write_bytes(drawn(browser, Path(folder) / "site" / site.TEN_MINUTES_PAGE))
        finally:
            browser.driver.quit()


if __name__ == "__main__":
    main()
