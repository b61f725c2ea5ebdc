"""What a reader does with the report's sections: set two files side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import Browser

pytestmark = pytest.mark.browser


def test_two_files_of_a_workload_stand_side_by_side_as_chosen(browser: Browser, rich_page: Path) -> None:
    browser.open_whole(rich_page)
    browser.run("document.getElementById('workload-cnn-cifar10').open = true")
    browser.wait("document.querySelector('#workload-cnn-cifar10 .stones')")
    shown = """return [...document.querySelectorAll('#workload-cnn-cifar10 .stone')].filter((one) => one.open && one.offsetParent)
      .map((one) => [one.querySelector('summary').firstChild.textContent.trim(), one.getBoundingClientRect().top,
                     one.querySelectorAll('.code .k, .code .kn').length, one.querySelector('.lesson').textContent])"""
    browser.run("document.querySelector('#workload-cnn-cifar10 .stones').scrollIntoView()")
    browser.wait("document.querySelectorAll('#workload-cnn-cifar10 .stone[open] .code').length >= 2")
    left, right = browser.run(shown)
    assert (left[0], right[0]) == ("JAX", "TensorFlow 2")
    assert left[1] == right[1]  # at one height
    assert min(left[2], right[2]) > 3  # keywords stand out
    assert "Idiomatic here" in left[3]
    assert left[3] != right[3]
    choice = "document.querySelector('#workload-cnn-cifar10 .choices select[aria-label=\"Right file\"]')"
    browser.run(f"{choice}.value = 'PyTorch'; {choice}.dispatchEvent(new Event('change'))")
    browser.wait("document.querySelectorAll('#workload-cnn-cifar10 .stone[open] .code').length >= 2")
    assert {one[0] for one in browser.run(shown)} == {"JAX", "PyTorch"}
    assert browser.complaints() == []


def test_a_name_with_several_values_has_them_all_beside_it(browser: Browser, page: Path) -> None:
    browser.open_drawn(page)
    edges = browser.run(
        """return [...document.querySelectorAll('#measurements dl')].map((list) => {
          const edge = (tag, name) => [...list.querySelectorAll(tag)].map((one) => one.getBoundingClientRect()[name]);
          return [edge('dt', 'right'), edge('dd', 'left'), edge('dd', 'right')];
        })"""
    )
    assert len(edges) == 6
    assert any(len(values) > len(names) for names, values, _ in edges)
    for names, begins, ends in edges:
        assert len(set(begins)) == 1
        assert max(names) <= begins[0]
        assert min(ends) - begins[0] > 300
