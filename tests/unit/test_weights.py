"""The weights of the behaviours are those that docs/weights.md says: who makes one heavier sees it, and says so."""

from __future__ import annotations

from tests import weights


def test_the_page_says_what_each_behaviour_weighs() -> None:
    said, found = weights.written(), weights.weights()
    assert said.keys() == found.keys() == weights.BEHAVIOURS.keys()
    off = {
        name: (said[name], one)
        for name, one in found.items()
        if abs(said[name].product - one.product) > weights.MOST_OFF
        or abs(said[name].tests - one.tests) > weights.MOST_OFF
    }
    assert off == {}, "`make docs` makes docs/weights.md; the change says which behaviour it makes heavier"


def test_each_behaviour_has_files_that_are_there() -> None:
    """A module that is renamed would take its lines out of the table in silence."""
    known = weights.modules("bench", "runner", "reports")
    assert [
        (name, own)
        for name, all_own in weights.BEHAVIOURS.items()
        for own in all_own
        if not any(weights.inside(one, (own,)) for one in known)
    ] == []


def test_a_file_that_another_behaviour_needs_too_weighs_on_neither() -> None:
    edges = {"root": {"a", "b"}, "a": {"shared", "alone"}, "b": {"shared"}, "shared": set(), "alone": set()}
    assert weights.only_by(edges, ("root",), frozenset({"a"})) == {"a", "alone"}
