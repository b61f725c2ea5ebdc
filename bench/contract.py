"""The interfaces of a framework's code and of a workload's specification: classes to fulfil, with defaults.

An adapter, bench/frameworks/<framework>/<workload>.py, holds one class: Training, Inference, Decoding or Operators, by the task in the
workload's .json. framework.py, in the same folder, fulfils Framework; a workload's .py fulfils Specification. Both are modules, and
the bench reads them through these two classes, which have the defaults.

A framework's folder may hold three more files. parallel.py says how several devices work together (bench.parallel).
profile.py has `operations(run, device)` and `kernels(run)` (bench.profiling). ceilings.py has `calls(device)`: functions for a
matrix product, a copy and the smallest operation (bench.ceilings). Its
`loads(device)`, where there is one, are what loads a device fully (bench.load).
"""

import abc
import collections
import contextlib
import importlib
import os
import re
import traceback

from bench import rules
from bench.errors import BrokenImportError, Unsupported, says_out_of_memory

# The one argument of an adapter's class.
# device: "cpu" | "cuda"; precision: "fp32" | "tf32" | "amp-fp16" | "amp-bf16" (bench.mixed), of ops others;
# mode: how the framework compiles, "default" its own habit; threads: CPU threads to compute with;
# seed: of everything random in training (dropout); training: False in the parity check, where dropout is off;
# devices: how many share a batch (bench.parallel); rank: which of them this process is, where each has a process.
Setup = collections.namedtuple("Setup", "device precision mode threads seed training devices rank")
Setup.__new__.__defaults__ = (1, 0)  # most cells have one device


class _Adapter(abc.ABC):
    """The base of all adapters. They are built as Class(setup): network, loss, optimiser.

    compile: a method where building the step is a phase of its own, which is timed as "compile"; otherwise None.
    VARIANT: where the framework's own layer computes something else, the specification's name for that; then VARIANT_REASON says why.
    """

    VARIANT = VARIANT_REASON = ""
    compile = None


class Training(_Adapter):
    """Task "train". If setup.training is False dropout is off, and batch normalisation is as in training."""

    @abc.abstractmethod
    def load(self, parameters):
        """Take canonical name -> float32 array into the model. The optimiser starts afresh."""

    @abc.abstractmethod
    def read(self):
        """The model's parameters as `load` takes them."""

    def inputs(self, x, y):
        """(x, y) in the layout and types that `step` takes. Fixed batches may be put on the device here."""
        return x, y

    def array_of(self, value):
        """The array of what `inputs` returned for x or y, NumPy's or the framework's. An adapter that returns handles looks it up."""
        return value

    @abc.abstractmethod
    def probe(self, x, y):
        """(logits, loss, {name: gradient}) of one batch, as float32 NumPy arrays. Nothing is updated."""

    @abc.abstractmethod
    def step(self, x, y):
        """Take one step of the optimiser. Returns the loss without waiting for it.

        A batch that `inputs` left in host memory is copied to the device here. In no framework is it pinned or copied ahead.
        """

    def value(self, loss):
        """The result of `step`, as a float."""
        return float(loss)

    @abc.abstractmethod
    def predict(self, x):
        """The logits in evaluation mode, as a NumPy array. No gradients are computed."""

    def set_rate(self, rate):
        """The learning rate from the next step on. The momentum stays what it is. Only schedules need it."""
        raise NotImplementedError("this workload changes its learning rate, and the adapter has no set_rate(rate)")

    def share_statistics(self):
        """Give each device the mean of all devices' running statistics, where they have their own. Called before an evaluation."""

    def masks(self):
        """The state that the next step's dropout is drawn from, as `redraw` takes it; None where it cannot be told."""
        return None

    def redraw(self, masks):
        """Let the next `probe` draw the masks that the step after `masks()` drew."""
        raise NotImplementedError("this adapter has masks() and no redraw(masks)")

    def skipped(self):
        """How many of the steps so far the loss scaler of mixed precision skipped."""
        return 0

    def updates(self):
        """How many steps the optimiser has taken since `load`, by its own count; None where the framework keeps no count."""
        return None


class Inference(_Adapter):
    """Task "infer"."""

    @abc.abstractmethod
    def load(self, parameters):
        """Take canonical name -> float32 array into the model."""

    @abc.abstractmethod
    def inputs(self, x):
        """A batch of any size as `predict` takes it, still in host memory."""

    @abc.abstractmethod
    def predict(self, x):
        """The features, as a NumPy array in host memory."""


class Decoding(_Adapter):
    """Task "decode": a network that computes token by token, with a cache of keys and values. Its tokens are NumPy arrays of int32."""

    @abc.abstractmethod
    def load(self, parameters):
        """Take canonical name -> float32 array into the model."""

    @abc.abstractmethod
    def prefill(self, prompts):
        """Begin new sequences, (N, T) tokens each at once. Returns the greedy token (N,) after each, in host memory."""

    @abc.abstractmethod
    def step(self, tokens):
        """Take the next token (N,) of each sequence. Returns the greedy token (N,) after it, in host memory."""

    @abc.abstractmethod
    def logits(self):
        """The logits (N, vocabulary) of the last prefill or step, as a float32 NumPy array. They were computed there."""

    @abc.abstractmethod
    def cached(self):
        """The keys and values as they are stored, of all blocks: a list of float32 NumPy arrays, in any layout."""


class Operators(_Adapter):
    """Task "operators": the single operations of bench.workloads.ops."""

    # True: it has attention. What a backend or the device lacks, runs() refuses.
    ATTENTION = False
    # Of bench.collectives those that several devices have.
    COLLECTIVES = ("all_reduce",)
    # The kernel that the runs of the last runs() take, where the framework has several and tells; None otherwise.
    kernel = None

    @abc.abstractmethod
    def runs(self, operation, direction, buffers):
        """One function for each set of inputs (name -> array): it starts one run. Raises Unsupported."""

    @abc.abstractmethod
    def values(self, operation, direction, result):
        """The result of such a function, as NumPy arrays."""


class Wrapper(object):
    """A Training around another one. A subclass overrides what several devices do otherwise; the rest is the other one's."""

    def __init__(self, training):
        self.training = training

    def __getattr__(self, name):
        return getattr(self.training, name)


Training.register(Wrapper)


def _of_another_language(build, base):
    """An adapter class of R or Julia. There `build(setup)` makes a plain object with some of the methods; the rest is the contract's."""

    class Adapter(base):
        VARIANT, VARIANT_REASON = getattr(build, "VARIANT", ""), getattr(build, "VARIANT_REASON", "")

        def __init__(self, setup):
            self.__dict__.update(vars(build(setup)))

    Adapter.__abstractmethods__ = frozenset()  # the object has them, and abc looks in the class
    return Adapter


class _Module(object):
    """A module's public names, over the defaults of the class."""

    def __init__(self, module):
        self.__dict__.update((name, value) for name, value in vars(module).items() if not name.startswith("_"))


class Framework(_Module):
    """bench/frameworks/<framework>/framework.py: what every workload of the framework shares.

    It must have:
    NAME                the folder's name
    configure(setup)    sets precision, threads and memory, before anything is built; on a GPU it calls bench.cuda.require_gpus
    versions()          package or library -> version; "framework" is the framework's own
    device(setup)       the protocol's `device`, of all devices
    settings()          the switches, as the framework reads them back
    """

    def device_kinds(self):
        """The kinds of devices that this build can compute on: "cpu", and "cuda" where it has CUDA, whether or not there is a GPU.

        It starts no GPU and takes no memory of one. It is asked after configure() for a CPU.
        """
        return ("cpu",)

    def settings_of(self, adapter):
        """The switches that a built adapter has set by itself, as it reads them back."""
        return {}

    def synchronize(self):
        """Wait until the device has done all its work. A framework whose steps return when they are computed needs none."""

    def device_peak_bytes(self):
        """The most memory of the device that this process had, in bytes; None where the framework does not count it."""

    def forget_device_peak(self):
        """Count the peak from now on. Returns whether the framework can: then warm-up and autotuning are not in it."""
        return False

    def remembered(self, folder):
        """A context in which compiled functions are read from a folder of this image and kept there: that of the parity check, and of the
        `probe` and `predict` that hold measured steps.

        A framework that compiles fast, or keeps nothing, does nothing. Nothing that is compiled outside of it may come from the folder.
        """
        return contextlib.ExitStack()

    def is_out_of_memory(self, error):
        """True if an exception says that the device's memory is full."""
        return says_out_of_memory(error)


class Specification(_Module):
    """bench/workloads/<workload>.py: what is computed, free of any framework, with its float64 reference.

    Every workload but ops must have:
    BATCH, PARAMETERS (bench.canonical.Parameter, in the order in which they are drawn), draw_batch(random)
    To be trained it must have:
    DROPOUT             whether training has it; then draw_masks(random, items), and loss_and_gradients takes `masks`;
                        adjust_dropout(parameters, batches) makes the case of bench.dropout of that of the parity check, in place
    SHUFFLE             False: fixed batches in file order
    optimizer()         of bench.reference
    loss_and_gradients(p, x, y, rounding, variant)  (logits, loss, name -> gradient) of a training step; it moves running statistics in p
    """

    VARIANTS = {}  # name -> canonical.Variant: what an adapter may compute instead

    # Inference only: features(p, x, rounding), with SHAPE and FEATURES. None: the workload is trained.
    features = None

    # Decoding only: decoded(p, sequences, rounding), tensor -> logits, with tensor_of, draw_sequence and the sizes of gpt2-decode.
    decoded = None

    def adjust_parity(self, parameters, batches):
        """Change the drawn case of the parity check in place, where it would not see enough: (name -> array, [(x, y)] of each step)."""

    # predict(p, x, rounding): logits in evaluation, where they differ from those of a training step without dropout.
    predict = None

    # rate(epoch, batch, alone): the learning rate in an epoch, counted from 0, at `batch` items on all devices together and
    # `alone` on one. It goes with PARITY_RATES: the rate of each step of the parity check, one for each. None: the optimiser's own.
    rate = None
    PARITY_RATES = (None, None, None)

    # The parameters that have no gradient, whatever the input. What is computed in its place is rounding, so it is not compared.
    SYMMETRIC = ()

    # score(labels, logits): the metric of some held-out items. None: accuracy.
    score = None

    # How many items of the last evaluation the reference computes again, of data that is in memory.
    COMPARED = 4

    # The weight decay, and the parameters that the parity check holds it on.
    WEIGHT_DECAY = None
    DECAYED = ()

    # The classes of a multi-label network, whose metric is the AUC of each. (): the metric is `score`.
    FINDINGS = ()

    # More than 1: each of several devices normalises its own part of a batch. The canonical batch then has PARTS parts, and
    # loss_and_gradients takes `parts`.
    PARTS = 1

    # True if a state is rounded to nearest at each of many positions, so that all items of a batch err alike in a half type.
    ERRS_ALIKE = False

    # tensor -> the name that all tensors of one kind share, where a network has many of a kind; None: it has not (bench.parity).
    alike = None

    # True if the network chooses the largest of some numbers, which rounding may turn, and its loss has a term of the whole batch.
    CHOOSES = False

    # named(x): tensor -> the rows that a batch selects by an index. The others have no gradient.
    named = None

    # Further models of the arithmetic, of some precisions, as bench.bounds.ROUNDINGS has those of every workload.
    ROUNDINGS = {}

    # How often each model of a precision is run to derive the bounds (bench.bounds.RUNS), at most. Fewer make bounds that are at most as
    # large: of a large tensor nearly as large, since its error is a mean of many.
    MOST_RUNS = None

    # The sums that a large tensor is sketched to (bench.parity.sketch). Few keep the stored reference small.
    BUCKETS = 1024


def check(options):
    """Raises Unsupported for what framework.json or the workload's .json says that this framework does not do."""
    framework, workload = options.framework, options.workload
    declared, specified = rules.framework_declaration(framework), rules.workload_declaration(workload)
    precision, devices = options.precision, options.devices
    where = options.device, precision, workload
    reason = (
        rules.mode_reason(framework, options.mode, declared["modes"], declared.get("modes_except", {}), where, devices)
        or rules.precision_reason(workload, specified["precisions"], precision)
        or rules.tf32_reason(framework, declared.get("no_tf32"), precision)
        or rules.half_reason(framework, declared.get("half", {}), workload, precision, options.device, devices)
        or rules.several_devices_reason(
            framework, declared.get("parallel"), workload, specified["task"], rules.canonical_batch(specified), devices
        )
    )
    if reason:
        raise Unsupported(reason)


def load_framework(name):
    """A framework's Framework. Importing it imports the framework itself. Raises Unsupported and BrokenImportError."""
    return Framework(
        _import("bench.frameworks.%s.framework" % name, "this interpreter cannot import the framework %r" % name)
    )


def load_adapter(framework, workload):
    """The adapter class of a workload in a framework. Raises Unsupported and BrokenImportError."""
    declaration = rules.workload_declaration(workload)
    kind = rules.TASKS[declaration["task"]]
    path = rules.adapter_module(framework, rules.module_of(workload, declaration))
    if path is None:
        raise Unsupported("%s has no adapter for %s" % (framework, workload))
    adapter = getattr(_import(path, "%s cannot load its adapter for %s" % (framework, workload)), kind)
    return adapter if isinstance(adapter, type) else _of_another_language(adapter, globals()[kind])


def specification(workload):
    """The Specification of a workload; None of a person's own network, whose file is all that there is."""
    if rules.is_own(workload):
        return None
    stem = rules.module_of(workload, rules.workload_declaration(workload))
    return Specification(importlib.import_module("bench.workloads." + stem))


def _import(path, refusal):
    """The module at this path. Raises BrokenImportError if the bench lacks what a file imports, and Unsupported if the interpreter does."""
    try:
        return importlib.import_module(path)
    except ImportError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if not _is_of_the_bench(error, last[3]):
            raise Unsupported("%s: %s" % (refusal, error))
        file = os.path.relpath(last[0], os.path.dirname(rules.BENCH)).replace(os.sep, "/")
        raise BrokenImportError("%s, line %d: %s; correct this import" % (file, last[1], error))


def _is_of_the_bench(error, line):
    """True if the failed import names the bench. Python 3.6 gives the error no name if the module is there, so its line tells."""
    if error.name is None:
        return re.match(r"\s*from bench[. ]", line or "") is not None
    return error.name.split(".")[0] == "bench"
