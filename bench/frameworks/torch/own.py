"""All that training changes in a person's own network of PyTorch: its modules, optimisers and schedules, found among its attributes."""

import numpy as np
import torch
from torch.optim import lr_scheduler

_Schedule = getattr(lr_scheduler, "LRScheduler", None) or lr_scheduler._LRScheduler

HOLDS = "set one to a torch.nn.Module, such as self.model"


def _of(network, kind):
    return [(name, value) for name, value in sorted(vars(network).items()) if isinstance(value, kind)]


def started(network, loss):
    """The loss: every step's work comes before the device's next synchronisation."""
    return loss.detach() if isinstance(loss, torch.Tensor) else loss


def _array(tensor):
    tensor = tensor.detach()
    return np.array((tensor.double() if tensor.is_floating_point() else tensor).cpu().numpy())


def values(network):
    found = {}
    for name, module in _of(network, torch.nn.Module):
        found.update(("parameter/%s.%s" % (name, key), _array(value)) for key, value in module.named_parameters())
        found.update(("statistic/%s.%s" % (name, key), _array(value)) for key, value in module.named_buffers())
    for name, optimizer in _of(network, torch.optim.Optimizer):
        stored = optimizer.state_dict()
        for index, kept in stored["state"].items():
            for key, value in kept.items():
                if isinstance(value, (torch.Tensor, int, float)) and not isinstance(value, bool):
                    array = _array(value) if isinstance(value, torch.Tensor) else np.array(value)
                    found["optimizer/%s.%s.%s" % (name, index, key)] = array
        for index, group in enumerate(stored["param_groups"]):
            for key, numbers in _settings(group).items():
                found["rate/%s.%d.%s" % (name, index, key)] = np.array([float(each) for each in numbers])
    for name, schedule in _of(network, _Schedule):
        found.update(("schedule/%s.%s" % (name, key), np.array(value)) for key, value in _numbers(schedule).items())
    return found


def _settings(group):
    """Name -> the numbers of an optimiser's group that a schedule may change: the rate, the momentum, the two betas of Adam."""
    found = {}
    for key, value in group.items():
        numbers = value if isinstance(value, (tuple, list)) else (value,)
        if key != "params" and all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in numbers):
            found[key] = numbers
        elif isinstance(value, torch.Tensor):
            found[key] = (float(value),)
    return found


def _numbers(schedule):
    return {key: value for key, value in schedule.state_dict().items() if type(value) in (int, float)}


def restore(network, values):
    with torch.no_grad():
        for name, module in _of(network, torch.nn.Module):
            for kind, tensors in (("parameter", module.named_parameters()), ("statistic", module.named_buffers())):
                for key, tensor in tensors:
                    tensor.copy_(torch.from_numpy(np.array(values["%s/%s.%s" % (kind, name, key)])))
    for name, optimizer in _of(network, torch.optim.Optimizer):
        _restore_optimizer(name, optimizer, values)
    for name, schedule in _of(network, _Schedule):
        stored = schedule.state_dict()
        stored.update(
            (key, type(was)(values["schedule/%s.%s" % (name, key)])) for key, was in _numbers(schedule).items()
        )
        schedule.load_state_dict(stored)


def _restore_optimizer(name, optimizer, values):
    stored, state, prefix = optimizer.state_dict(), {}, "optimizer/%s." % name
    for key, value in values.items():
        if key.startswith(prefix):
            index, _, what = key[len(prefix) :].partition(".")
            # Older releases count steps as a number, newer ones as a tensor of float32: both take the tensor.
            tensor = torch.from_numpy(np.array(value))
            state.setdefault(int(index), {})[what] = tensor.float() if what == "step" else tensor
    for index, group in enumerate(stored["param_groups"]):
        for key, numbers in _settings(group).items():
            told = values["rate/%s.%d.%s" % (name, index, key)]
            numbers = [type(was)(number) for was, number in zip(numbers, told)]
            group[key] = type(group[key])(numbers) if isinstance(group[key], (tuple, list)) else numbers[0]
    optimizer.load_state_dict({"state": state, "param_groups": stored["param_groups"]})


def _by_mode(module):
    """True if a module computes otherwise in eval() mode: dropout, also between the layers of an LSTM, and batch normalisation."""
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        return module.track_running_stats
    share = module.p if isinstance(module, torch.nn.modules.dropout._DropoutNd) else getattr(module, "dropout", 0)
    return isinstance(share, float) and share > 0


def in_eval(network):
    return [
        "%s.%s (%s)" % (name, key, type(layer).__name__)
        for name, module in _of(network, torch.nn.Module)
        for key, layer in module.named_modules()
        if not layer.training and _by_mode(layer)
    ]


def widen(network):
    """Let the network compute in float64. It was built in float32, so that it draws what the measured one draws."""
    torch.set_default_dtype(torch.float64)
    for _, module in _of(network, torch.nn.Module):
        module.double()
    for name, tensor in _of(network, torch.Tensor):
        if tensor.is_floating_point():
            setattr(network, name, tensor.double())


def before_import():
    """Before the file of the network is run in float64: PyTorch is widened after it."""
