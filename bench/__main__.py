"""The entrypoint of every image: `python -m bench run WORKLOAD --framework F ...` prints events on standard output."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys

from bench import (
    bounds,
    canonical,
    contract,
    cuda,
    curve,
    data,
    dropout,
    learning_reference,
    operators,
    own_float64,
    parallel,
    parity,
    proof,
    ranks,
    rules,
)
from bench.cell import setup_of
from bench.errors import Unsupported
from bench.protocol import Emitter
from bench.run import run

# Training workloads, the one first whose step takes least time.
SMALL = ("mlp-mnist", "cnn-mnist", "gru-imdb", "cnn-cifar10")


def parser():
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command")
    commands.required = True

    cell = commands.add_parser("run", help="run one cell and print its events, one JSON object a line")
    cell.add_argument("workload", type=measurable, help="a workload's name, or that of a network of one's own")
    cell.add_argument("--framework", required=True, choices=rules.framework_names())
    cell.add_argument("--precision", default="fp32")
    cell.add_argument("--preset", default="quick", choices=rules.PRESETS)
    cell.add_argument("--mode", default="default", help="how the framework compiles; default: its own habit")
    cell.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    add_devices(cell)
    cell.add_argument(
        "--scaling",
        default="weak",
        choices=rules.SCALINGS,
        help="of several devices: weak keeps the batch of each, strong the batch of all; the learning rate is the workload's",
    )
    cell.add_argument("--seed", type=int, default=1)
    cell.add_argument("--data", help="folder of the real data set; without it, a learnable stand-in is generated")
    cell.add_argument("--threads", type=int, default=0, help="CPU threads; 0: as many as this process may use")
    cell.add_argument(
        "--proved-at", type=float, metavar="SHARE", help="of the measurement; there steps are held, else the last"
    )
    cell.add_argument("--profile", action="store_true", help="at the end, a few steps under the framework's profiler")

    add_looks(commands)
    add_own(commands)

    reference = commands.add_parser("reference", help="compute a workload's float64 reference and the parity bounds")
    reference.add_argument("workload", choices=rules.workload_names())
    reference.add_argument("--variant", default="", help="one of the variants that the workload declares")
    reference.add_argument(
        "--devices", type=positive, default=1, help="more than one: where they compute otherwise than one"
    )
    reference.add_argument("--curve", action="store_true", help="compute the 300-step learning curve instead (minutes)")
    reference.add_argument(
        "--dropout", action="store_true", help="compute the movement under dropout instead, over random masks (minutes)"
    )
    reference.add_argument(
        "--learning",
        action="store_true",
        help="compute the losses of training's first steps instead (minutes)",
    )

    check = commands.add_parser("check", help="hold an adapter against the reference and print the verdict as JSON")
    check.add_argument("workload", choices=rules.workload_names())
    check.add_argument("--framework", required=True, choices=rules.framework_names())
    check.add_argument("--mode", default="default")
    check.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    check.add_argument("--precision", default="fp32")
    add_devices(check)
    check.add_argument("--curve", action="store_true", help="follow the 300-step learning curve as well")
    check.add_argument("--threads", type=int, default=0, help="CPU threads; 0: as many as this process may use")
    return top


def measurable(name):
    """The name of what `run` measures. Raises ArgumentTypeError."""
    if name in rules.workload_names() or rules.is_own(name):
        return name
    raise argparse.ArgumentTypeError(
        "there is no workload %r (choose from %s)" % (name, ", ".join(rules.workload_names()))
    )


def add_own(commands):
    """The process that computes the steps of a person's own network in float64 (bench.own_float64)."""
    own = commands.add_parser("own-float64", help="compute the steps of one's own network in float64, for its cell")
    own.add_argument("--framework", required=True, choices=rules.framework_names())
    own.add_argument("--network", required=True, help="folder that holds its file")
    own.add_argument("--case", required=True, help="folder of the steps")
    own.add_argument("--threads", type=int, default=0)
    own.add_argument("--seed", type=int, default=1)


def add_looks(commands):
    """The commands that look what there is, and whether it works."""
    listing = commands.add_parser("frameworks", help="list the frameworks that this interpreter has, as JSON")
    listing.add_argument("--framework", choices=rules.framework_names(), help="look for this one only")

    first = commands.add_parser("first-step", help="train a framework's smallest network for a step on the CPU")
    first.add_argument("framework", choices=rules.framework_names())
    first.add_argument("others", nargs="*", help="frameworks that are imported in the same process")

    found = commands.add_parser("data", help="look which data sets a folder holds; the answer is JSON")
    found.add_argument("names", nargs="+", metavar="NAME", choices=data.names())
    found.add_argument("--data", required=True, help="the folder")


def add_devices(command):
    command.add_argument(
        "--devices",
        type=positive,
        default=1,
        help="GPUs that share each batch; without GPUs processes or virtual devices, which share the cell's CPUs",
    )


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("%d is not a number of devices" % number)
    return number


def check_adapter(options):
    """The verdict of the parity check; with --curve, also of the learning curve, where the workload has one."""
    setup = setup_of(options, 1, False)
    contract.check(options)
    framework = contract.load_framework(options.framework)
    framework.configure(setup)
    adapter_class = contract.load_adapter(options.framework, options.workload)
    group = parallel.join(options.framework, setup)
    adapter = group.whole(group.build(adapter_class, setup))
    if isinstance(adapter, contract.Operators):
        results = operators.check(adapter, options.precision, options.devices, group.rank)
    else:
        results = parity.check(options.workload, adapter, options.precision, options.devices)
    if isinstance(adapter, contract.Training):
        results.append(parity.check_prediction(options.workload, adapter, options.precision, options.devices))
    results = parallel.worst(group, results)
    failed = failures(results)
    losses = counted = None
    curved = options.curve and curve.has_curve(options.workload)
    # The curve is without dropout. It comes before another network is built: Caffe2's workspace holds a single one.
    if curved and contract.specification(options.workload).DROPOUT:
        losses = curve.follow(options.workload, adapter)
    if isinstance(adapter, contract.Training):
        trained = group.whole(group.build(adapter_class, setup._replace(training=True)))
        proved = proof.computes(options.workload, trained, options.precision, options.devices)
        proved = parallel.worst(group, proved)
        failed += ["%s (built for training)" % line for line in failures(proved)]
        results += proved
        counted = trained.updates()
        failed += uncounted(options, counted)
        # Without dropout it is followed by the network that trains.
        if curved and losses is None:
            losses = curve.follow(options.workload, trained)
    verdict = {
        "framework": options.framework,
        "version": framework.versions()["framework"],
        "workload": options.workload,
        "mode": options.mode,
        "precision": options.precision,
        "devices": options.devices,
        "variant": parity.variant_of(adapter_class, options.workload),
        "failed": failed,
        "worst": max(r.error / r.bound for r in results),
        "compared": len(results),
        # After the steps of the proof, by the optimiser's own count.
        "updates": counted,
    }
    if losses:
        verdict["curve"] = curve.verdict(options.workload, losses)
    group.leave()
    return verdict


def uncounted(options, counted):
    """Why the host would refuse a cell for the count of its optimiser's steps, as a list; empty where it would not."""
    if (counted is None) == (options.workload in rules.framework_declaration(options.framework).get("uncounted", ())):
        return []
    if counted is None:
        named = '"uncounted": ["%s"]' % options.workload
        return [
            "updates() is None: return the optimiser's own count of its steps, or write %s into framework.json" % named
        ]
    return ['updates() is %s, and framework.json names the workload in "uncounted": take it out there' % counted]


def first_step(name, others):
    """Import what the cells of some frameworks use, and take a step of the first one's smallest network of SMALL."""
    setup = contract.Setup("cpu", "fp32", "default", 1, 1, True)
    framework = contract.load_framework(name)
    framework.configure(setup)
    workload = smallest(name)
    if workload:
        adapter = contract.load_adapter(name, workload)(setup)
        if adapter.compile:
            adapter.compile()
        adapter.load(canonical.parity_case(contract.specification(workload), parity.variant_of(adapter, workload))[0])
        x, y = parity.first_batch(workload, adapter)
        adapter.value(adapter.step(x, y))
        adapter.predict(x)
    for other in others:
        contract.load_framework(other)
        if smallest(other):
            contract.load_adapter(other, smallest(other))


def smallest(framework):
    """The first of SMALL that a framework has, or None."""
    return next((name for name in SMALL if rules.adapter_module(framework, name.replace("-", "_"))), None)


def failures(results):
    """A line for each result that did not pass."""
    return ["%s %s: %.2g > %.2g" % (r.quantity, r.tensor, r.error, r.bound) for r in results if not r.passed]


def in_its_own_language(options):
    """Become the entrypoint of a framework that is not in Python. Returns where the framework has no such entrypoint. Raises OSError.

    The entrypoint gets the same arguments and owes the same output. DLBENCH_PYTHON names this interpreter, which it embeds for the
    bench's part. If DLBENCH_PYTHON is set already, that entrypoint is running this code.
    """
    entrypoint = rules.framework_declaration(options.framework).get("entrypoint")
    if entrypoint and "DLBENCH_PYTHON" not in os.environ:
        program, script = entrypoint
        script = os.path.join(rules.FRAMEWORKS, options.framework, script)
        os.environ["DLBENCH_PYTHON"] = sys.executable
        sys.stdout.flush()
        os.execvp(program, [program, script] + sys.argv[1:])


def device_kinds(framework):
    """The kinds of devices that a framework's build can compute on, as a list. An interpreter that fails to tell is taken for the CPU."""
    try:
        return list(framework.device_kinds())
    except Exception as error:
        print("%s does not tell whether it has CUDA: %s" % (framework.NAME, error), file=sys.stderr)
        return ["cpu"]


def companion(only, error):
    """The package beside a framework's own that is missing, such as flax of JAX; None where it is not that."""
    own, backend = only.partition("_")[0], rules.framework_declaration(only).get("backend")
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    return None if missing in ("", own, backend) or importlib.util.find_spec(own) is None else missing


def list_frameworks(only):
    """[{"framework": ..., "version": ..., "device_kinds": [...], "versions": {...}, "code_for": [...]}] of those that this interpreter
    can import and configure for a CPU. `versions` and `code_for` are what the framework says of itself and of CUDA. Of one that only
    lacks a package beside its own: {"framework": ..., "lacks": ...}.

    Each is tried in its own process: Keras and its backends configure the same library in different ways, and an import that fails half
    way leaves modules behind.
    """
    if only:
        try:
            framework = contract.load_framework(only)
        except (ImportError, Unsupported) as error:
            # The first is the error's own where the bench said it in a sentence.
            lacks = companion(only, error.__cause__ or error.__context__ or error)
            if lacks is None:
                raise
            return [{"framework": only, "lacks": lacks}]
        framework.configure(contract.Setup("cpu", "fp32", "default", 1, 1, True))
        versions = framework.versions()
        entry = {"framework": only, "version": versions["framework"], "device_kinds": device_kinds(framework)}
        return [dict(entry, versions=versions, code_for=cuda.code_for())]
    installed = []
    for name in rules.framework_names():
        if "entrypoint" in rules.framework_declaration(name):
            continue  # of another language: this interpreter cannot import it
        command = [sys.executable, "-m", "bench", "frameworks", "--framework", name]
        variables = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables)
        printed, log = child.communicate()
        if child.returncode == 0:
            installed += json.loads(printed.decode("utf-8"))
        # A broken installation is left out of the list, and named on standard error.
        else:
            last = log.decode("utf-8", "replace").strip().splitlines()[-1:]
            print("%s: %s" % (name, "".join(last)), file=sys.stderr)
    return installed


def main():
    """The entrypoint of a framework in another language calls this. Its own runtime then ends the process."""
    ranks.take_place()
    return answer(parser().parse_args())


def answer(options):
    """Do what the parsed arguments ask for; returns the process's exit status."""
    if options.command == "run":
        try:
            in_its_own_language(options)
        except OSError as error:
            emitter = Emitter()
            message = "this machine cannot run %s: %s" % (options.framework, error)
            emitter.emit("error", kind="unsupported", message=message, traceback="")
            emitter.emit("end", status="failed", stop="none", noise=None, steps=0)
            return 1
        if ranks.starts_processes(options):
            return ranks.supervise(sys.argv[1:], options, Emitter())
        return run(options, Emitter())
    if options.command == "frameworks":
        emitter = Emitter()  # a framework that prints on import must not break the JSON
        emitter.write(json.dumps(list_frameworks(options.framework)).encode("utf-8") + b"\n")
        return 0
    if options.command == "own-float64":
        return own_float64.main(options)
    if options.command == "first-step":
        first_step(options.framework, options.others)
        return 0
    if options.command == "data":
        print(json.dumps({name: data.problem(name, options.data) for name in options.names}))
        return 0
    if options.command == "check":
        in_its_own_language(options)
        if ranks.starts_processes(options):
            return ranks.supervise(sys.argv[1:], options, Emitter())
        emitter = Emitter()
        verdict = check_adapter(options)
        emitter.write(json.dumps(verdict).encode("utf-8") + b"\n")
        return 0 if not verdict["failed"] and verdict.get("curve", {"passed": True})["passed"] else 1
    if options.curve:
        print(curve.write_reference(options.workload))
        return 0
    if options.learning:
        print("\n".join(learning_reference.write_reference(options.workload)))
        return 0
    import numpy

    if options.dropout:
        files = [(rules.dropout_path(options.workload), dropout.make_reference(options.workload))]
    else:
        which = options.workload, options.variant, options.devices
        files = bounds.files_of(*which, stored=bounds.make_reference(*which))
    for path, stored in files:
        numpy.savez_compressed(path, **stored)
        print(path)
    return 0


if __name__ == "__main__":
    ranks.take_place()
    parsed = parser().parse_args()
    sys.exit(ranks.leave(answer(parsed), parsed))
