"""Compiles the steps of JAX adapters for GPUs that are not here: run by an image's own interpreter, `runner images try --compile-for`.

XLA compiles for a GPU that it only has a description of. The function is the one that a cell measures: the adapter's own step is called,
and the first function under jit that it calls is compiled for each target in place of being run. So what the adapter donates, and each
branch that it takes on a GPU, is in it. Nothing is tuned, because tuning runs kernels: cuDNN's and cuBLAS's choices are not shown.

A target whose programs are those of its record is not compiled again: to lower a step takes seconds, to compile it a minute. What is
compared is the digest of what XLA would get: its flags, its text of the target, and the StableHLO of each program of the step. JAX
lowers for the platform, not for the model of a GPU, so a step is lowered once, and once more for each further target that is compiled.

Arguments: a JSON object with `framework`, `workload`, `precision`, `batch`, `threads`, `targets` (name -> XLA's text of the target), and
`recorded` (name -> the digest in the record, of the targets that have one).
Output: a JSON object a line for each program and target, and one for each target that is as recorded.
"""

import base64
import functools
import hashlib
import json
import os
import sys
import time
import types
import zlib

TASK = json.loads(sys.argv[1])

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
# The plugin says as an error that there is no GPU.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import SingleDeviceSharding  # noqa: E402

plain_jit = jax.jit

# Adapters ask it where a GPU takes another way than a CPU.
jax.default_backend = lambda: "gpu"


class Captured(BaseException):
    """The function that the adapter was about to run, and its arguments. No adapter catches it."""


class Jitted:
    """In place of a function under jit. While `armed`, the call that would run it is captured."""

    armed = False

    def __init__(self, function, **options):
        self.function = plain_jit(function, **options)
        functools.update_wrapper(self, function)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name):
        return getattr(self.function, name)

    def __call__(self, *arguments, **named):
        self.capture(arguments, named)
        return self.function(*arguments, **named)

    def lower(self, *arguments, **named):
        self.capture(arguments, named)
        return self.function.lower(*arguments, **named)

    def capture(self, arguments, named):
        # Within another function under jit it is traced as a part of that one.
        if Jitted.armed and not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arguments, named))):
            Jitted.armed = False
            raise Captured(self.function, arguments, named)


def capturing_jit(function=None, **options):
    return Jitted(function, **options) if function is not None else functools.partial(capturing_jit, **options)


jax.jit = capturing_jit

from bench import canonical, contract, data, feeds, operators, parallel, rules  # noqa: E402
from bench.errors import Unsupported  # noqa: E402
from bench.workloads import ops  # noqa: E402


def captured(call):
    """(function under jit, arguments, named arguments) of the first that `call` would run. Raises RuntimeError where it runs none."""
    Jitted.armed = True
    try:
        call()
    except Captured as stopped:
        return stopped.args
    finally:
        Jitted.armed = False
    raise RuntimeError("no function under jit was called")


def programs(adapter, batch):
    """(name, the function under jit, its arguments, its named ones) of what a cell of the workload measures."""
    specification = contract.specification(TASK["workload"])
    if isinstance(adapter, contract.Operators):
        yield from operations(adapter)
        return
    parameters, batches = canonical.parity_case(specification, getattr(adapter, "VARIANT", ""))
    adapter.load(parameters)
    if isinstance(adapter, contract.Inference):
        x = batches[0][0]
        images = adapter.inputs(np.resize(x, (batch, *x.shape[1:])))
        yield ("predict", *captured(lambda: adapter.predict(images)))
        return
    inputs = first_batch(adapter, specification, batch)
    yield ("step", *captured(lambda: adapter.step(*inputs)))


def first_batch(adapter, specification, batch):
    """What a cell's feed hands to the first step: the canonical pictures and texts are smaller than those that are trained on."""
    declared = rules.workload_declaration(TASK["workload"])
    name, preset, alone = declared["data"], declared["presets"]["quick"], parallel.Alone()
    items = max(preset["train_items"], batch)
    if name in rules.RANDOM:
        feed = feeds.PoolFeed(batch, specification.draw_items, 1, alone)
    else:
        loaded = data.load(name, None, items, preset["test_items"], 1, data.default_cache())
        if data.stays_in_files(name):
            feed = feeds.PictureFeed(loaded, TASK["threads"], alone)
        else:
            feed = feeds.ArrayFeed(loaded, specification.SHUFFLE, alone)
    return next(iter(feed.batches(adapter, batch, np.random.RandomState(1))))


def operations(adapter):
    """Each operation in each direction, at its smallest size. One that the framework refuses is told on standard error."""
    preset = rules.workload_declaration("ops")["presets"]["quick"]
    limits = preset["most_mop"], preset["most_bytes"], preset["most_sizes"], preset["attention_mop"]["cuda"]
    done = set()
    for point in ops.points(TASK["precision"], *limits):
        name = f"{point.operation} {point.direction}"
        # A copy is no program.
        if name in done or point.direction == ops.COPY:
            continue
        done.add(name)
        try:
            operators.refuse(point.operation, TASK["precision"])
            program = captured(functools.partial(start, adapter, point))
        except Unsupported as error:
            print(f"{name}: {error}", file=sys.stderr)
        else:
            yield (name, *program)


def start(adapter, point):
    """What starts an operation, on inputs drawn for it. Attention is started while it is made ready, to learn its kernel."""
    operation = ops.OPERATIONS.get(point.operation) or ops.OPTIMIZERS[point.operation]
    inputs = ops.draw_inputs(operation, point.size, np.random.RandomState(1), point.direction)
    (run,) = adapter.runs(point.operation, point.direction, [inputs])
    run()


def described(value, sharding):
    """An array as the compiler takes it: its shape and type, on the absent device. Anything else as it is."""
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
    return value


def described_device(text):
    """The one device of a topology. Raises Unsupported where XLA makes a topology of GPUs that it finds only."""
    try:
        return topologies.get_topology_desc(platform="cuda", target_config=text, topology="1x1x1").devices[0]
    except Exception as error:
        if "No visible GPU devices" not in str(error):
            raise
        why = f"the XLA of JAX {jax.__version__} compiles for GPUs that it finds, and takes no description of one"
        raise Unsupported(why) from None


def lowered(function, arguments, named, device):
    """The program before XLA compiles it; the exception in place of one that JAX does not lower."""
    sharding = SingleDeviceSharding(device)
    arguments, named = jax.tree.map(lambda value: described(value, sharding), (arguments, named))
    try:
        return function.trace(*arguments, **named).lower(lowering_platforms=("cuda",))
    except Exception as error:
        return error


def digests(lowerings):
    """A line for each program: its name, and the digest of its text."""
    lines = []
    for name, lowering in lowerings.items():
        text = type(lowering).__name__ if isinstance(lowering, Exception) else lowering.as_text()
        lines.append(f"{name} {hashlib.sha256(text.encode()).hexdigest()}\n")
    return "".join(lines)


def digest(target, texts):
    return hashlib.sha256(f"{os.environ['XLA_FLAGS']}\n{target}\n{texts}".encode()).hexdigest()


def compiled(lowering):
    if isinstance(lowering, Exception):
        raise lowering
    began = time.perf_counter()
    program = lowering.compile()
    memory = program.memory_analysis()
    return {
        "seconds": time.perf_counter() - began,
        "bytes": {
            "arguments": memory.argument_size_in_bytes,
            "results": memory.output_size_in_bytes,
            "aliased": memory.alias_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "code": memory.generated_code_size_in_bytes,
        },
        "text": base64.b64encode(zlib.compress(program.as_text().encode())).decode(),
    }


def main():
    devices = {target: described_device(text) for target, text in TASK["targets"].items()}
    setup = contract.Setup("cpu", TASK["precision"], "default", TASK["threads"], 1, True)
    contract.load_framework(TASK["framework"]).configure(setup)
    adapter = contract.load_adapter(TASK["framework"], TASK["workload"])(setup)
    steps = {name: program for name, *program in programs(adapter, TASK["batch"])}
    lowered_for = next(iter(devices))
    lowerings = {name: lowered(*program, devices[lowered_for]) for name, program in steps.items()}
    texts = digests(lowerings)
    for target, device in devices.items():
        of_target = {"target": target, "programs_sha256": digest(TASK["targets"][target], texts)}
        if TASK["recorded"].get(target) == of_target["programs_sha256"]:
            print(json.dumps({**of_target, "program": "", "as_recorded": True}), flush=True)
            continue
        if target != lowered_for:
            # A program is compiled for the device that it was lowered for.
            lowerings = {name: lowered(*program, device) for name, program in steps.items()}
            if digests(lowerings) != texts:
                raise RuntimeError(f"JAX lowers the step for {target} to another program than for {lowered_for}")
        for name, lowering in lowerings.items():
            line = {**of_target, "program": name}
            try:
                line.update(compiled(lowering))
            except NotImplementedError as error:
                # JAX refuses it by itself, as in a cell, which leaves the operation out.
                line["left_out"] = str(error)
            except Exception as error:  # the boundary: the other targets are compiled all the same
                line["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(line), flush=True)


main()
