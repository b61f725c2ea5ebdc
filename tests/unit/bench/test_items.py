"""The bench's own count of items: the feeds hand over those that it works out a second time, and what takes others is refused."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import contract, items, proof, rules
from bench.data import Dataset
from bench.data.pictures import Part, Pictures
from bench.feeds import ArrayFeed, PictureFeed
from tests.fixtures.adapters import Incomplete
from tests.unit.bench.test_proof import WORKLOAD, Reference

SIZE = 4


def group(rank: int = 0, count: int = 1) -> Any:
    return SimpleNamespace(rank=rank, count=count)


def arrays(train: int = 18, test: int = 10, source: str = "generated") -> Dataset:
    random = np.random.RandomState(5)
    x = random.random_sample((train + test, 1, 28, 28)).astype(np.float32)
    y = random.randint(0, 10, train + test).astype(np.int32)
    return Dataset("mnist", source, "0" * 64, x[:train], y[:train], x[train:], y[train:])


def stored() -> Pictures:
    random = np.random.RandomState(6)
    drawn = {name: random.randint(0, 256, (256, 256, 3)).astype(np.uint8) for name in range(12)}
    parts = [
        Part([*names], np.arange(len(names), dtype=np.int32), drawn.__getitem__, 256)
        for names in (range(9), range(9, 12))
    ]
    return Pictures("imagenet", "generated", "0" * 64, parts[0], None, parts[1])


FEEDS = {
    "shuffled arrays": lambda who: ArrayFeed(arrays(), True, who),
    "arrays in file order": lambda who: ArrayFeed(arrays(), False, who),
    "pictures": lambda who: PictureFeed(stored(), 2, who),
}


def left(feed: Any, steps: int, adapter: Any) -> tuple[Any, Any]:
    """(the loop after so many steps, the state of the random numbers before the first)."""
    random = np.random.RandomState(3)
    state = random.get_state()
    *_, last = itertools.islice(feed.batches(adapter, SIZE, random), steps)
    return SimpleNamespace(taken=steps, last=last), state


def failed(results: list[Any]) -> set[str]:
    return {result.tensor for result in results if not result.passed}


@pytest.mark.parametrize("made", FEEDS.values(), ids=FEEDS)
@pytest.mark.parametrize("steps", [1, 2, 5, 11])
@pytest.mark.parametrize(("rank", "count"), [(0, 1), (1, 2)])
def test_the_last_batch_of_every_feed_is_the_one_that_was_due(made: Any, steps: int, rank: int, count: int) -> None:
    feed = made(group(rank, count))
    loop, state = left(feed, steps, Incomplete())
    assert failed(items.check(feed, Incomplete(), loop, state, SIZE)) == set()
    # One step further, the batch is another one.
    loop.taken += 1
    assert failed(items.check(feed, Incomplete(), loop, state, SIZE)) == {rules.LAST_BATCH}


def test_one_number_of_a_batch_or_one_label_that_is_another_is_refused() -> None:
    feed = FEEDS["shuffled arrays"](group())
    loop, state = left(feed, 3, Incomplete())
    x, y = loop.last
    for changed in ((x + (x == x[0, 0, 0, 0]), y), (x, np.roll(y, 1)), (x[:-1], y[:-1])):
        loop.last = changed
        assert failed(items.check(feed, Incomplete(), loop, state, SIZE)) == {rules.LAST_BATCH}


@pytest.mark.parametrize(
    ("source", "twice", "passed"), [("generated", 1, False), ("files", 1, True), ("files", 3, False)]
)
def test_real_data_may_have_a_few_items_twice_and_a_stand_in_none(source: str, twice: int, passed: bool) -> None:
    data = arrays(40, 100, source)
    data.train_x[5 : 5 + twice] = data.test_x[7 : 7 + twice]
    feed = ArrayFeed(data, True, group())
    assert items.in_both(feed) == twice / 100
    loop, state = left(feed, 1, Incomplete())
    assert (failed(items.check(feed, Incomplete(), loop, state, SIZE)) == set()) is passed


def test_items_that_agree_where_they_are_looked_for_are_compared_in_full() -> None:
    data = arrays(2, 1)
    data.train_x[1] = data.test_x[0]
    data.train_x[1, 0, 0, 1] += 1.0
    assert items.in_both(ArrayFeed(data, True, group())) == 0.0


def test_a_picture_of_both_parts_is_one_by_its_name() -> None:
    whole = stored()
    shared = whole._replace(test=whole.test._replace(pictures=[8, 10, 11]))
    assert items.in_both(PictureFeed(shared, 1, group())) == pytest.approx(1 / 3)


def test_batches_that_processes_took_in_turns_are_in_the_order_of_the_file() -> None:
    assert items.in_file_order([[0, 3, 6], [1, 4], [2, 5]]) == [*range(7)]


class Evaluated:
    """An evaluation of held-out items by the reference itself."""

    def __init__(self, test: int = 10) -> None:
        self.feed, self.adapter = ArrayFeed(arrays(test=test), False, group()), Reference()
        specification = contract.specification(WORKLOAD)
        random = np.random.RandomState(1)
        self.adapter.load(
            {spec.name: random.normal(0, 0.1, spec.shape).astype("f") for spec in specification.PARAMETERS}
        )
        self.pairs = [(self.adapter.predict(x), y) for x, y in self.feed.held_out(Incomplete(), SIZE)]

    def failed(self, pairs: Any) -> set[str]:
        return failed(items.evaluated(WORKLOAD, self.feed, proof.numbers(self.adapter), "fp32", SIZE, pairs))


@pytest.mark.parametrize("test", [10, 3, 0])
def test_an_evaluation_of_what_is_held_out_passes(test: int) -> None:
    whole = Evaluated(test)
    assert sum(len(y) for _, y in whole.pairs) == {10: 8, 3: 3, 0: 4}[test]
    assert whole.failed(whole.pairs) == set()


def test_an_evaluation_that_leaves_out_items_takes_others_or_computes_with_other_weights_is_refused() -> None:
    whole = Evaluated()
    (first, y1), (second, y2) = whole.pairs
    both = {rules.HELD_OUT, "logits"}
    assert whole.failed([(first, y1)]) == both
    assert whole.failed([(first, y1), (second[:-1], y2)]) == both
    assert whole.failed([(second, y2), (first, y1)]) == both
    assert whole.failed([(first, y1), (first, y2)]) == {"logits"}
    assert whole.failed([(first, y1), (second * 1.01, y2)]) == {"logits"}
    assert whole.failed([(first, y1), (second, y2), (first, y1)]) == {rules.HELD_OUT}


def test_a_framework_s_array_is_read_by_its_own_word() -> None:
    class OfADevice:
        def cpu(self) -> Any:
            return SimpleNamespace(numpy=lambda: np.arange(3))

    assert np.array_equal(items.on_host(OfADevice()), np.arange(3))
    assert np.array_equal(items.on_host([1, 2]), [1, 2])


class ByHandle(Incomplete):
    """Its `inputs` puts a batch aside and returns names, as TensorFlow 1's session does."""

    def __init__(self) -> None:
        self.kept: dict[str, np.ndarray] = {}

    def inputs(self, x: Any, y: Any) -> tuple[str, str]:
        names = f"x {len(self.kept)}", f"y {len(self.kept)}"
        self.kept.update(zip(names, (x, y), strict=True))
        return names

    def array_of(self, value: str) -> np.ndarray:
        return self.kept[value]


def test_a_batch_that_lies_under_a_handle_is_looked_up() -> None:
    feed, adapter = FEEDS["arrays in file order"](group()), ByHandle()
    loop, state = left(feed, 3, adapter)
    assert failed(items.check(feed, adapter, loop, state, SIZE)) == set()
    adapter.kept[loop.last[1]] = np.roll(adapter.kept[loop.last[1]], 1)
    assert failed(items.check(feed, adapter, loop, state, SIZE)) == {rules.LAST_BATCH}
