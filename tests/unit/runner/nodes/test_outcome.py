"""How the nodes of a run fared, as run.json and the last lines say it."""

from __future__ import annotations

from typing import Any

from runner.nodes.node_table import NodeOutcome, last_words, outcome_entries


def test_a_reason_that_many_nodes_share_is_said_once_and_the_drained_come_first() -> None:
    outcomes = [NodeOutcome(f"n{number}", "the job has ended", False) for number in range(6)]
    outcomes += [
        NodeOutcome("x", "its agent ended", False),
        NodeOutcome("y", "silent", True),
        NodeOutcome("z", "", False),
    ]
    assert list(last_words(outcomes)) == [
        "drained: y; look at these nodes before you use them again",
        "lost: n0, n1, n2, n3 and 2 more (the job has ended); x (its agent ended)",
    ]
    assert list(last_words([NodeOutcome("z", "", False)])) == []


def test_a_node_that_was_drained_before_the_run_was_resumed_is_still_named() -> None:
    facts: list[dict[str, Any]] = [{"node": "a", "why_not": None}, {"node": "b", "why_not": None}]
    first = outcome_entries(facts, [NodeOutcome("a", "silent", True), NodeOutcome("b", "", False)], ())
    assert first == [
        {"node": "a", "why_not": None, "lost": "silent", "drained": True},
        {"node": "b", "why_not": None, "lost": None, "drained": False},
    ]
    again = outcome_entries(facts[:1], [NodeOutcome("a", "", False)], first)
    for _ in range(2):  # however often it is resumed
        assert again == [
            {"node": "a", "why_not": None, "lost": "silent (before the run was resumed)", "drained": True},
            first[1],
        ]
        again = outcome_entries(facts[:1], [NodeOutcome("a", "", False)], again)
