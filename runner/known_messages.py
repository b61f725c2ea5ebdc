"""Causes and fixes of well-known messages of drivers, engines and frameworks.

One table serves `runner doctor`, which meets them when it starts a container, and the rows of cells that failed. The sentences are ours;
where a message comes from NVIDIA's or Docker's own pages or sources, or was met, is noted beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# CUDA's words where another process holds a GPU that takes one at a time: those of CUDA 10, those of today, and the number's names.
DEVICE_TAKEN = (
    r"all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDevicesUnavailable"
)


@dataclass(frozen=True)
class Known:
    """A message, by a pattern that is in it."""

    pattern: str
    means: str
    fix: str
    # True for a fault of the machine that its fix removes: --resume measures such a repeat again, and the advice says so.
    again: bool = False

    @property
    def advice(self) -> str:
        """The meaning, and what to do."""
        return f"{self.means}: {self.fix}{'; then --resume measures it again' if self.again else ''}"


# A Linux driver that is installed inside WSL2 breaks CUDA there.
WSL_FIX = "update NVIDIA's driver on Windows, and `wsl --update`; install no Linux driver inside WSL"

KNOWN = (
    # the engine, when the container is to be started (Docker's daemon/nvidia_linux.go; met)
    Known(
        r"could not select device driver \"\" with capabilities: \[\[gpu",
        "dockerd found no nvidia-container-runtime-hook on its PATH when it started",
        "install the NVIDIA Container Toolkit (not Docker from snap), `nvidia-ctk runtime configure --runtime=docker`, restart dockerd",
    ),
    Known(
        r"could not select device driver \"cdi\"",
        "this Docker Engine has no CDI, or has it switched off",
        'Docker 28.2 or newer, or "features": {"cdi": true} in daemon.json',
    ),
    Known(
        r"could not select device driver \"nvidia\.runtime-hook\"|no known GPU vendor found",
        "dockerd found neither NVIDIA's hook nor a CDI specification of these GPUs",
        "install the NVIDIA Container Toolkit, `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, restart dockerd",
    ),
    Known(
        r"[Uu]nknown (or invalid )?runtime (name|specified).{0,3}nvidia",
        "the runtime `nvidia` does not stand in daemon.json",
        "`nvidia-ctk runtime configure --runtime=docker`, then restart dockerd",
    ),
    Known(
        r"unresolvable CDI devices",
        "the CDI specification is missing or older than the GPUs' present MIG layout",
        "`systemctl restart nvidia-cdi-refresh` or `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; see `nvidia-ctk cdi list`",
    ),
    # containerd's words, and those of moby's daemon/cdi.go
    Known(
        r"failed to inject CDI devices|CDI device injection failed",
        "the engine could not give the container the GPUs by CDI",
        "see `nvidia-ctk cdi list`; `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, then restart dockerd",
    ),
    Known(
        r"invoking the NVIDIA Container Runtime Hook directly",
        "the toolkit runs in mode csv or cdi, where the hook is not for direct use",
        'give GPUs by CDI, or set mode = "legacy" in /etc/nvidia-container-runtime/config.toml',
    ),
    # the toolkit's hook
    Known(
        r"requirement error: unsatisfied condition",
        "the driver is older than the image asks for in NVIDIA_REQUIRE_CUDA",
        "a newer driver, or an image of an older CUDA; NVIDIA_DISABLE_REQUIRE=1 insists",
    ),
    Known(
        r"[Dd]river/library version mismatch|NVML/RM version mismatch",
        "the driver was upgraded, and the kernel still runs the old module",
        "restart the machine, or unload the nvidia modules (`rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia`) and load them again",
    ),
    Known(
        r"Failed to initialize NVML: Unknown Error|the NVIDIA driver does not answer \(Unknown Error\)",
        "the container lost its devices: systemd reloaded and took back what the hook had allowed",
        'start it again; CDI, or "exec-opts": ["native.cgroupdriver=cgroupfs"] in daemon.json, prevents it',
    ),
    Known(
        r"Failed to initialize NVML: Insufficient Permissions",
        "SELinux keeps the container from the devices",
        "a policy for containers that use devices, or `--security-opt label=disable`",
    ),
    Known(
        r"nvidia-container-cli: .*(unknown device|device error)",
        "the GPU or MIG instance is not there by that name any more",
        "`nvidia-smi -L` tells today's UUIDs; plan again",
    ),
    # CUDA, in a cell
    Known(
        r"no kernel image is available|device kernel image is invalid|is not compatible with the current PyTorch installation"
        r"|is not defined for option 'gpu-name'",
        "the image holds no code for this GPU's compute capability",
        "another image; in its image.toml max_compute_capability is too high, or no_code_for lacks this one",
    ),
    Known(
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver|driver on your system is too old",
        "the driver is too old for the image's CUDA",
        "a newer driver, or an image of an older CUDA",
    ),
    Known(
        r"unsupported toolchain|CUDA_ERROR_INVALID_PTX|UNSUPPORTED_PTX_VERSION",
        "the driver cannot compile this image's PTX: it is older than the image's CUDA release",
        "a newer driver, or an image of an older CUDA; ptx_only in its image.toml lacks this GPU's compute capability",
    ),
    Known(
        r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|cuInit says 802",
        "nvidia-fabricmanager does not run, or has another version than the driver (machines with NVSwitch)",
        "`systemctl start nvidia-fabricmanager`, in the driver's version",
    ),
    Known(
        r"forward compatibility was attempted on non supported HW|CUDA_ERROR_COMPAT_NOT_SUPPORTED|cudaErrorCompatNotSupported",
        "a libcuda for forward compatibility was loaded, and only data-center GPUs take one",
        "take the folder `compat` out of LD_LIBRARY_PATH, or update the driver",
    ),
    Known(
        r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|cudaErrorSystemDriverMismatch|system has unsupported display driver",
        "libcuda is of another version than the kernel's driver",
        "restart the machine, or start the container again: it holds an older libcuda",
    ),
    Known(
        r"no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice"
        r"|No CUDA GPUs are available|No visible GPU devices",
        "no GPU is visible to the process",
        "look at CUDA_VISIBLE_DEVICES, and at what the container was given; `runner doctor` tells more",
    ),
    Known(
        r"CUDA_ERROR_INVALID_DEVICE|invalid device ordinal|cudaErrorInvalidDevice",
        "a GPU was asked for by a number or name that is not there",
        "`nvidia-smi -L` tells today's names; look at CUDA_VISIBLE_DEVICES",
    ),
    Known(
        r"CUDA_ERROR_UNKNOWN|CUDA unknown error|cudaErrorUnknown|cuInit says 999",
        "the driver cannot start CUDA; most often nvidia_uvm is not loaded, or its device node is missing",
        "`modprobe nvidia_uvm` and `nvidia-modprobe -u`, or restart the machine",
    ),
    Known(
        r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress|misaligned address|unspecified launch failure"
        r"|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure|device-side assert",
        "a kernel read or wrote memory that is not its own, or failed a check of its own",
        "most often the program's fault: another version of the framework, or the image on another GPU to rule out the hardware",
    ),
    Known(
        r"[Cc]ould not (load library|locate) lib(cudnn|nvrtc)|Unable to load any of \{?libcudnn|libnvrtc[\w.-]*: cannot open"
        r"|libnvrtc-builtins",
        "cuDNN does not find its own parts, or NVRTC, which compiles kernels as the program runs",
        "the image's LD_LIBRARY_PATH; NVIDIA's wheel of NVRTC lies in nvidia/cuda_nvrtc/lib, where older cuDNN does not look",
    ),
    Known(
        r"Loaded runtime CuDNN library: .* compiled with|Outdated cuDNN installation|CUDNN_STATUS_(VERSION_MISMATCH|SUBLIBRARY)",
        "another cuDNN is loaded than the framework was built with",
        "leave the cuDNN of the lock the only one: look for others in LD_LIBRARY_PATH",
    ),
    Known(
        r"CU(DNN|BLAS)_STATUS_(NOT_INITIALIZED|ALLOC_FAILED)|CUDNN_STATUS_INTERNAL_ERROR_\w*ALLOCATION_FAILED"
        r"|because cuDNN failed to initialize|DNN library (initialization failed|is not found)",
        "a library of NVIDIA could not start on the GPU, most often since its memory is full",
        "look with `runner gpus` who else uses its memory",
    ),
    Known(
        r"unable to find an engine to execute this computation"
        r"|CUDNN_STATUS_(NOT_SUPPORTED|ARCH_MISMATCH|EXECUTION_FAILED)|CUBLAS_STATUS_(ARCH_MISMATCH|NOT_SUPPORTED|EXECUTION_FAILED)",
        "a library of NVIDIA has no kernel for this GPU, or one failed",
        "an image whose CUDA knows this GPU; another GPU to rule out the hardware",
    ),
    # The statuses that have no entry of their own above.
    Known(
        r"CU(DNN|BLAS)_STATUS_(?!SUCCESS)\w+",
        "a library of NVIDIA refused a call, or failed in it",
        "the framework's next version; another GPU to rule out the hardware",
    ),
    Known(
        r"libdevice not found|libdevice directory|([Cc]ould ?n.t|[Cc]ould not|[Cc]annot) (find|invoke) ptxas|ptxas .*not found"
        r"|No PTX compilation provider|No such file or directory: '[^']*ptxas'",
        "XLA or Triton does not find a part of CUDA with which it compiles",
        "an image with NVIDIA's wheels of nvcc, or CUDA_HOME and XLA_FLAGS=--xla_gpu_cuda_data_dir for an own installation",
    ),
    Known(
        r"nvidia-container-cli: initialization error|nvml error: driver not loaded",
        "the NVIDIA Container Toolkit finds no loaded driver on this machine",
        "`nvidia-smi` on the machine itself; `modprobe nvidia`, then start the container again",
    ),
    Known(
        DEVICE_TAKEN,
        "another process holds the GPU in compute mode `exclusive process`, or the mode is `prohibited`",
        "`nvidia-smi -c DEFAULT` allows several processes; `runner gpus` shows the mode and who computes on it",
    ),
    Known(
        r"CUDA_ERROR_MPS_\w+|cudaErrorMps\w+|MPS (client|server)\b|multi-process service|says 8(0[5-9]|10)\b",
        "the process is a client of NVIDIA's MPS, whose server does not take it",
        "look at `nvidia-cuda-mps-control` and its logs, or take CUDA_MPS_PIPE_DIRECTORY out of the environment",
    ),
    Known(
        r"libcuda\.so\.1: cannot open shared object file",
        "the container was started without a GPU, or without the capability `compute`",
        "`runner doctor` tells why",
    ),
    Known(
        r"Found no NVIDIA driver|Could not find cuda drivers",
        "the framework finds no driver of NVIDIA's",
        "`nvidia-smi` on the machine itself; a container needs GPUs given to it: `runner doctor` tells more",
    ),
    Known(
        r"opens no GPU, and the CUDA driver does",
        "the framework cannot use the GPU that the driver opens: its build is of a newer CUDA than the driver, or lacks a library of it",
        "its build for the CUDA that `nvidia-smi` shows with all of its libraries, or a newer driver",
    ),
    Known(
        r"is built without CUDA|Torch not compiled with CUDA enabled",
        "the framework's build is for the CPU",
        "its build with CUDA: the index or the package's name says which (cu128, cuda12, -gpu)",
    ),
    Known(
        r"finds no GPU: cu\w+ says|[Ff]ailed call to cuInit|operation cuInit\(0\) failed",
        "the CUDA driver does not start",
        "`runner doctor`, `nvidia-smi`, and the kernel's log (`dmesg`) tell more",
    ),
    Known(
        r"undefined symbol: _*nv(JitLink|rtc)|undefined symbol: _*cu(da|blas|dnn|sparse|solver)",
        "a library of another release of CUDA is loaded than the framework was built with",
        "look for other copies of CUDA in LD_LIBRARY_PATH",
    ),
    Known(
        r"lib(cudnn|nccl|cublas|cudart|cufft|curand|cusolver|cusparse|cupti|nvJitLink)[\w.]*: cannot open shared object file"
        r"|Cannot dlopen some GPU libraries",
        "the framework does not find NVIDIA's libraries in the image",
        "the image's LD_LIBRARY_PATH, or a base image with cuDNN",
    ),
    Known(
        r"CUDA[_ ](error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|OutOfMemoryError",
        "the GPU's memory did not suffice",
        "a GPU with more memory; look with `runner gpus` whether somebody else uses it",
    ),
    Known(
        r"uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE",
        "the GPU's memory is damaged",
        "take the GPU out of use; `nvidia-smi -q -d ECC,ROW_REMAPPER` tells more",
    ),
    Known(
        r"GPU is lost|fallen off the bus|Unable to determine the device handle",
        "the GPU answers no more",
        "restart the machine; when it comes back: power supply, riser, heat",
    ),
    Known(
        r"GPU access blocked by the operating system",
        "Windows gives this WSL no GPU",
        WSL_FIX,
    ),
    # pip, when an image or an environment is made
    Known(
        r"another file than the lock pins|DO NOT MATCH THE HASHES",
        "a file that the package index served was damaged or tampered with, and nothing of it was installed",
        "look which index pip uses (`pip config list`), empty its cache (`pip cache purge`), try again; do not change the lock",
    ),
    Known(
        r"is not `name==version --hash",
        "somebody changed a lock by hand, and nothing of it was installed",
        "`git diff images` shows the change; take it back, or make the lock again",
    ),
    # the runner, of a cell under which a disk ran full (runner.run.attempt)
    Known(
        r"the disk of [^\n]* is nearly full: ",
        "a disk ran full under the cell",
        "free some space; if the cell fills it again, leave its image out",
        again=True,
    ),
    # the runner, of an environment whose files somebody removed (runner.engines.process.venv)
    Known(
        r"its environment has lost \d+ files?",
        "something removed files of the environment, as a purge of old files does",
        "keep the folder of environments out of it, or set XDG_CACHE_HOME to another one",
        again=True,
    ),
    # the machine
    # pip, requests and Docker, of a proxy between them and the address that they ask.
    Known(
        r"ProxyError|[Cc]annot connect to proxy|Tunnel connection failed|407 Proxy|[Pp]roxy [Aa]uthentication [Rr]equired|proxyconnect tcp"
        r"|Proxy URL had no scheme",
        "the proxy that HTTPS_PROXY or HTTP_PROXY names does not answer, or refuses",
        "look at these variables, and at a name and password in them; unset them where no proxy is needed",
    ),
    # torch's words about shared memory; those of a full one end as a full disk's, so they come before.
    Known(
        r"(shared memory|</torch_)[^\n]*No space left on device|/dev/shm[^\n]*(No space left on device|ENOSPC)"
        r"|(No space left on device|ENOSPC)[^\n]*/dev/shm",
        "/dev/shm is full",
        "a larger shared memory for the container, or remove what ended processes left in /dev/shm (`df /dev/shm`)",
        again=True,
    ),
    Known(
        r"[Nn]o space left on device|ENOSPC",
        "a disk is full",
        "free some space (`df -h` and `df -i` tell where)",
        again=True,
    ),
    Known(
        r"[Ii]nput/output error|\bEIO\b",
        "a disk could not be read or written",
        "`dmesg` tells which; or set XDG_CACHE_HOME to a folder on another disk",
        again=True,
    ),
    Known(
        r"[Dd]isk quota exceeded|EDQUOT",
        "your quota on a disk is used up",
        "free some of your files (`quota` tells where), or set XDG_CACHE_HOME to another disk",
        again=True,
    ),
    Known(
        r"failed to map segment from shared object",
        "programs may not run from the disk of the environment (it is mounted noexec)",
        "set XDG_CACHE_HOME to a folder on a disk without noexec",
    ),
    Known(
        r"can't start new thread|pthread_create failed|Resource temporarily unavailable",
        "no further thread or process could be started: a limit of processes, or a Docker older than 20.10.10 with a newer C library",
        "`ulimit -u` and pids.max of the control group tell the limits; or a newer Docker",
    ),
    # It also says "cannot allocate memory", and is no lack of it.
    Known(
        r"cannot allocate memory in static TLS block",
        "a library was loaded too late for the room that programs keep for thread-local data",
        "LD_PRELOAD of that library, or a newer C library",
    ),
    Known(
        r"std::bad_alloc|MemoryError|Unable to allocate|[Cc]an(not|'t) allocate memory|ENOMEM",
        "memory did not suffice, or a limit (`ulimit -v`) ended it",
        "a machine with more memory, a higher limit, or fewer cells at a time",
    ),
    Known(
        # A system says of much else that it is not implemented, such as of semaphores without /dev/shm.
        r"(flock|lockf|FileLock|\.lock\b)[^\n]*\n?[^\n]*Function not implemented|No locks available|cannot be locked",
        "a file system has no locks (Lustre without `-o flock`, NFS without lockd)",
        "set XDG_CACHE_HOME and --out to folders on another one",
    ),
    Known(
        r"certificate is not yet valid|certificate has expired|CERTIFICATE_VERIFY_FAILED",
        "a server's certificate is not accepted: this machine's clock is wrong, or a proxy signs with an authority of its own",
        "`date` tells the clock; `pip config set global.cert FILE` names the authority",
    ),
    Known(
        r"docker-credential-\S+ not installed",
        "Docker's settings name a credential store whose program is not here",
        'take "credsStore" and "credHelpers" out of ~/.docker/config.json',
    ),
    Known(
        r"[Tt]oo many open files|EMFILE",
        "the limit of open files of a process is too low",
        "`ulimit -n` tells and raises it",
        again=True,
    ),
    Known(
        r"(GLIBC(XX)?|CXXABI)_[\d.]+' not found",
        "the framework's build needs a newer C or C++ library than this machine has",
        "--engine docker, whose images have their own; or an older build of the framework",
    ),
    Known(
        r"Requested CPUs are not available",
        "the engine may use fewer CPUs than this process",
        "start the runner on the engine's CPUs (`taskset -c`), or give the engine all of them",
    ),
    Known(
        r"bind source path does not exist",
        "the engine does not see this machine's folders: it runs elsewhere, or this is a container with the engine's socket",
        "--engine venv, or mount the cache and --out at the same paths where the engine runs",
    ),
    Known(
        r"CPU does not support x86-64-v[234]",
        "the base image needs instructions that this CPU does not have",
        "a newer CPU, or --base-image with an older distribution",
    ),
    Known(
        r"[Ss]tale (NFS )?file handle|ESTALE",
        "a folder on a network's disk was removed or exported anew while it was in use",
        "mount it again, or set XDG_CACHE_HOME to a folder on this machine's disk",
        again=True,
    ),
    Known(
        r"[Rr]ead-only file system|EROFS",
        "a disk can only be read",
        "mount it writable, or set XDG_CACHE_HOME to a folder that you may write",
        again=True,
    ),
    Known(
        # TensorFlow's words, and the kernel's
        r"compiled to use [A-Z0-9_. ]+ instructions?, but these aren't available|Illegal instruction|SIGILL",
        "the framework's build uses instructions that this CPU does not have (AVX in most)",
        "a newer CPU, or an older build of the framework",
    ),
    Known(
        r"DataLoader worker .* is killed by signal: Bus error|insufficient shared memory",
        "/dev/shm is too small",
        "a larger shared memory for the container",
    ),
    Known(
        r"SIGBUS|Bus error",
        "memory that was promised was not there: most often /dev/shm is too small, or a disk is full",
        "a larger shared memory for the container; `df`",
    ),
    Known(
        r"SIGKILL",
        "something outside ended it: a person, or the kernel when the machine's memory was gone",
        "`dmesg | grep -i 'out of memory'` tells which; fewer cells at a time, or a machine with more memory",
    ),
    Known(
        r"NCCL error|nccl(System|UnhandledCuda|Internal|Remote)Error",
        "the GPUs did not reach each other",
        "NCCL_DEBUG=INFO in the image tells more",
    ),
    # the loader, of what a distribution's slim image lacks
    Known(
        r"lib(GL|EGL|gthread-2\.0|glib-2\.0|X11|Xext|SM)\.so\.\d+[^\n]*cannot open shared object",
        "the image lacks a library of the desktop, which a package that draws or reads pictures wants",
        "install it into the image (Debian: libgl1, libglib2.0-0), or the package's build without it (opencv-python-headless)",
    ),
    Known(
        r"exec format error|cannot execute binary file|Exec format error",
        "the program is of another kind of processor than this machine's",
        "take an image of this machine's architecture (`uname -m`), or install an emulator of the other one (binfmt)",
    ),
    # CUDA's names of errors (cuda.h)
    Known(
        r"CUDA_ERROR_CONTAINED|cudaErrorContained",
        "an error of the GPU's memory ended this program, and stayed within it",
        "start it again; `nvidia-smi -q -d ECC,ROW_REMAPPER` tells if the memory fails often",
        again=True,
    ),
    Known(
        r"uncorrectable NVLink error|CUDA_ERROR_NVLINK_UNCORRECTABLE|cudaErrorNvlinkUncorrectable",
        "a link between GPUs failed",
        "`nvidia-smi nvlink -e` names it; reset the GPUs, and look at the bridge or switch when it comes again",
        again=True,
    ),
    Known(
        r"No module named '?[\w.]+",
        "the image lacks a Python package that its code wants",
        "install it there, or build the image again",
    ),
    Known(
        r"Segmentation fault|SIGSEGV",
        "a framework's native code crashed",
        "the stack stands in the log; try another version",
    ),
)

# The Xid errors that one meets, after NVIDIA's list of them.
_XIDS = {
    13: (
        "a fault in a kernel's memory access or instructions",
        "most often the program's; try the image on another GPU",
    ),
    31: ("a program touched memory that is not its own", "most often the program's; try the image on another GPU"),
    43: ("a program's fault stopped its channel", "most often the program's"),
    45: ("the driver ended a program's work after another error", "look at the Xid before it"),
    48: ("two bits of memory failed at once", "reset the GPU; retire it when it comes again"),
    63: ("a row of memory was remapped", "reset the GPU when nothing runs on it"),
    64: ("a row of memory could not be remapped", "reset the GPU; return it when it comes again"),
    74: ("an error on an NVLink", "look at the bridge or switch, and `nvidia-smi nvlink -e`"),
    79: ("the GPU has fallen off the bus", "restart the machine; when it comes again: power supply, riser, heat"),
    94: ("an error of memory that stayed within one program", "start the program again"),
    95: ("an error of memory that may have reached every program", "reset the GPU"),
    119: ("the GPU's own processor (GSP) does not answer", "a newer driver; restart the machine"),
    120: ("the GPU's own processor (GSP) failed", "a newer driver; restart the machine"),
    121: (
        "an error on the link between CPU and GPU (C2C) was corrected",
        "when it comes often, have the board looked at",
    ),
    140: ("an error of memory that could not be corrected", "reset the GPU; when it comes again, return it"),
    143: ("the GPU could not be started", "reset the GPU, or restart the machine; when it comes again, return it"),
    # NVLink 5, by its units: the catalog's 144 to 150.
    **dict.fromkeys(
        range(144, 151),
        ("an error on an NVLink", "look at the bridge or switch, and `nvidia-smi nvlink -e`; reset the GPUs"),
    ),
    154: ("the driver says what the GPU needs to recover", "`nvidia-smi -q` shows it: a reset, a restart, or none"),
}

_OF_KIND = {
    "time-limit": "--timeout gives it longer; the stack at the end of its log tells where it was",
    "hang": "the stack at the end of its log tells where it stood still",
    "out-of-memory": "a machine or GPU with more memory, or fewer cells at a time",
    "wrong-device": "`runner doctor` tells whether the engine gives the GPUs that it is asked for",
    "gpu-lost": "restart the machine; when it comes again: power supply, riser, heat",
    "node-lost": "look at the kernel logs of these nodes, for memory that ran out above all, and run the cell alone on one of them",
    "implausible": "the image reports what its host did not see; its adapter or its clock is wrong",
    "disk": "what its cells kept was removed; a larger disk, or leave the image out",
    "engine": "`runner doctor` looks at the engine",
    "protocol": "the image prints what is not an event on standard output; see its log",
}


# The last lines of a log that are looked through for a reason: pip's refusal of a file has one for each digest of its pin, and pins of the
# locks have up to 172; below it stands the traceback of whoever called pip.
MOST_LINES = 300
_OTHER_FILE = re.compile(r"DO NOT MATCH THE HASHES.*?([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+) from ", re.DOTALL)


def other_file(log: str) -> str | None:
    """The short form of pip's message about a file whose digest is not the lock's; None if its log has no such message."""
    pin = _OTHER_FILE.search(log)
    return (
        pin
        and f"for {pin[1]} {pin[2]} the package index served another file than the lock pins (DO NOT MATCH THE HASHES)"
    )


def find(text: str) -> Known | None:
    """The first known message in a text; None when there is none."""
    return next((message for message in KNOWN if re.search(message.pattern, text)), None)


def hint(kind: str | None, *texts: str | None) -> str | None:
    """The advice for a failure, by its messages and else by its kind."""
    for text in texts:
        if text and (message := find(text)):
            return message.advice
    return _OF_KIND.get(kind or "")


# The words of an engine, or of the system under it, that say nothing of a cell. A cell itself may say some of them of its own fault.
_OF_THE_HOST = re.compile(
    "|".join(
        [
            *(message.pattern for message in KNOWN if message.again),
            r"[Cc]an(not|'t) allocate memory",
            r"[Rr]esource temporarily unavailable|can't start new thread",
            r"[Tt]ransport endpoint is not connected|[Hh]ost is down",
        ]
    )
)


def is_of_the_host(text: str) -> bool:
    """True if an engine that could not start a cell says that its machine is the reason."""
    return bool(_OF_THE_HOST.search(text))


# The kinds of failures for which the machine is the reason, whatever the cell says.
_KINDS_OF_THE_HOST = ("no-device", "gpu-lost")


def due_again(kind: str | None, code: int | None, *texts: str | None) -> bool:
    """True if a failed repeat says nothing of its framework, and --resume measures it again. `code`: None of one that never ran.

    It found no GPU or lost it, its engine could not run it, or its advice says so.
    """
    if kind in _KINDS_OF_THE_HOST or (kind == "engine" and code is None):
        return True
    found = next((message for text in texts if text and (message := find(text))), None)
    return found is not None and found.again


def xid(number: int) -> tuple[str, str]:
    """(what an Xid means, what to do)."""
    return _XIDS.get(number, ("an error of the GPU or its driver", "NVIDIA's list of Xid errors tells more"))


def xids(reported: Sequence[tuple[str, int]]) -> str:
    """The driver's reports on a cell's boards, as a clause: (board, Xid)."""
    each = ", ".join(f"Xid {number} ({xid(number)[0]})" for _, number in dict.fromkeys(reported))
    return f"the NVIDIA driver reported {each}"
