"""The site to look at before installing: `python -m tests.site FOLDER` writes it, from the archives in docs/site and docs/h200.

Each page is made by the command that a user runs, in a folder of its own. The start page says what each of them answers.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.page import render
from runner.paths import PROJECT, runner_version

DOCS = PROJECT / "docs"
TEN_MINUTES_PAGE = "ten-minutes.html"
TEN_MINUTES = DOCS / "site" / "ten-minutes.tar.gz"
H200 = (DOCS / "h200" / "fp32.tar.gz", DOCS / "h200" / "amp-bf16.tar.gz")
DRAWN = "These runs are drawn, with one change planted: nothing in them was measured."
_DRAW = "from pathlib import Path; from tests.fixtures import synthetic; print(*synthetic.make_days(Path('drawn')), sep='\\n')"
# Where a page's own words stand, if not in its head.
_SAID = {"rosetta.html": "<title>(.*?)</title>", "references/index.html": '<p class="kicker">(.*?)</p>'}
# What a command that compares ends with: nothing is slower, something is, or it is open.
SAID = (0, 1, 3)


@dataclass(frozen=True)
class Page:
    """A page of the site: what it answers, the command that made it, and its own first words."""

    file: str
    question: str
    about: str
    command: str
    answer: str


@dataclass(frozen=True)
class Place:
    """Where the commands run, as for a user whose home is empty."""

    folder: Path
    site: Path

    def python(self, *words: str | Path, may: Sequence[int] = (0,)) -> list[str]:
        """The lines that a program printed. Raises where it ended with another exit code than it may."""
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, *map(str, words)]
        ended = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False)
        if ended.returncode not in may:
            raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr}")
        return ended.stdout.splitlines()

    def runner(self, *words: str | Path, may: Sequence[int] = (0,)) -> list[str]:
        """The same of a command of ours."""
        return self.python("-m", "runner", *words, may=may)

    def imported(self, archives: Sequence[Path]) -> list[str]:
        """The ids of the runs that archives become."""
        return [Path(self.runner("import", archive)[0]).name for archive in archives]

    def page(self, file: str, question: str, about: str, command: str, *words: str, may: Sequence[int] = (0,)) -> Page:
        """Let a command write a page. `command` is how a user says it of own runs."""
        made = self.site / file
        made.parent.mkdir(exist_ok=True)
        self.runner(*words, made if made.name != "index.html" else made.parent, may=may)
        said = re.search(_SAID.get(file, r"<h1>(.*?)</h1>"), made.read_text("utf-8"))
        assert said is not None, f"{file} lost its first words"
        return Page(file, question, about, command, html.unescape(said[1]))


def pages(place: Place) -> list[Page]:
    """Write every page but the start page, in the order of the start page."""
    (ten,), h200 = place.imported([TEN_MINUTES]), place.imported(H200)
    # Nobody has measured a machine for months yet: these runs are drawn, and their processor is called synthetic.
    # The installation that reads them has to be the one that wrote them.
    days = place.python("-c", _DRAW)
    place.runner("share", ten, "-o", "collection/", "--by", "example", "--yes")
    return [
        place.page(
            TEN_MINUTES_PAGE,
            "Which framework is fastest here?",
            "What ten minutes on two CPU cores leave: who leads, by how much, what is open, and every measurement.",
            "make matrix",
            *("report", ten, "-o"),
        ),
        place.page(
            "h200.html",
            "What does a GPU's report look like?",
            "One H200, measured before the first release: with cells that today's checks refuse, and why.",
            "runner matrix --gpus all",
            *("report", *h200, "-o"),
        ),
        place.page(
            "compare.html",
            "Did an update make it slower?",
            "Two runs of one machine, cell by cell, with the interval of each ratio and what differs. " + DRAWN,
            "runner compare RUN OTHER -o compare.html",
            *("compare", days[0], days[-1], "-o"),
            may=SAID,
        ),
        place.page(
            "history.html",
            "What changed over the months?",
            "The step time of each cell over all runs, with each change marked, and what else changed then. " + DRAWN,
            "runner history -o history.html",
            *("history", *days, "-o"),
            may=SAID,
        ),
        place.page(
            "rosetta.html",
            "How does another framework write this network?",
            "One network in three frameworks, side by side, as it was measured.",
            "runner rosetta cnn-cifar10 torch jax tensorflow -o rosetta.html",
            *("rosetta", "cnn-cifar10", "torch", "jax", "tensorflow", "-o"),
        ),
        place.page(
            "references/index.html",
            "Is my number normal among others' machines?",
            "The index of a collection of references: which device ran what, on how many machines.",
            "runner reference index COLLECTION -o references",
            *("reference", "index", "collection", "-o"),
        ),
    ]


def write(site: Path) -> list[Page]:
    """Write the whole site into an empty or new folder."""
    site.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = pages(Place(Path(folder), site.resolve()))
    style = (PROJECT / "reports" / "page" / "templates" / "page.css").read_text("utf-8")
    start = render.filled("site.html.j2", ("theme",), style, pages=made, version=runner_version())
    (site / "index.html").write_text(start, "utf-8")
    shutil.copy(DOCS / "report.png", site / "report.png")
    return made


if __name__ == "__main__":
    for page in write(Path(sys.argv[1])):
        print(f"{page.file}: {page.answer}")
