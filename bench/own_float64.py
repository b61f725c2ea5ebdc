"""The steps of a person's own network in float64, by the same file: what its measured precision is held against.

They are computed in a process of their own, on the CPU: a framework that is told of float64 before it builds anything computes otherwise
after it. The bounds follow from the steps themselves: the cell takes them again from parameters and batches that are rounded at random, as
its precision rounds, and by so much as those steps scatter a step may be off.
"""

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

from bench import contract, environment, own_network, rules
from bench.errors import BenchError, Unsupported

# Relative error of rounding to nearest.
UNIT = {
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "amp-fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "amp-bf16": 2.0**-8,
}
# How often steps are taken again from rounded values, and how much of their scatter is allowed.
RUNS = 3
MARGIN = 8.0
# A number that rounding moves across the kink of a rectifier, or past another number under a maximum, moves a gradient by a jump. One in
# ten steps of a ResNet-18 in fp32 meets one, of up to 1 % of a tensor's movement; further runs rarely do. Rounded by so much more they
# meet them, and of what they scatter then so much is allowed, but at most that part of a movement.
JUMPS = {"fp32": 2.0**7}
JUMP_MARGIN, LARGEST_JUMP = 3.0, 0.1
# Of a loss that much of its size is allowed, in units: an exponential or a logarithm of few digits errs alike in all runs. Of the networks
# in docs/own-networks.md the worst erred by 10.
LOSS = 64.0
# Of a movement that much is allowed at any precision: an optimiser that counts in float32 has 1 - 0.999 off by up to 3e-5, and half of
# that is Adam's step. Optax's was off by 8e-6 where 1e-6 followed from the scatter.
OPTIMISER = 2.0**-16
# Steps that are off by more when they are taken again do not follow from their parameters: libraries that add in any order are off by less.
AGAIN = 0.01
# Steps with random numbers and without them are apart by more: dropout of one number in ten moves parameters otherwise by a tenth and more.
RANDOM = 1e-3
# Below this part of the first losses nothing is left to learn, and rounding moves parameters as much as a step does.
LEARNT = 1e-6
# The same of all parameters as one vector, whose scatter is a mean of many numbers.
TOGETHER = 3.0
# Of the bytes of all that training changes, in float64, the proof takes so many times as much more: in memory the steps of two cases, those
# from rounded values and the process beside it; on the disk what both cases begin with, in float32.
MEMORY, DISK = 5.0, 1.2
# The seconds after which the process is ended: the cell's own limit comes later.
PATIENCE_SECONDS = 600

# Steps that were taken: name -> values before them and after the first of them, the batches, the losses that were told, and their Scatter.
# `what` they are, for a person. Only the first is held against float64: what rounding does to one step of a network with batch
# normalisation, the next ones make a thousand times as much. By the others the images are held against one another.
Steps = collections.namedtuple("Steps", "what before after batches losses scatter")

# By how much steps scatter: the losses; name -> the 2-norm of each parameter; name -> the same where JUMPS are met, as a part of its
# movement; and how far they were off when they were taken again as they were, as a part of all that they moved.
Scatter = collections.namedtuple("Scatter", "loss parameters jumps again")


class NotInFloat64(Unsupported):
    """The file cannot be computed in float64 here, or not in time: nothing of the image itself proves its steps."""


def taken(what, network, before, batches):
    """The Steps that a network takes from `before`, without their scatter. It is left as the last one left it."""
    after, losses = _take(network, before, batches)
    return Steps(what, before, after, batches, losses, None)


def held(network, case, precision):
    """The first of Steps with its Scatter, by a network that computes without random numbers."""
    first = case._replace(batches=case.batches[:1], losses=case.losses[:1])
    return case._replace(scatter=scatter(network, first, precision))


def scatter(network, case, precision):
    """The Scatter of Steps, by a network that computes without random numbers."""
    after, told = taken_once = _take(network, case.before, case.batches)
    moved = {name: float(np.linalg.norm(after[name] - case.before[name])) for name in after if _is_parameter(name)}
    loss, parameters = _scattered(network, case, taken_once, UNIT[precision])
    jumps = {}
    if precision in JUMPS:
        wide = _scattered(network, case, taken_once, UNIT[precision] * JUMPS[precision])[1]
        jumps = {name: wide[name] / (moved[name] or 1e-300) for name in moved}
    # Once more at the end, too: a fresh network begins its random numbers where the measured one did.
    again = max(
        _apart_of(case.after, after, moved), _apart_of(_take(network, case.before, case.batches)[0], after, moved)
    )
    return Scatter(loss, parameters, jumps, max(again, off(case.losses, told)))


def differ(one, other, before):
    """How far two results of the same steps from `before` are apart, as a part of all that the second moved."""
    moved = {name: float(np.linalg.norm(other[name] - before[name])) for name in other if _is_parameter(name)}
    return _apart_of(one, other, moved)


def _apart_of(one, other, moved):
    """The same, by name -> how far each parameter moved."""
    apart = np.linalg.norm([np.linalg.norm(one[name] - other[name]) for name in moved])
    return float(apart) / (float(np.linalg.norm(list(moved.values()))) or 1e-300)


def _scattered(network, case, taken_once, unit):
    """(the largest difference of a loss, name -> that of a parameter's movement in the 2-norm) of RUNS from values rounded by a unit."""
    (after, told), loss, parameters = taken_once, 0.0, {}
    for run in range(RUNS):
        random = np.random.RandomState(run)
        rounded = {
            name: _round(value, random, unit) if _is_parameter(name) else value for name, value in case.before.items()
        }
        batches = [[_round(array, random, unit) for array in batch] for batch in case.batches]
        other, losses = _take(network, rounded, batches)
        loss = max(loss, off(losses, told))
        for name in filter(_is_parameter, after):
            shift = (other[name] - rounded[name]) - (after[name] - case.before[name])
            parameters[name] = max(parameters.get(name, 0.0), float(np.linalg.norm(shift)))
    return loss, parameters


def _is_parameter(name):
    return name.startswith("parameter/")


def _take(network, before, batches):
    network.restore(before)
    losses = [network.value(network.step(*batches[0]))]
    after = network.values()
    return after, losses + [network.value(network.step(*batch)) for batch in batches[1:]]


def _round(array, random, unit):
    if array.dtype.kind != "f":
        return array
    return (array * (1.0 + unit * random.uniform(-1.0, 1.0, array.shape))).astype(array.dtype)


def off(losses, right):
    """The largest error of some losses."""
    return float(np.max(np.abs(np.array(losses) - np.array(right))))


def check(options, cases):
    """(The float64 losses of the first case, a list of (quantity, tensor, error, bound)). cases: a list of Steps that are `held`."""
    with tempfile.TemporaryDirectory(prefix="own-") as folder:
        for number, case in enumerate(cases):
            arrays = {"before/" + name: _short(value) for name, value in case.before.items()}
            for step, batch in enumerate(case.batches):
                arrays.update(("batch/%d/%d" % (step, place), array) for place, array in enumerate(batch))
            np.savez(os.path.join(folder, "%d.npz" % number), **arrays)
        _run(options, folder)
        with open(os.path.join(folder, "found.json")) as file:
            found = json.load(file)
        if "refused" in found:
            raise NotInFloat64(found["refused"])
        checks, jumps = [], {}
        for name, jump in (pair for case in cases for pair in case.scatter.jumps.items()):
            jumps[name] = max(jumps.get(name, 0.0), min(JUMP_MARGIN * jump, LARGEST_JUMP))
        again = max(case.scatter.again for case in cases)
        # A loss that training made small is a difference of large numbers: its error is one of the first losses' size.
        size = max(abs(loss) for losses in found["losses"] for loss in losses) or 1.0
        for number, (case, losses) in enumerate(zip(cases, found["losses"])):
            case = case._replace(scatter=case.scatter._replace(jumps=jumps, again=again))
            told = (off(case.losses[:1], losses[:1]) / size, case.scatter.loss / size)
            with np.load(os.path.join(folder, "after.%d.npz" % number)) as stored:
                right = {name: stored[name] for name in stored.files}
            try:
                checks += _compared(case, told, right, options.precision)
            except Unsupported:
                if abs(losses[0]) > LEARNT * size:
                    raise
                raise Unsupported(
                    "the loss of %s is %.2g, where it was %.2g: it knows its batches by heart, and rounding alone moves it; "
                    "take more ITEMS or a lower rate, so that something is left to learn" % (case.what, losses[0], size)
                )
    return found["losses"][0], checks


def _short(value):
    """A tensor in half of its bytes where it loses nothing: what a network keeps in float32. A container's /tmp has 2 GB."""
    short = value.astype("float32") if value.dtype == np.float64 else value
    return short if np.array_equal(short, value) else value


def refuse_large(values):
    """Raise Unsupported where the proof would need more memory than there is. values: all that training changes, after a step."""
    size = sum(value.nbytes for value in values.values())
    rooms = (
        ("of memory", MEMORY * size, environment.free_memory()),
        ("in " + tempfile.gettempdir(), DISK * size, shutil.disk_usage(tempfile.gettempdir()).free),
    )
    for where, need, room in rooms:
        if room is not None and need > room:
            count = sum(value.size for name, value in values.items() if _is_parameter(name))
            raise Unsupported(
                "the proof of its %.0f million parameters takes about %.1f GB more %s, and %.1f GB are free there: end other "
                "programs, take a larger machine, or measure fewer of its layers"
                % (count / 1e6, need / 1e9, where, room / 1e9)
            )


def _run(options, folder):
    command = [sys.executable, "-m", "bench", "own-float64", "--framework", options.framework]
    command += ["--network", options.data, "--case", folder]
    command += ["--threads", str(options.threads), "--seed", str(options.seed)]
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path), CUDA_VISIBLE_DEVICES="")
    child = subprocess.Popen(command, stdout=sys.stderr, stderr=subprocess.PIPE, env=variables)
    try:
        log = child.communicate(timeout=PATIENCE_SECONDS)[1].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise NotInFloat64("its steps in float64 took more than %d s on the CPU" % PATIENCE_SECONDS)
    if child.returncode:
        last = (log.strip().splitlines() or ["exit code %d" % child.returncode])[-1]
        raise NotInFloat64("its steps could not be computed in float64: %s" % last[-300:])


def main(options):
    """The process: reads the cases in the folder options.case, and writes found.json there."""
    path = os.path.join(options.case, "found.json")
    try:
        found = _found(options)
    except BenchError as error:
        found = {"refused": "in float64: %s" % error}
    with open(path, "w") as file:
        json.dump(found, file)
    return 0


def _found(options):
    state = own_network.state_of(options.framework)
    framework = contract.load_framework(options.framework)
    setup = contract.Setup("cpu", "fp32", "default", options.threads or 1, options.seed, False)
    framework.configure(setup)
    state.before_import()
    module = own_network.load(options.network, options.framework)
    module.FRAMEWORK = options.framework
    network = own_network.Measured(module, setup)
    state.widen(network.network)
    found = []
    while os.path.isfile(os.path.join(options.case, "%d.npz" % len(found))):
        stored_at = os.path.join(options.case, "%d.npz" % len(found))
        with np.load(stored_at) as stored:
            before, batches = _read(stored)
        os.remove(stored_at)
        after, losses = _take(network, before, batches)
        moved = {name: value for name, value in after.items() if _is_parameter(name)}
        np.savez(os.path.join(options.case, "after.%d.npz" % len(found)), **moved)
        found.append(losses)
    return {"losses": found}


def _read(stored):
    """(name -> values before, batches in float64) of a case."""
    before, batches = {}, {}
    for key in stored.files:
        kind, _, name = key.partition("/")
        if kind == "before":
            before[name] = _wide(stored[key])
        else:
            step, place = map(int, name.split("/"))
            batches.setdefault(step, {})[place] = _wide(stored[key])
    return before, [[batch[place] for place in sorted(batch)] for _, batch in sorted(batches.items())]


def _wide(array):
    return array.astype("float64") if array.dtype.kind == "f" else array


def _compared(case, told, right, precision):
    """[(quantity, tensor, error, bound)] of a step: its loss, of all parameters the one that is off by most bounds, and those that stayed.

    told: the error and the scatter of its loss, relative to the largest loss.
    """
    unit, most = UNIT[precision], rules.OWN_BOUNDS
    checks = [("loss", case.what, told[0], min(most["loss"][precision], max(MARGIN * told[1], LOSS * unit)))]
    errors, stayed, moving = {}, [], []
    for name in sorted(filter(_is_parameter, case.before)):
        before, after = case.before[name], case.after[name]
        size = float(np.linalg.norm(right[name] - before))
        if bool(size) != bool(np.any(after != before)):
            stayed.append(name)
        if not size:
            continue
        moving.append(name)
        off_by_rounding = case.scatter.parameters[name] + unit / 4.0 * float(np.linalg.norm(after))
        allowed = MARGIN * off_by_rounding / size + OPTIMISER
        if allowed <= most["parameter"]:
            errors[name] = _apart(after, right[name]) / size, max(allowed, case.scatter.jumps.get(name, 0.0))
    if not moving:
        raise Unsupported("%s moves no parameter: step() must take a step of its optimiser" % case.what)
    if 2 * len(errors) >= len(moving):
        worst = max(errors, key=lambda name: errors[name][0] / errors[name][1])
        compared = ("%s: %s, of %d" % (case.what, worst.partition("/")[2], len(errors)),) + errors[worst]
    elif precision in rules.WIDE:
        compared = (case.what + ": all together",) + _together(case, right, moving)
    else:
        raise Unsupported(_too_few(case, len(errors), len(moving), precision))
    # Parameters that stay in float64 must stay, and the others move.
    named = ": " + stayed[0].partition("/")[2] if stayed else ""
    return checks + [
        ("parameter",) + compared,
        ("moved", case.what + named, len(stayed), most["moved"]),
    ]


def _too_few(case, fit, moving, precision):
    """Why steps cannot be compared, as a sentence that begins with what can be done."""
    count = "%d of the %d parameters that it moves can be compared in %s" % (fit, moving, precision)
    if case.scatter.again > AGAIN:
        return (
            "%s, taken twice from the same parameters, moves them otherwise by %.2g %%: clear the gradients of the step before "
            "(zero_grad), say DROPOUT = True and draw no random numbers where setup.training is False, and keep nothing else from step "
            "to step; %s" % (case.what, 100.0 * case.scatter.again, count)
        )
    return "rounding alone moves parameters as much as %s does: take a lower rate or more ITEMS; %s" % (
        case.what,
        count,
    )


def _apart(one, other):
    """How far two tensors are apart, without one number in a thousand.

    Where a gradient is as small as its rounding, Adam's first step has the sign that rounding gave it, and no further run need meet that.
    """
    distances = np.sort(np.abs(one - other), axis=None)
    return float(np.linalg.norm(distances[: distances.size - distances.size // 1000]))


def _together(case, right, names):
    """(error, bound) of the movement of all parameters as one vector: rounding turns Adam's first steps where a gradient is small."""
    sizes = [np.linalg.norm(right[name] - case.before[name]) for name in names]
    missed = [np.linalg.norm(case.after[name] - right[name]) for name in names]
    size = float(np.linalg.norm(sizes)) or 1e-300
    bound = TOGETHER * float(np.linalg.norm([case.scatter.parameters[name] for name in names])) / size
    return float(np.linalg.norm(missed)) / size, min(rules.OWN_BOUNDS["together"], bound)
