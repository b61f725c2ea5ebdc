"""The files of a new image, and of a framework that the project does not have: a start that can be measured, and is then written anew.

The adapters compute by the bench's own reference in NumPy, so that the check and a cell pass before the first line is written. Each part
of them becomes the framework's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from runner.catalog.images import NAME, CatalogError
from runner.errors import UserError, naming
from runner.paths import BENCH

_OF_AN_IMAGE = re.compile(r"(?P<framework>[a-z0-9_-]+)-(?P<version>[0-9][a-z0-9.]*)-cpu")
WORKLOADS = ("cnn-cifar10", "gru-imdb")

_IMAGE = """\
frameworks = ["{framework}"]
framework_version = "{version}"
python = "{python}"
accelerator = "cpu"
base = "python:{python}-slim-bookworm"
precisions = ["fp32"]
# `runner images lock` writes these two.
locked = {day}
download_gb = 0.01
"""

_FRAMEWORK = '''\
"""Switches, versions and device of {framework}, for every workload. bench/contract.py says what else a framework may tell."""

from importlib import metadata

import numpy  # noqa: F401 - the framework itself, once an adapter uses it

from bench import environment

NAME = "{framework}"


def configure(setup):
    """Threads, precision and seed, before the framework computes anything."""


def versions():
    return {{"framework": metadata.version("{package}")}}


def device(setup):
    return environment.cpu_device(setup.devices)


def settings():
    return {{}}
'''

_ADAPTER = '''\
"""{workload}, as the bench's reference computes it in NumPy: write network, loss, optimiser and evaluation in {framework}."""

import numpy as np

from bench import arithmetic, contract


class Training(contract.Training):
    """bench/contract.py says what each method owes. bench/frameworks/torch/{module}.py is a model."""

    def __init__(self, setup):
        self.network = contract.specification("{workload}")
        self.random = np.random.RandomState(setup.seed)
        self.dropout = setup.training and self.network.DROPOUT

    def load(self, parameters):
        self.parameters = {{name: value.astype("float64") for name, value in parameters.items()}}
        self.optimizer = self.network.optimizer()

    def read(self):
        return dict(self.parameters)

    def probe(self, x, y):
        return self._computed(x, y)

    def step(self, x, y):
        how = {{"masks": self.network.draw_masks(self.random, len(x))}} if self.dropout else {{}}
        _, loss, gradients = self._computed(x, y, **how)
        self.optimizer.update(self.parameters, gradients, arithmetic.Exact())
        return loss

    def predict(self, x):
        return self._computed(x, np.zeros(len(x), dtype="int32"))[0]

    def _computed(self, x, y, **how):
        return self.network.loss_and_gradients(self.parameters, x.astype(x.dtype.kind + "8"), y, arithmetic.Exact(), **how)
'''


def new_image(name: str, packages: Sequence[str], python: str, catalog: Path, day: date) -> list[Path]:
    """Write the folder of a CPU image, and that of its framework where there is none: the files. Raises UserError and CatalogError."""
    parts = _OF_AN_IMAGE.fullmatch(name)
    if parts is None or not NAME.fullmatch(name):
        raise UserError(
            f"{name!r:.200}: write FRAMEWORK-VERSION-cpu, such as tinygrad-0.14.0-cpu; an image with CUDA is a neighbour's folder, "
            "copied, or `runner images update --cuda`"
        )
    framework = parts["framework"].replace("-", "_")
    if (catalog / name).exists():
        raise CatalogError(f"{catalog / name} is there already; name another image")
    fields = {"framework": framework, "version": parts["version"], "python": python, "day": day.isoformat()}
    asked = list(packages) or [f"{parts['framework']}=={parts['version']}", "numpy"]
    texts = {
        catalog / name / "image.toml": _IMAGE.format(**fields),
        catalog / name / "requirements.in": "\n".join(asked) + "\n",
    }
    if not (BENCH / "frameworks" / framework).exists():
        texts |= _framework(framework, re.split(r"[^\w.-]", asked[0])[0])
    for path, text in texts.items():
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return list(texts)


def _framework(framework: str, package: str) -> dict[Path, str]:
    """The files of a framework. Its version is that of a package."""
    folder = BENCH / "frameworks" / framework
    declared = {"title": framework, "modes": {"default": "operation by operation"}, "uncounted": list(WORKLOADS)}
    adapters = {workload: workload.replace("-", "_") for workload in WORKLOADS}
    return {
        folder / "__init__.py": f'"""{framework}: what it is and where it comes from."""\n',
        folder / "framework.json": json.dumps(declared) + "\n",
        folder / "framework.py": _FRAMEWORK.format(framework=framework, package=package),
        **{
            folder / f"{module}.py": _ADAPTER.format(workload=workload, module=module, framework=framework)
            for workload, module in adapters.items()
        },
    }
