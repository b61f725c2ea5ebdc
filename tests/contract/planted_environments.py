"""Environments with one fault each, made on top of a sound one: what is installed is the sound one's, and a start-up file spoils it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Runs a fault right after torch was imported, by whoever imports it.
_HOOK = """
import importlib.abc, importlib.util, sys, time

def fault(torch):
{fault}

class AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            fault(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, AfterTorch())
"""

_ONE_THREAD = """
    torch.set_num_threads(1)
    torch.set_num_threads = lambda count: None
"""

# Every product takes 15 % longer: forward, backward, and the bare one.
_SLOW_PRODUCT = """
    import torch.nn.functional as F
    def slower(call):
        def slow(*words, **more):
            begin = time.perf_counter()
            result = call(*words, **more)
            end = time.perf_counter()
            until = end + 0.15 * (end - begin)
            while time.perf_counter() < until:
                pass
            return result
        return slow
    F.conv2d, F.linear, torch.mm = slower(F.conv2d), slower(F.linear), slower(torch.mm)
    torch.conv2d = F.conv2d
    torch.Tensor.backward = slower(torch.Tensor.backward)
"""

# The loss is another one than the specification's: a tenth of each label is spread over all classes.
_ANOTHER_LOSS = """
    import torch.nn.functional as F
    sound = F.cross_entropy
    F.cross_entropy = lambda logits, labels, **more: sound(logits, labels, label_smoothing=0.1)
"""

FAULTS = {"sound": "    pass", "one-thread": _ONE_THREAD, "slow-product": _SLOW_PRODUCT, "another-loss": _ANOTHER_LOSS}


def make(folder: Path, python: Path, fault: str, lines: str = "", early: str = "") -> Path:
    """An environment in `folder` with what `python`'s has, and the fault; returns its interpreter.

    `lines` stand in for the fault's, and `early` ones run before anything is imported.
    """
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    sound = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    own = folder / "bin" / "python"
    packages = Path(subprocess.run([own, "-c", where], capture_output=True, text=True, check=True).stdout.strip())
    (packages / "sound.pth").write_text(sound + "\n")
    (packages / "sitecustomize.py").write_text(early + _HOOK.format(fault=lines or FAULTS[fault]))
    return own


if __name__ == "__main__":  # python planted_environments.py FOLDER PYTHON: all of them
    for name in FAULTS:
        print(make(Path(sys.argv[1]) / name, Path(sys.argv[2]), name))
