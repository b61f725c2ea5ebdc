"""A framework's framework.py on a machine with one GPU: the driver and the framework are stand-ins, framework.py is the real one.

A framework that would compute on the CPU in place of the GPU must refuse, or its figures would be called the GPU's.
"""

import ctypes
import importlib
import sys
import types

import pytest

from bench import contract
from bench.contract import Setup
from bench.errors import NoDevice, Unsupported
from tests.unit.bench.test_cuda import Driver

UUIDS = ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]
CUDA = Setup("cuda", "fp32", "default", 2, 1, True)


class Session:
    """ONNX Runtime's session with these providers."""

    providers = ("CUDAExecutionProvider", "CPUExecutionProvider")
    repeats_on_cpu = True

    def __init__(self, model, options, providers):
        self.options, self.asked = options, providers

    def get_providers(self):
        return list(self.providers)

    def disable_fallback(self):
        self.repeats_on_cpu = False


class SessionOptions:
    def __init__(self):
        self.entries = {}

    def add_session_config_entry(self, name, value):
        self.entries[name] = value


def onnxruntime(built=True):
    return {
        "onnxruntime": types.SimpleNamespace(
            __version__="1.26.0",
            cuda_version="13.0",
            get_available_providers=lambda: ["CUDAExecutionProvider"] * built + ["CPUExecutionProvider"],
            set_default_logger_severity=lambda severity: None,
            SessionOptions=SessionOptions,
            InferenceSession=type("OwnSession", (Session,), {}),
        ),
        "onnxruntime.capi": types.SimpleNamespace(_pybind_state=types.SimpleNamespace(GradientGraphBuilder=object)),
    }


def cntk(takes_the_device=True, gpus=1, file="built/cntk/__init__.py"):
    gpu = types.SimpleNamespace(name="Tesla K80", version_major=3, version_minor=7, total_memory=11441)
    device = types.SimpleNamespace(type=lambda: "GPU")
    return {
        "cntk": types.SimpleNamespace(
            __version__="2.7",
            __file__=file,
            logging=types.SimpleNamespace(
                set_trace_level=lambda level: None, TraceLevel=types.SimpleNamespace(Error=0)
            ),
            cntk_py=types.SimpleNamespace(
                set_max_num_cputhreads=lambda count: None,
                set_fixed_random_seed=lambda seed: None,
                get_gpu_properties=lambda device: gpu,
            ),
            gpu=lambda index: device,
            all_devices=lambda: [device] * gpus,
            DeviceKind=types.SimpleNamespace(GPU="GPU"),
            try_set_default_device=lambda device: takes_the_device,
            use_default_device=lambda: device,
            NDArrayView=types.SimpleNamespace(from_dense=lambda value, device: value),
        )
    }


def tinygrad(device="CUDA"):
    return {"tinygrad": types.SimpleNamespace(Device=types.SimpleNamespace(DEFAULT=device))}


def mindspore(target="GPU", built=True, gpus=1):
    def set_device(name):
        if not gpus:
            raise RuntimeError("Unsupported device target")

    return {
        "mindspore": types.SimpleNamespace(
            __version__="2.2.14",
            device_context=types.SimpleNamespace(gpu=types.SimpleNamespace(is_available=lambda: built)),
            GRAPH_MODE=0,
            PYNATIVE_MODE=1,
            set_context=lambda **options: None,
            get_context=lambda name: target,
            set_device=set_device,
            runtime=types.SimpleNamespace(set_cpu_affinity=lambda bound: None),
        )
    }


@pytest.fixture
def framework_of(monkeypatch, tmp_path):
    """A function: the name of a framework and its stand-ins (module -> object) -> its framework.py, imported with them."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    # The files of CNTK's build for GPUs.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "built" / "cntk" / "libs").mkdir(parents=True)
    (tmp_path / "built" / "cntk" / "libs" / "libcudart.so.13.0").touch()

    def imported(name, modules):
        for module, stand_in in modules.items():
            monkeypatch.setitem(sys.modules, module, stand_in)
        path = "bench.frameworks.%s.framework" % name
        monkeypatch.delitem(sys.modules, path, raising=False)
        framework = importlib.import_module(path)
        # The next test imports it with stand-ins of its own.
        monkeypatch.delitem(sys.modules, path)
        return framework

    for variable in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "DEV",
        "CPU_COUNT",
        "ALLOW_TF32",
        "GLOG_v",
        "NVIDIA_TF32_OVERRIDE",
    ):
        monkeypatch.setenv(variable, "2")
    return imported


@pytest.mark.parametrize(
    ("name", "stand_ins"),
    [("onnxruntime_training", onnxruntime), ("cntk", cntk), ("tinygrad", tinygrad), ("mindspore", mindspore)],
)
def test_a_framework_that_cannot_name_its_gpu_tells_the_one_that_there_is(framework_of, name, stand_ins):
    """Each asked for more GPUs than there are, and then told none: the runner refused all their cells."""
    framework = framework_of(name, stand_ins())
    framework.configure(CUDA)
    described = framework.device(CUDA)
    assert (described["kind"], described["count"], described["uuids"]) == ("cuda", 1, UUIDS)


def test_a_session_of_onnx_runtime_that_is_on_the_cpu_is_refused(framework_of):
    stand_ins = onnxruntime()
    stand_ins["onnxruntime"].InferenceSession.providers = ("CPUExecutionProvider",)
    framework = framework_of("onnxruntime_training", stand_ins)
    framework.configure(CUDA)
    with pytest.raises(NoDevice, match=r"1.26.0, whose session has CPUExecutionProvider, \(CUDA 13.0\) opens no GPU"):
        framework.session(b"")
    framework.configure(CUDA._replace(device="cpu"))
    assert framework.session(b"").asked == ["CPUExecutionProvider"]


def test_a_session_of_onnx_runtime_on_the_gpu_never_goes_to_the_cpu_later(framework_of):
    framework = framework_of("onnxruntime_training", onnxruntime())
    framework.configure(CUDA)
    whole, of_gradients = framework.session(b""), framework.session(b"", whole=False)
    assert not whole.repeats_on_cpu
    assert not of_gradients.repeats_on_cpu
    assert whole.options.entries == {"session.disable_cpu_ep_fallback": "1"}
    assert of_gradients.options.entries == {}


@pytest.mark.parametrize(
    ("name", "stand_ins", "sentence"),
    [
        ("cntk", cntk(takes_the_device=False), "cntk 2.7 does not take the GPU as its device"),
        ("mindspore", mindspore(target="CPU"), "mindspore 2.2.14 computes on CPU where cuda is asked for"),
        ("tinygrad", tinygrad(device="CPU"), "tinygrad computes on CPU where DEV asks for CUDA"),
    ],
)
def test_a_framework_that_takes_another_device_is_refused(framework_of, name, stand_ins, sentence):
    framework = framework_of(name, stand_ins)

    def begin():
        framework.configure(CUDA)
        framework.device(CUDA)

    with pytest.raises(Unsupported, match=sentence):
        begin()


class Switches:
    """PaddlePaddle's switches for TF32, on by default."""

    def __init__(self):
        self.cublas = self.cudnn = True

    def set_num_threads(self, count):
        pass

    def set_cublas_switch(self, on):
        self.cublas = on

    def set_cudnn_switch(self, on):
        self.cudnn = on

    def get_cublas_switch(self):
        return self.cublas

    def get_cudnn_switch(self):
        return self.cudnn


def paddle(built=True, gpus=1):
    return {
        "paddle": types.SimpleNamespace(
            __version__="2.6.2",
            version=types.SimpleNamespace(cuda=lambda: "13.0" if built else "False", cudnn=lambda: "8.6.0"),
            is_compiled_with_cuda=lambda: built,
            device=types.SimpleNamespace(cuda=types.SimpleNamespace(device_count=lambda: gpus)),
            set_device=lambda name: None,
            get_device=lambda: "gpu:0",
            base=types.SimpleNamespace(core=Switches()),
            set_flags=lambda flags: None,
            get_flags=lambda name: {name: True},
        )
    }


@pytest.mark.parametrize(("precision", "tf32", "override"), [("fp32", False, "0"), ("tf32", True, "not set")])
def test_paddle_s_own_switches_say_whether_it_computes_in_tf32(framework_of, precision, tf32, override):
    """NVIDIA's variable is documented for 0 only."""
    framework = framework_of("paddle", paddle())
    framework.configure(CUDA._replace(precision=precision))
    settings = framework.settings()
    assert (settings["tf32_matmul"], settings["tf32_cudnn"], settings["tf32_override"]) == (tf32, tf32, override)


@pytest.mark.parametrize(
    "name", ["caffe2", "chainer", "cntk", "keras2_cntk", "mindspore", "mxnet_gluon", "mxnet_module", "tinygrad"]
)
def test_a_framework_without_a_switch_for_tf32_is_not_asked_for_it(name):
    """What it computed in would be the library's habit: cuDNN's convolutions use tf32 by default, cuBLAS' products do not."""
    options = types.SimpleNamespace(
        framework=name, workload="cnn-cifar10", mode="default", precision="tf32", device="cuda", devices=1
    )
    with pytest.raises(Unsupported, match="%s does not compute in tf32: " % name):
        contract.check(options)
    options.precision = "fp32"
    contract.check(options)


class CudaRuntimeError(Exception):
    """CuPy's."""


def chainer(cudnn_enabled=True, built=True, gpus=1):
    def count():
        if not gpus:
            raise CudaRuntimeError("cudaErrorInsufficientDriver")
        return gpus

    memory = {"bytes": 8 * 2**20}
    device = types.SimpleNamespace(use=lambda: None)
    runtime = types.SimpleNamespace(
        getDeviceCount=count, runtimeGetVersion=lambda: 13000, CUDARuntimeError=CudaRuntimeError
    )
    cuda = types.SimpleNamespace(
        available=built,
        cudnn_enabled=cudnn_enabled,
        cupy=types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)),
        get_device_from_id=lambda number: device,
        set_max_workspace_size=lambda size: memory.update(bytes=size),
        get_max_workspace_size=lambda: memory["bytes"],
    )
    intel64 = types.SimpleNamespace(is_ideep_available=lambda: False)
    backends = types.SimpleNamespace(cuda=cuda, intel64=intel64)
    config = types.SimpleNamespace(autotune=False, use_cudnn="auto", dtype="float32")
    return {"chainer": types.SimpleNamespace(__version__="7.8.1", backends=backends, config=config)}


@pytest.mark.parametrize(("cudnn_enabled", "told"), [(True, "always"), (False, "none")])
def test_chainer_gives_cudnn_room_and_tells_whether_there_is_a_cudnn(framework_of, cudnn_enabled, told):
    framework = framework_of("chainer", chainer(cudnn_enabled))
    framework.configure(CUDA)
    settings = framework.settings()
    assert (settings["cudnn"], settings["cudnn_workspace_bytes"]) == (told, 2**30)


def torch(built=True, gpus=1):
    module = types.SimpleNamespace(
        __version__="2.11.0",
        version=types.SimpleNamespace(cuda="13.0" if built else None),
        cuda=types.SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus),
        device=lambda *words: words,
        distributed=None,
    )
    parallel = types.SimpleNamespace(DistributedDataParallel=None)
    return {"torch": module, "torch.nn": types.SimpleNamespace(), "torch.nn.parallel": parallel}


def mxnet(built=True, gpus=1):
    features = types.SimpleNamespace(is_enabled=lambda name: built)
    runtime = types.SimpleNamespace(Features=lambda: features)
    context = types.SimpleNamespace(num_gpus=lambda: gpus)
    return {"mxnet": types.SimpleNamespace(__version__="1.9.1", runtime=runtime, context=context)}


def jax(built=True, gpus=1):
    def devices():
        if not gpus:
            raise AssertionError
        return ["GPU"] * gpus

    config = types.SimpleNamespace(update=lambda name, value: None)
    return {
        "jax": types.SimpleNamespace(__version__="0.4.30", config=config, devices=devices),
        "jax.experimental": types.SimpleNamespace(),
        "jax.experimental.compilation_cache": types.SimpleNamespace(compilation_cache=None),
        "jaxlib": types.SimpleNamespace(__version__="0.4.30+cuda13.cudnn91" if built else "0.4.30"),
        "flax": types.SimpleNamespace(nnx=None),
        "optax": types.SimpleNamespace(),
    }


# A function that configures a framework for a GPU: all do it by configure() but for PyTorch, whose switches come before.
FOR_A_GPU = {"torch": "torch_device"}
FRAMEWORKS = {
    "chainer": chainer,
    "cntk": lambda built=True, gpus=1: cntk(gpus=gpus, file="built/cntk/a" if built else "cpu/cntk/a"),
    "jax": jax,
    "mindspore": mindspore,
    "mxnet": mxnet,
    "onnxruntime_training": lambda built=True, gpus=1: onnxruntime(built),
    "paddle": paddle,
    "torch": torch,
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_build_without_cuda_is_refused_whatever_the_machine_is_like(framework_of, name):
    framework = framework_of(name, FRAMEWORKS[name](built=False, gpus=0))
    assert framework.device_kinds() == ("cpu",)
    with pytest.raises(Unsupported, match="%s.* is built without CUDA" % name.split("_")[0]):
        getattr(framework, FOR_A_GPU.get(name, "configure"))(CUDA)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_build_with_cuda_that_finds_no_gpu_tells_the_state_of_the_machine(framework_of, monkeypatch, name):
    """Frameworks count no GPU where CUDA does not start, and where its driver is too old."""
    framework = framework_of(name, FRAMEWORKS[name](gpus=0))
    assert framework.device_kinds() == ("cpu", "cuda")
    configure = getattr(framework, FOR_A_GPU.get(name, "configure"))
    if name != "onnxruntime_training":
        # ONNX Runtime does not count, and tells it when it makes its first session.
        old = "lacks a library" if name in ("mindspore", "mxnet") else "too old for the build"
        with pytest.raises(NoDevice, match="opens no GPU, and the CUDA driver does: .*(%s)" % old):
            configure(CUDA)
    driver = Driver()
    driver.cuInit = lambda flags: 999
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(NoDevice, match="finds no GPU: cuInit says 999 CUDA_ERROR_UNKNOWN"):
        configure(CUDA)
