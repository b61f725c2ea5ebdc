"""A node that a run gave up is named where a reader looks first: at the top of the page, of the Markdown and of the printed answer."""

from __future__ import annotations

from pathlib import Path

from reports.answers import plain
from reports.answers.overview import overview
from reports.data.tables import load
from reports.page.assembly import page_of
from runner.results import validate
from tests.fixtures import synthetic

NODES = [
    {"node": "n1", "lost": "nothing was heard of it, and cells were lost with it twice", "drained": True},
    {"node": "n2", "lost": "its agent ended", "drained": False},
    {"node": "n3", "why_not": "it did not answer"},
    {"node": "n\x1b[31m4", "lost": "a\nb", "drained": True},
]
SAID = (
    "Node n1 was drained: nothing was heard of it, and cells were lost with it twice. Look at it before you use it again.",
    "Node n4 was drained: a⏎b. Look at it before you use it again.",
)


def test_a_drained_node_stands_at_the_top_of_every_answer(tmp_path: Path) -> None:
    data = load([synthetic.make_run(tmp_path / "run", manifest={"nodes": NODES})])
    # the page shows the head and unfolds the rest
    assert tuple(f"{head}: {rest}" for head, rest in page_of(overview(data)).notes[:2]) == SAID
    assert " ".join(SAID) in overview(data).lead
    assert next(plain.sections(data)).above[:2] == SAID


def test_a_run_without_nodes_says_nothing_of_them(tmp_path: Path) -> None:
    data = load([synthetic.make_run(tmp_path / "run")])
    heads = (head for head, _ in page_of(overview(data)).notes)
    assert not any("drained" in said for said in (*heads, *next(plain.sections(data)).above))


def test_what_run_json_says_of_nodes_is_checked(tmp_path: Path) -> None:
    manifest = load([synthetic.make_run(tmp_path / "run", manifest={"nodes": NODES})]).runs[0].manifest
    assert validate.of_manifest(manifest) == ""
    for lie in ([{"node": 1}], [{"node": "n1", "drained": "yes"}], ["n1"], {"n1": {}}):
        assert "nodes" in validate.of_manifest({**manifest, "nodes": lie})
