"""Facts that the planner on the host and the bench in an image both need. Each stands here once.

Python 3.6 and the standard library. Of the bench the host imports only this module, bench.protocol and bench.identity.
A function that ends in `_reason` returns the sentence that says why something is left out, or None where it is not.
"""

import io
import json
import os
import re

BENCH = os.path.dirname(os.path.abspath(__file__))
FRAMEWORKS = os.path.join(BENCH, "frameworks")
WORKLOADS = os.path.join(BENCH, "workloads")

# In the order in which a reader expects them. A cell may enter one several times ("evaluate"), or never ("profile").
PHASES = ("import", "data", "build", "parity", "compile", "warm-up", "train", "evaluate", "proof", "profile")

PRESETS = ("quick", "standard", "full")

# Of several devices, which batch stays as the workload has it: that of each device, or that of all together.
SCALINGS = ("weak", "strong")

# How framework.json says that a framework uses several devices: a process a device, the same started by mpiexec,
# or one process that sees all devices.
PROCESSES, MPI, ONE_PROCESS = "processes", "mpi", "one-process"

# A workload's task -> the name of the class that computes it in an adapter (bench.contract).
TASKS = {"train": "Training", "infer": "Inference", "decode": "Decoding", "operators": "Operators"}

# The task of a person's own network, and the pattern of its name: that of its file or folder, and the first digits of the sha256 of it.
OWN = "own"
_OWN_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*@[0-9a-f]{12}\Z")
# Of each preset: the most seconds, the least windows, and the noise that is enough, as most networks of the catalog have them.
_OWN_PRESETS = {"quick": (10, 30, 0.01), "standard": (90, 100, 0.005), "full": (300, 300, 0.003)}
# Its settings by which the host holds two images against each other: the losses of its first steps in float64, the digest of its batches,
# and that of the names and shapes of its drawn parameters. Where it has no proof in float64: why, the losses of several seeds as it was
# measured, those of the first steps first, and how far the same steps scatter.
OWN_LOSSES, OWN_BATCHES, OWN_NAMES = "network_float64_losses", "network_batches", "network_parameters"
OWN_WHY, OWN_SEEDS, OWN_SCATTER = "network_not_in_float64", "network_losses_of_seeds", "network_losses_scatter"
# Of one whose DROPOUT is True: "drawn" if its measured step drew random numbers, else "none". And its layers that are in eval() mode.
OWN_RANDOM, OWN_EVAL = "network_random_numbers", "network_layers_in_eval_mode"
# The largest error that a host believes of a network's own steps, whatever bound the cell derived: of a loss relative to it, of a
# tensor's movement relative to that, and how many tensors stayed.
OWN_BOUNDS = {
    "loss": {"fp32": 1e-3, "tf32": 0.02, "fp16": 0.02, "amp-fp16": 0.02, "bf16": 0.1, "amp-bf16": 0.1},
    "parameter": 0.5,
    # Of all parameters as one vector, at precisions of WIDE: a step across the right one errs by 1.4.
    "together": 0.9,
    "moved": 0.5,
}

# "data" of a workload that trains on random numbers in memory. Of every other one it is the name of a module of bench/data.
RANDOM = ("random-images", "random-tokens")

# The modes that say how pictures lie in memory, in the place of bench.frameworks.pictures.layouts -> the order of the axes; and how the
# names of the workloads begin that convolve pictures.
LAYOUTS = {"channels-first": "NCHW", "channels-last": "NHWC"}
_PICTURES = ("cnn-cifar10", "cnn-mnist", "densenet121-", "resnet50-")

# Mixed precision -> its half type: a device that has the one can compute the other.
MIXED = {"amp-fp16": "fp16", "amp-bf16": "bf16"}

_HALF = frozenset(MIXED) | frozenset(MIXED.values())

# Precisions whose bounds are so wide that mistakes hide in them: the epsilon that another framework has by default moves the reference by
# less than a bound. A test plants each of them, and asks the stored bounds.
WIDE = _HALF | {"tf32"}

# Libraries read these when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# How the names of variables begin by which a site or a user makes frameworks and their libraries faster or slower.
STEERING = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "MKLDNN_", "OPENBLAS_", "GOTO_", "BLIS_", "ATEN_", "TORCH", "PYTORCH_", "TF_",
    "XLA_", "JAX_", "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "LD_PRELOAD", "LD_BIND_NOW", "LD_AUDIT", "LD_DEBUG", "GLIBC_TUNABLES",
    "MALLOC_", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONASYNCIODEBUG",
)  # fmt: skip
# Of these the ones that the runner or a framework's adapter sets, or that an image has: where files lie, which devices are seen.
NOT_STEERING = (
    "CUDA_CACHE_", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_", "NVIDIA_PRODUCT_NAME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCH_HOME",
    "XLA_PYTHON_CLIENT_", "TF_CPP_", "TF_CLI_", "TF_VAR_", "JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR", "TF_FORCE_GPU_ALLOW_GROWTH",
    "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK",
)  # fmt: skip


def steering(environment):
    """The variables among these that steer a framework: name -> value, without those that are empty."""
    return {
        name: environment[name]
        for name in sorted(environment)
        if name.startswith(STEERING) and not name.startswith(NOT_STEERING) and environment[name]
    }


# Names of metrics that the report looks for.
WAITING_FOR_DATA = "waiting for data"  # the share of a window's time
SKIPPED_STEPS = "skipped steps"  # by a loss scaler, so far
_OF_CLASS = "AUC of "
# Of networks that compute token by token, in seconds: of each prompt, and of all steady steps of a cell.
FIRST_TOKEN = "time to the first token"
BETWEEN_TOKENS, BETWEEN_TOKENS_99 = "time between tokens, median", "time between tokens, 99th percentile"

# A cell is host-bound where kernels ran in less than this share of a step's time: a GPU that is twice as fast would save less than a
# quarter of it, so the figure says more of the host than of the GPU.
HOST_BOUND = 0.5

# `what` of the event left-out, of a cell whose framework keeps no count of the optimiser's steps.
COUNT_OF_UPDATES = "the optimiser's count of its steps"
LOSSES_COMPARED = "the losses of training against the reference's"
MEASURED_STEPS = "some measured steps against the adapter's own gradients"
# `what` of others.
PEAK_OF_WINDOWS = "the peak of the device's memory in the measured windows alone"
SHARE_OF_KERNELS = "the share of a step's time in which kernels ran"
# Of a person's own network that has no proof in float64.
OWN_LEFT_OUT = {"the losses in float64": "loss", "the movement in float64": "parameter"}
EXCUSES = dict(OWN_LEFT_OUT, **{COUNT_OF_UPDATES: "updates", LOSSES_COMPARED: "learning"})

# The end of the name of a single operation's check at a size that was measured (bench.operators). Its error is in bounds.
LAST_RUN = ", last run"

# The quantities of the items that a cell took (bench.items), and the tensors of three.
TAKEN = ("items", "evaluated")
LAST_BATCH, IN_BOTH, HELD_OUT = "the last batch", "test items in training", "held-out items"
# The quantity of the last sequence that was measured token by token (bench.decoding), and two of its tensors.
DECODED, GREEDY, DIGITS_OF_CACHE = "decoded", "greedy tokens", "digits of the cache"
# The quantity of what is exact in some steps, by the end of a tensor's name (bench.digits, bench.measured, bench.parity).
EXACT = {
    # A number of an embedding's row that no batch named moves, or moves otherwise than Adam's moments say: one is too many.
    ", rows at rest": 0.5,
    # In bounds, which bench.measured derives for each tensor.
    ", loss": 1.0,
    ", gradient": 1.0,
    ", first gradients": 1.0,
    # In bounds, of bench.inference.
    ", measured pictures": 1.0,
    # Tensors that did not move in three steps: one is too many.
    ", moved": 0.5,
    # Shares, of bench.digits.
    ", digits": 0.5,
    ", silent units": 0.5,
    ", activations": 0.5,
    # Half of a batch is 1. PyTorch's first steps of cnn-cifar10 err by 0.1 (deviation 0.04, over 14 seeds), at most by 0.25; where a step
    # takes half of its items, it is 0.5 to 1.1, and of three quarters 0.4 to 0.7.
    ", labels": 0.4,
}
# The largest relative error of the evaluation's logits. Training has moved the parameters to where no reference has bounds. The errors that
# were seen are in docs/workloads.md; logits of another item, or of weights that are some steps older, are off by a tenth and more.
LOGITS_OF_EVALUATION = {"fp32": 1e-3, "tf32": 0.03, "fp16": 0.01, "bf16": 0.06, "amp-fp16": 0.1, "amp-bf16": 0.3}

# An adapter is a file of one of these languages.
SUFFIXES = (".py", ".R", ".jl")
# Files in a framework's folder with a role of their own (bench.contract); "bench" is the entrypoint of another language.
_ROLES = ("framework", "parallel", "profile", "ceilings", "own", "bench")


def whole(text):
    """The whole number that a text of a stranger's is; None where it is none, or has more than 18 digits.

    Python's `isdigit` is true of "²", which `int` refuses. Of thousands of digits `int` raises too.
    """
    return int(text) if 0 < len(text) <= 18 and set(text) <= set("0123456789") else None


def seconds_column(phase):
    """The column of the results that holds a phase's seconds."""
    return phase.replace("-", "") + "_seconds"


def auc_of(label):
    """The name of the metric of one class of a multi-label network."""
    return _OF_CLASS + label


def label_of(metric):
    """The class that a metric of `auc_of` is of; "" for every other metric."""
    return metric[len(_OF_CLASS) :] if metric.startswith(_OF_CLASS) else ""


def framework_names(folder=FRAMEWORKS):
    """The frameworks: the folders that hold a framework.json. A folder without one is code that frameworks share."""
    return sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name, "framework.json")))


def framework_declaration(name, folder=FRAMEWORKS):
    """A framework.json as a dict; runner.catalog.frameworks describes its fields. Raises ValueError with what is wrong."""
    return _read(os.path.join(folder, name, "framework.json"), ("adapters", "backend", "no_tf32"))


def workload_names(folder=WORKLOADS):
    """The workloads: the .json files."""
    return sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".json"))


def workload_declaration(name, folder=WORKLOADS):
    """A workload's .json as a dict; runner.catalog.workloads describes its fields. Raises ValueError with what is wrong.

    Of a person's own network there is no .json: it is what all of them share.
    """
    if is_own(name):
        return own_declaration(name)
    return _read(os.path.join(folder, name + ".json"), ("computes",))


def is_own(workload):
    """True if this is the name of a person's own network."""
    return _OWN_NAME.match(workload) is not None


def own_frameworks():
    """The frameworks in which own networks are proved: those that have an own.py."""
    return [name for name in framework_names() if os.path.isfile(os.path.join(FRAMEWORKS, name, "own.py"))]


def own_declaration(name):
    """The part of the declaration of a person's own network that does not hang on its file."""
    presets = {}
    for preset, (seconds, windows, noise) in _OWN_PRESETS.items():
        presets[preset] = {"seconds": seconds, "windows": windows, "noise": noise, "epochs": None}
        presets[preset].update(train_items=0, test_items=0)
    declared = {"name": name, "title": name.partition("@")[0], "task": OWN, "data": OWN, "items": "items", "batch": 1}
    return dict(declared, chance=None, metric=None, precisions=sorted(OWN_BOUNDS["loss"]), presets=presets)


def module_of(workload, declaration):
    """The stem of the files that compute a workload: its own name, or that of the workload which its .json "computes"."""
    return (declaration.get("computes") or workload).replace("-", "_")


def dropout_path(workload):
    """The path of the movement of a workload's parameters under dropout (bench.dropout)."""
    return os.path.join(WORKLOADS, (workload_declaration(workload).get("computes") or workload) + ".dropout.npz")


def has_dropout(workload):
    """True if training has dropout: then its movement is stored."""
    return os.path.isfile(dropout_path(workload))


def losses_of(workload):
    """The workload whose losses are a cell's: that of its network, where the data are the same."""
    network = network_of(workload)
    same = workload_declaration(network).get("data") == workload_declaration(workload).get("data")
    return network if same else workload


def losses_path(workload, batch):
    """The path of the losses of several seeds (bench.learning), for a batch."""
    return os.path.join(WORKLOADS, "%s.%d.learning.txt" % (losses_of(workload), batch))


def losses_path_of_seed(workload, batch, seed, items):
    """The path of the losses of several runs of one seed, with `items` items for training."""
    return os.path.join(WORKLOADS, "%s.%d-of-%d.seed%d.learning.txt" % (losses_of(workload), batch, items, seed))


def stored_losses(workload, batch, seed, items, precision):
    """The path of the losses that a cell is held against: those of its own seed, those of other seeds, or None."""
    own, others = losses_path_of_seed(workload, batch, seed, items), losses_path(workload, batch)
    if precision == "fp32" and os.path.isfile(own):
        return own
    return others if os.path.isfile(others) else None


def losses_reason(stored, source, devices):
    """Why the losses of a cell are not compared, or None. stored: of stored_losses; source: that of the data event."""
    if source != "generated":
        return "the stored losses are those of the stand-in, and this cell trains on files"
    if devices > 1:
        return "the stored losses are those of one device"
    if stored is None:
        return "no losses are stored for this batch, seed and precision"
    return None


def checks_all_before(preset):
    """True if the phase "parity" also checks all of the optimiser's steps. Otherwise the phase "proof" does.

    With dropout "proof" does it less exactly. Then "parity" checks the first steps ("movement").
    """
    return preset == "full"


def due(workload, preset):
    """The (phase, quantity) of the parity events that a cell owes before it ends.

    The phase "parity" checks an adapter without dropout, before anything is measured. "proof" checks the one that was measured.
    A cell whose framework keeps no count of its steps, or whose losses have nothing to be held against, says so by an event "left-out" of
    EXCUSES, in place of the quantity.
    """
    task = workload_declaration(workload)["task"]
    if task == OWN:
        return tuple(("proof", quantity) for quantity in ("loss", "parameter", "moved"))
    if task == "decode":
        return ("parity", "logits"), ("proof", "logits"), ("proof", DECODED)
    if task == "operators":
        return ("parity", "operation"), ("proof", "operation")
    if task == "infer":
        return ("parity", "features"), ("proof", "features"), ("proof", "exact")
    before = ("logits", "loss", "gradient")
    if checks_all_before(preset):
        before += ("parameter",)
    elif has_dropout(workload):
        before += ("movement",)
    after = ("moved", "updates", "learning", "prediction")
    after += ("landing", "dropout") if has_dropout(workload) else ("parameter",)
    # Random numbers have no item that could be another one, and nothing is evaluated on them.
    after += TAKEN if workload_declaration(workload)["data"] not in RANDOM else ()
    return tuple(("parity", quantity) for quantity in before) + tuple(("proof", quantity) for quantity in after)


def taken(precision):
    """(quantity, tensor) of TAKEN -> the largest error, of bench.items.

    Wrong numbers of a batch and wrong held-out items are counted: one is too many. A share of the test part may be in the training part:
    real sets have a few pictures or reviews twice. The error of the logits is relative.
    """
    bounds = {("items", LAST_BATCH): 0.5, ("items", IN_BOTH): 0.02, ("evaluated", HELD_OUT): 0.5}
    bounds["evaluated", "logits"] = LOGITS_OF_EVALUATION[precision]
    return bounds


def decoded(precision):
    """(DECODED, tensor) -> the largest error, of bench.decoding. Greedy tokens are counted: one that is another is too many.

    Of the numbers in the cache so large a share may have the digits of a shorter type: 1/8192 of float32's have those of float16, 1/16 of
    bfloat16's those of fp8.
    """
    shorter = 0.5 if precision in WIDE else 0.01
    return {
        (DECODED, "logits"): LOGITS_OF_EVALUATION[precision],
        (DECODED, GREEDY): 0.5,
        (DECODED, DIGITS_OF_CACHE): shorter,
    }


def adapters_of(framework, folder=FRAMEWORKS):
    """The stems of a framework's adapters: a set of the workloads' modules that it computes.

    A file is an adapter unless it has a role, or is a helper, whose name begins with "_".
    """
    shared = framework_declaration(framework, folder).get("adapters")
    names = [name for owner in (framework, shared) if owner for name in os.listdir(os.path.join(folder, owner))]
    stems = {os.path.splitext(name)[0] for name in names if name.endswith(SUFFIXES) and name[0] not in "_."}
    return stems.difference(_ROLES)


def adapter_path(framework, stem, folder=FRAMEWORKS):
    """The path of the file that computes `stem` in a framework, or that has a role there; None where none does.

    `stem` is a workload's module, or a role: "profile" or "ceilings". The framework's own folder comes first. Otherwise
    a workload is looked up in the folder that "adapters" in framework.json names, and a role in the one of "backend".
    """
    shared = framework_declaration(framework, folder).get("backend" if stem in _ROLES else "adapters")
    for name in (framework, shared) if shared else (framework,):
        for suffix in SUFFIXES:
            path = os.path.join(folder, name, stem + suffix)
            if os.path.isfile(path):
                return path
    return None


def adapter_module(framework, stem, folder=FRAMEWORKS):
    """The module of `adapter_path`, as importlib takes it; None where there is no such file.

    The entrypoint of another language provides its modules under the same names.
    """
    path = adapter_path(framework, stem, folder)
    if path is None:
        return None
    return "bench.frameworks.%s.%s" % (os.path.basename(os.path.dirname(path)), stem)


def mode_reason(framework, mode, modes, exceptions, where, devices):
    """`modes` and `exceptions` are "modes" and "modes_except" of framework.json.

    The latter holds, for each mode, what has it not: a kind of device, a precision, a workload or "several" devices -> the reason. `where`
    are the cell's kind of device, precision and workload, in this order.
    """
    if mode not in modes:
        names = sorted(modes, key=lambda name: (name != "default", name))
        return "%s has no mode %r; it has %s" % (framework, mode, ", ".join(names))
    if mode in LAYOUTS and not where[-1].startswith(_PICTURES):
        return "%s has no mode %r: %s convolves no pictures" % (framework, mode, where[-1])
    for exception in where + (("several",) if devices > 1 else ()):
        if exception in exceptions.get(mode, {}):
            return "%s has no mode %r here: %s" % (framework, mode, exceptions[mode][exception])
    return None


def precision_reason(workload, precisions, precision):
    """`precisions` are those of the workload's .json."""
    return None if precision in precisions else "%s is not specified at %s" % (workload, precision)


def tf32_reason(framework, why, precision):
    """`why` is "no_tf32" of framework.json: why the framework cannot be told to compute in tf32; None where it can."""
    return "%s does not compute in tf32: %s" % (framework, why) if why and precision == "tf32" else None


def half_reason(framework, half, workload, precision, device_kind, devices):
    """Mixed precision and half types of one framework, of networks; `half` is that of its framework.json.

    It holds, for each such precision, the exceptions: a kind of device or a workload -> the reason.
    """
    if precision not in _HALF or _is_of_operators(workload):
        return None
    if precision not in half:
        return "%s does not compute %s here" % (framework, precision)
    for exception in (device_kind, workload):
        if exception in half[precision]:
            reason = half[precision][exception]
            return "%s does not compute %s on %s: %s" % (framework, precision, exception, reason)
    if devices > 1 and precision in MIXED:
        return "%s is measured on one device: loss scaling was not proved on several" % precision
    return None


def gpu_only_reason(workload, why, device_kind):
    """`why` is "gpu_only" of the workload's .json: why a CPU does not measure it; None where it does."""
    return "%s is measured on GPUs only: %s" % (workload, why) if why and device_kind == "cpu" else None


def canonical_batch(declaration):
    """The items of a batch of the parity check: the workload's own batch, or "parity_batch" of its .json."""
    return declaration.get("parity_batch") or declaration["batch"]


def several_devices_reason(framework, parallel, workload, task, batch, devices):
    """`parallel` is that of framework.json or None; `batch` is that of `canonical_batch`."""
    if devices == 1:
        return None
    if task in ("infer", "decode", OWN):
        return "%s is measured on one device: only training and ops use several" % workload
    if parallel is None:
        return "%s uses one device here" % framework
    # On several devices ops measures collectives, which share no batch.
    if task == "train" and batch % devices:
        return "%d devices cannot share %s's batch of %d evenly, and parity is proved on it" % (
            devices,
            workload,
            batch,
        )
    return None


def network_of(workload):
    """The workload whose network and reference this one has."""
    return workload_declaration(workload).get("computes") or workload


def rests_on_fp32(workload, precision):
    """True if a figure at this precision counts only where the same adapter passed parity at fp32 too. Operations have narrow bounds."""
    return precision in WIDE and not _is_of_operators(workload)


def _is_of_operators(workload):
    return workload_declaration(workload)["task"] == "operators"


def batch_of_all(batch, devices, scaling):
    """The items in a step of all devices together."""
    return batch * devices if scaling == "weak" else batch


def _read(path, texts):
    """A JSON object. Raises ValueError with what is wrong: with the file, or with one of the fields that are texts where they stand."""
    try:
        with io.open(path, encoding="utf-8") as file:
            declared = json.load(file)
    except RecursionError:
        raise ValueError("not JSON: it is nested too deeply")
    except ValueError as error:
        raise ValueError("not JSON: %s" % error)
    if not isinstance(declared, dict):
        raise ValueError("it is not a JSON object")
    for name in texts:
        if not isinstance(declared.get(name, ""), str):
            raise ValueError("%s: it is not a text" % name)
    return declared
