"""What the Rosetta stone shows of an adapter is enough to learn its training: loss, optimiser, step and prediction, with their bodies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import identity, rules
from bench.contract import Training
from reports import specifications
from reports.page import rosetta_stone

TRAINED = [name for name in rules.workload_names() if rules.workload_declaration(name)["task"] == "train"]
CASES = [(framework, workload) for workload in TRAINED for framework in rosetta_stone.frameworks(workload)]

# What frameworks call a softmax cross-entropy or a sigmoid one, and the two optimisers; where an adapter writes one out, its quantities.
LOSS = re.compile(r"cross_?entropy|softmaxwithloss|softmaxoutput|nll|softplus", re.IGNORECASE)
OPTIMIZER = re.compile(r"momentum|velocity|sgd|adam|beta_?1|correct1", re.IGNORECASE)
# What classes of the frameworks themselves give to the subclasses that are shown.
INHERITED = {
    *("beta_1", "beta_2", "epsilon", "iterations", "momentum", "momentums", "_momentums", "_velocities", "assign"),
    *(
        "assign_sub",
        "_get_variable_index",
        "lr",
        "get_gradients",
        "beta2",
        "t",
        "init_scope",
        "training",
        "num_filters",
    ),
    *("get_slot", "_get_beta_accumulators", "_beta1_t", "_beta2_t", "_epsilon_t", "_lr_t", "name_scope"),
    *("_update_count", "_index_update_count", "_get_lr", "rescale_grad"),
}

OWED = ("load", "read", "probe", "step", "predict")


def shown(framework: str, workload: str) -> list[rosetta_stone.Code]:
    source = rosetta_stone.source(workload, framework)
    return [source, *source.helpers]


def functions(trees: list[ast.Module]) -> dict[str, list[ast.AST]]:
    """Name -> what it is defined as: functions, and values that are assigned to it or to an attribute of that name."""
    defined: dict[str, list[ast.AST]] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign):
            for target in (part for whole in node.targets for part in ast.walk(whole)):
                if isinstance(target, ast.Name | ast.Attribute) and isinstance(target.ctx, ast.Store):
                    name = target.id if isinstance(target, ast.Name) else target.attr
                    defined.setdefault(name, []).append(node.value)
    return defined


def reached(names: tuple[str, ...], defined: dict[str, list[ast.AST]]) -> tuple[set[str], set[str]]:
    """All words of the code that these functions call through `self` or by name, and the attributes of `self` that nothing defines."""
    words: set[str] = set()
    missing: set[str] = set()
    waiting, seen = list(names), set(names)
    while waiting:
        for node in (node for body in defined.get(waiting.pop(), []) for node in ast.walk(body)):
            word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                word = node.value
            if isinstance(word, str):
                words.add(word)
                if word in defined and word not in seen:
                    seen.add(word)
                    waiting.append(word)
            of_self = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            if of_self and isinstance(node, ast.Attribute) and node.attr not in defined:
                missing.add(node.attr)
    return words, missing


def definitions_of_another_language(text: str) -> Iterator[str]:
    """The functions that a file of R or Julia defines, as functions or as the parts of an object."""
    code = re.sub(r"#.*", "", text)
    yield from re.findall(r"\bfunction (\w+)\(", code)
    yield from re.findall(r"(\w+) (?:=|<-) (?:function\(|\(\) ->|\w+ ->|loss ->)", code)
    yield from (word for listed in re.findall(r"object\(; ([\w, ]+),", code) for word in listed.split(", "))
    # R takes a function that has the name of the part: `inputs = inputs`.
    yield from re.findall(r"(\w+) = \1\b", code)


@pytest.mark.parametrize(("framework", "workload"), CASES)
def test_what_is_shown_holds_the_loss_the_optimiser_the_step_and_the_prediction(framework: str, workload: str) -> None:
    codes = shown(framework, workload)
    trees = [ast.parse(code.text) for code in codes if code.language == "python"]
    others = "\n".join(code.text for code in codes if code.language != "python")
    if others:
        assert set(OWED) <= set(definitions_of_another_language(others))
        code = re.sub(r"#.*", "", others)
        assert LOSS.search(code)
        assert OPTIMIZER.search(code)
        return
    defined = functions(trees)
    # The contract has the others for those that do nothing of their own there.
    owed = [name for name in OWED if getattr(getattr(Training, name), "__isabstractmethod__", False)]
    assert [name for name in owed if not any(isinstance(node, ast.FunctionDef) for node in defined.get(name, []))] == []
    words, _ = reached(("step", "__init__", "load"), defined)
    assert any(LOSS.search(word) for word in words)
    assert any(OPTIMIZER.search(word) for word in words)
    words, missing = reached(("step", "predict", "probe", "__init__"), defined)
    # `setattr(self, "denseblock%d" % block, ...)`
    assert {name for name in missing - INHERITED if re.sub(r"\d+", "%d", name) not in words} == set()


@pytest.mark.parametrize(("framework", "workload"), CASES)
def test_only_the_framework_s_own_files_are_shown_beside_the_adapter(framework: str, workload: str) -> None:
    folders = set(identity.folders([framework], rules.BENCH))
    for helper in rosetta_stone.source(workload, framework).helpers:
        assert helper.path.split("/")[:2] == ["bench", "frameworks"]
        assert helper.path.split("/")[2] in folders
        whole = (rosetta_stone.PROJECT / helper.path).read_text()
        assert all(line in whole for line in helper.text.splitlines())


def test_of_a_helper_only_what_is_used_is_shown() -> None:
    helpers = {Path(helper.path).name: helper.text for helper in rosetta_stone.source("cnn-cifar10", "torch").helpers}
    assert "def to_device(" in helpers["framework.py"]
    assert "def compiled(" in helpers["framework.py"]
    for name in ("versions", "settings", "configure", "device", "synchronize"):
        assert f"def {name}(" not in helpers["framework.py"]
    assert "class Mixed" in helpers["_mixed.py"]


def test_a_comment_above_a_definition_and_its_decorators_are_shown_with_it() -> None:
    helpers = rosetta_stone.source("gru-imdb", "mxnet_gluon").helpers
    # Nothing names the module's class: it is imported for its effect.
    adam = next(helper.text for helper in helpers if helper.path.endswith("mxnet/_adam.py"))
    assert adam.startswith("@mxnet.optimizer.register\nclass ExactAdam")
    jax = next(
        helper.text for helper in rosetta_stone.source("gru-imdb", "jax").helpers if helper.path.endswith("_loop.py")
    )
    assert jax.startswith("# Adam's constants are explicit")


def test_another_language_s_helpers_are_found_in_the_files_that_its_entrypoint_reads() -> None:
    paths = [helper.path for helper in rosetta_stone.source("gru-imdb", "r_keras").helpers]
    assert "bench/frameworks/r_keras/framework.R" in paths
    assert "bench/frameworks/keras/_adam.py" in paths
    for framework in ("flux", "knet"):
        paths = [helper.path for helper in rosetta_stone.source("gru-imdb", framework).helpers]
        assert {f"bench/frameworks/{framework}/framework.jl", "bench/frameworks/julia/bench.jl"} <= set(paths)


def test_the_untested_say_so_and_every_framework_is_among_the_cases() -> None:
    assert {framework for framework, _ in CASES} == set(specifications.titles()) - {"onnxruntime"}
