"""Computes what is stored of the references a second time, by torch's autograd in float64.

Runs in an interpreter that has torch; test_references.py compares.
recomputed.py reference WORKLOAD VARIANT PARTS BUCKETS FILE    into an .npz, "value/QUANTITY/TENSOR" -> sketch
recomputed.py curve WORKLOAD STEPS                             prints the losses of the first steps of bench.curve
recomputed.py dropout WORKLOAD RUNS BUCKETS FILE               into an .npz, "TENSOR" -> (RUNS, BUCKETS) sketches of three steps' movement
                                                               under torch's own dropout, and "first step", without dropout
"""

import json
import sys

import numpy as np
import second_writing as written
import second_writing_of_gpt as of_gpt
import torch
import torch.nn.functional as F

from bench import contract
from bench.parity import sketch

WRITTEN = {**written.WRITTEN, **of_gpt.GPT}
# They have a function for their evaluation.
OF_BYTES = ("gpt-bytes", "llama-bytes", "moe-bytes")


def in_float64(array):
    tensor = torch.from_numpy(array)
    return tensor.double() if tensor.is_floating_point() else tensor


class WithDropout(written.Ops):
    dropout = staticmethod(lambda x, share: F.dropout(x, share, True))


def gradients_of(workload, p, x, y, parts=1, ops=written.Ops):
    """(logits, loss, name -> gradient, name -> moved running statistic) of a training step."""
    statistics = written.PartsApart(parts)
    norm = (statistics,) if workload.deep else ()
    trained = {name: p[name].detach().requires_grad_() for name in p if "running_" not in name}
    logits = workload.network({**p, **trained}, x, ops, *norm)
    loss = workload.loss(logits, y)
    gradients = torch.autograd.grad(loss, list(trained.values()))
    return logits.detach(), loss.detach(), dict(zip(trained, gradients, strict=True)), statistics.moved


def training(workload, variant, parts):
    """(quantity, tensor) -> float64 array, of the canonical case's steps."""
    parameters, batches = workload.case(*variant)
    start = {name: in_float64(value) for name, value in parameters.items()}
    batches = [[in_float64(array) for array in batch] for batch in batches]
    p, optimiser, values = dict(start), workload.optimiser(), {}
    if workload.deep:
        values["prediction", "logits"] = workload.network(p, batches[0][0], written.Ops, written.Evaluation())
    for step, ((x, y), rate) in enumerate(zip(batches, workload.rates, strict=True)):
        logits, loss, gradients, moved = gradients_of(workload, p, x, y, parts)
        if step == 0:
            values["logits", "logits"], values["loss", "loss"] = logits, loss
            values.update((("gradient", name), gradient) for name, gradient in gradients.items())
        optimiser.step(p, gradients, rate)
        p.update(moved)
        # The network with dropout is checked without it before it is measured, in the first two steps.
        if step == 1 and workload is written.WRITTEN["cnn-cifar10"]:
            values.update((("movement", name), value - start[name]) for name, value in p.items())
    values.update((("parameter", name), value - start[plain(name)]) for name, value in p.items())
    if any(workload is WRITTEN[name] for name in OF_BYTES):
        values["prediction", "logits"] = values["logits", "logits"]
    return {key: value for key, value in values.items() if not key[1].endswith(workload.symmetric)}


def plain(name):
    """A running variance that takes the biased estimate is the second value of the same tensor."""
    return name.removesuffix(".biased")


def features():
    random = np.random.RandomState(written.SEED)
    p = {name: in_float64(value) for name, value in written.draw(written.resnet50_parameters(), random).items()}
    x = in_float64(random.uniform(0.0, 1.0, (4, 3, 224, 224)).astype("float32"))
    with torch.no_grad():
        return {("features", "features"): written.resnet50(p, x, written.Ops, written.Evaluation())}


def decoded():
    """The logits from the end of each prompt on, of one sequence after the other, without a cache."""
    random = np.random.RandomState(written.SEED)
    drawn = written.draw(of_gpt.gpt_parameters(50304, 1024, 12, 768), random)
    p, network, values = {name: in_float64(value) for name, value in drawn.items()}, of_gpt.gpt(12, 12), {}
    for sequence in (1, 2):
        with torch.no_grad():
            logits = network(p, torch.from_numpy(of_gpt.decode_batch(random)), written.Ops)[:, 15:]
        for step in range(13):
            place = f"step {step}" if step else "prompt"
            values["logits", f"sequence {sequence}, {place}"] = logits[:, step]
    return values


def reference(name, variant, parts, buckets, path):
    if name == "resnet50-features":
        values = features()
    elif name == "gpt2-decode":
        values = decoded()
    else:
        arguments = (True,) if variant == "one-bias" else ()
        values = training(WRITTEN[name], arguments, int(parts))
    np.savez(
        path,
        **{
            f"value/{quantity}/{tensor}": sketch(plain(tensor), value.detach().numpy(), int(buckets))
            for (quantity, tensor), value in values.items()
        },
    )


def curve(name, steps):
    """The batches are the specification's own: they are data."""
    workload, random = written.WRITTEN[name], np.random.RandomState(written.SEED)
    drawn = written.draw(workload.listed(), random, training=True)
    p, optimiser, losses = {tensor: in_float64(value) for tensor, value in drawn.items()}, workload.optimiser(), []
    batches = contract.specification(name).curve_batches(random)
    for _ in range(int(steps)):
        x, y = next(batches)
        x = in_float64(x)
        _, loss, gradients, _ = gradients_of(
            workload, p, x if x.is_floating_point() else x.long(), in_float64(y).long()
        )
        optimiser.step(p, gradients, workload.rates[0])
        losses.append(loss.item())
    json.dump(losses, sys.stdout)


def moved(workload, batches, start, ops):
    """tensor -> float64 array: how far the steps on some batches move it."""
    p, optimiser = dict(start), workload.optimiser()
    for x, y in batches:
        _, _, gradients, _ = gradients_of(workload, p, x, y, ops=ops)
        optimiser.step(p, gradients, workload.rates[0])
    return {tensor: (p[tensor] - start[tensor]).numpy() for tensor in start}


def dropout(name, runs, buckets, path):
    """The case: the last dense layer begins at zero, the one before it is four times as large, the second batch has the first's labels."""
    torch.manual_seed(1)
    workload = written.WRITTEN[name]
    parameters, batches = workload.case()
    for tensor, factor in (("dense1.w", 4), ("dense1.b", 4), ("dense2.w", 0), ("dense2.b", 0)):
        parameters[tensor] *= np.float32(factor)
    start = {tensor: in_float64(value) for tensor, value in parameters.items()}
    batches = [[in_float64(array) for array in batch] for batch in batches]
    batches[1][1] = batches[0][1]
    found = [moved(workload, batches, start, WithDropout) for _ in range(int(runs))]
    arrays = {tensor: np.array([sketch(tensor, run[tensor], int(buckets)) for run in found]) for tensor in start}
    np.savez(path, **{"first step": moved(workload, batches[:1], start, written.Ops)["dense2.b"]}, **arrays)


{"reference": reference, "curve": curve, "dropout": dropout}[sys.argv[1]](*sys.argv[2:])
