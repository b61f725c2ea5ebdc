"""The messages of NVIDIA's driver, of CUDA and of its libraries, as frameworks print them."""

from __future__ import annotations

from collections.abc import Sequence

from runner.messages.known import Known

# The Xid errors of NVIDIA's driver, in words.

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


def xid(number: int) -> tuple[str, str]:
    """(what an Xid means, what to do)."""
    return _XIDS.get(number, ("an error of the GPU or its driver", "NVIDIA's list of Xid errors tells more"))


def xids(reported: Sequence[tuple[str, int]]) -> str:
    """The driver's reports on a cell's boards, as a clause: (board, Xid)."""
    each = ", ".join(f"Xid {number} ({xid(number)[0]})" for _, number in dict.fromkeys(reported))
    return f"the NVIDIA driver reported {each}"


# CUDA's words where another process holds a GPU that takes one at a time: those of CUDA 10, those of today, and the number's names.
DEVICE_TAKEN = (
    r"all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDevicesUnavailable"
)

# A Linux driver that is installed inside WSL2 breaks CUDA there.
WSL_FIX = "update NVIDIA's driver on Windows, and `wsl --update`; install no Linux driver inside WSL"

OF_GPUS: tuple[Known, ...] = (
    # the driver, in the kernel's log
    *(Known(rf"NVRM: Xid [^\n]*?\): {number}\b", *xid(number)) for number in _XIDS),
    Known(r"NVRM: Xid ", *xid(0)),
    # CUDA, in a cell
    Known(
        r"no kernel image is available|device kernel image is invalid|is not compatible with the current PyTorch installation"
        r"|only supports? \w+ GPUs|requires compute capability|is not defined for option 'gpu-name'|is not a recognized processor"
        r"|invalid value for --gpu-architecture",
        "the image holds no code for this GPU's compute capability",
        "another image; in its image.toml max_compute_capability is too high, or no_code_for lacks this one",
    ),
    Known(
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver|driver on your system is too old"
        r"|CUDA initialization failure with error 35",
        "the driver is too old for the image's CUDA",
        "a newer driver, or an image of an older CUDA",
    ),
    Known(
        r"unsupported toolchain|CUDA_ERROR_INVALID_PTX|UNSUPPORTED_PTX_VERSION",
        "the driver cannot compile this image's PTX: it is older than the image's CUDA release",
        "a newer driver, or an image of an older CUDA; ptx_only in its image.toml lacks this GPU's compute capability",
    ),
    Known(
        r"[Ss]ystem not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady|cuInit says 802",
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
        r"|No CUDA GPUs are available|No visible GPU devices|No GPU/TPU found|[Nn]o GPUs? (was |were )?found|requires at least 1 GPU"
        r"|CUDA device is not set properly",
        "no GPU is visible to the process",
        "look at CUDA_VISIBLE_DEVICES, and at what the container was given; `runner doctor` tells more",
    ),
    Known(
        r"CUDA_ERROR_INVALID_DEVICE|invalid device ordinal|cudaErrorInvalidDevice|device >= 0 && device <",
        "a GPU was asked for by a number or name that is not there",
        "`nvidia-smi -L` tells today's names; look at CUDA_VISIBLE_DEVICES",
    ),
    Known(
        r"named symbol not found|CUDA_ERROR_NOT_FOUND|cudaErrorSymbolNotFound",
        "the container lacks a library of the driver, or has one of another release: in WSL drivers from 555 on need a "
        "newer toolkit",
        "update the NVIDIA Container Toolkit (1.14.4 or 1.15 and newer) or Docker Desktop (4.31 and newer), and start "
        "the container again",
    ),
    Known(
        r"stub library|cudaErrorStubLibrary|CUDA_ERROR_STUB_LIBRARY",
        "the libcuda for compiling was loaded in the place of the driver's",
        "take the folder `stubs` out of LD_LIBRARY_PATH; a container needs GPUs given to it",
    ),
    Known(
        r"CUDA_ERROR_UNKNOWN|CUDA unknown error|cuda runtime error \(30\)|cudaErrorUnknown|cuInit says 999|Cuda failure 999",
        "the driver cannot start CUDA; most often nvidia_uvm is not loaded, or its device node is missing",
        "`modprobe nvidia_uvm` and `nvidia-modprobe -u`; after the machine slept, `rmmod nvidia_uvm` first; or restart "
        "the machine",
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
        r"Loaded runtime CuDNN library: .* compiled with|Outdated cuDNN installation|CUDNN_STATUS_(VERSION_MISMATCH|SUBLIBRARY)"
        r"|cuDNN version (incompatibility|mismatch)|Found (cuDNN|CUDA|cuBLAS|cuFFT|cuSPARSE|cuSOLVER|CUPTI) version \d+, but JAX was built"
        r"|Outdated cu\w+ installation",
        "another cuDNN or CUDA is loaded than the framework was built with",
        "leave those of the lock the only ones: look for others in LD_LIBRARY_PATH",
    ),
    Known(
        r"CU(DNN|BLAS)_STATUS_(NOT_INITIALIZED|ALLOC_FAILED)|CUDNN_STATUS_INTERNAL_ERROR_\w*ALLOCATION_FAILED"
        r"|without BLAS support|because cuDNN failed to initialize|DNN library (initialization failed|is not found)",
        "a library of NVIDIA could not start on the GPU, most often since its memory is full",
        "look with `runner gpus` who else uses its memory",
    ),
    Known(
        r"unable to find an engine to execute this computation|[Uu]nable to find a valid cuDNN algorithm"
        r"|CUDNN_STATUS_(NOT_SUPPORTED|ARCH_MISMATCH|EXECUTION_FAILED)|CUBLAS_STATUS_(ARCH_MISMATCH|NOT_SUPPORTED"
        r"|EXECUTION_FAILED)",
        "a library of NVIDIA has no kernel for this GPU, or one failed",
        "an image whose CUDA knows this GPU; another GPU to rule out the hardware",
    ),
    # The statuses that have no entry of their own above.
    Known(
        r"CU(DNN|BLAS)_STATUS_(?!SUCCESS)\w+|\bcu(blas|dnn|fft|rand|solver|sparse)\w*\b[^\n]{0,40}(error|fail)",
        "a library of NVIDIA refused a call, or failed in it",
        "the framework's next version; another GPU to rule out the hardware",
    ),
    Known(
        r"PTX JIT compiler library not found|JIT_COMPILER_NOT_FOUND",
        "the driver's compiler of PTX (libnvidia-ptxjitcompiler) does not reach the program, and the image has no code "
        "for this GPU",
        "an image with code for this GPU; a container needs the capability `compute` and a driver and toolkit of one release",
    ),
    Known(
        r"libdevice not found|libdevice directory|([Cc]ould ?n.t|[Cc]ould not|[Cc]annot) (find|invoke) ptxas|ptxas .*not found"
        r"|No PTX compilation provider|No such file or directory: '[^']*ptxas'",
        "XLA or Triton does not find a part of CUDA with which it compiles",
        "an image with NVIDIA's wheels of nvcc, or CUDA_HOME and XLA_FLAGS=--xla_gpu_cuda_data_dir for an own installation",
    ),
    Known(
        r"ptxas (exited|returned|fatal|error)|(?-i:nvlink) (fatal|error)|nvJitLink error",
        "NVIDIA's assembler could not make the GPU's code of what the framework compiled",
        "the line of ptxas says why: a GPU that it does not know needs an image of a newer CUDA; else another version "
        "of the framework",
    ),
    Known(
        DEVICE_TAKEN,
        "another process holds the GPU in compute mode `exclusive process` (perhaps MPS's server), the mode is `prohibited`, or a vGPU "
        "has no licence",
        "`nvidia-smi -c DEFAULT` allows several processes; `runner gpus` shows the mode and who computes on it, "
        "`nvidia-smi -q` a licence",
    ),
    Known(
        r"MPS_MAX_(CLIENTS|CONNECTIONS)\w*|cudaErrorMpsMax\w+|MPS server has reached the maximum",
        "more programs use NVIDIA's MPS at a time than its server takes",
        "fewer programs on the GPU, a lower CUDA_DEVICE_MAX_CONNECTIONS for each, or CUDA_MPS_PIPE_DIRECTORY out of the environment",
    ),
    Known(
        r"CUDA_ERROR_MPS_\w+|cudaErrorMps\w+|MPS (client|server)\b|multi-process service|says 8(0[5-9]|10)\b|nvidia-cuda-mps-\w+",
        "the process is a client of NVIDIA's MPS, whose server does not take it",
        "look at `nvidia-cuda-mps-control` and its logs, or take CUDA_MPS_PIPE_DIRECTORY out of the environment",
    ),
    Known(
        r"CUDA_ERROR_NOT_PERMITTED|cudaErrorNotPermitted",
        "this user may not do so on the GPU: MPS's server is another user's, or a profiler or device of it is for root only",
        "look whose `nvidia-cuda-mps-server` runs, and take CUDA_MPS_PIPE_DIRECTORY out of the environment",
    ),
    Known(
        r"[Cc]annot create Cublas handle|cublasCreate(_v2)?\b[^\n]*fail|failed to create cublas handle",
        "cuBLAS could not start on the GPU: its memory is full, or MPS's server does not take the process",
        "look with `runner gpus` who else uses it, and at CUDA_MPS_PIPE_DIRECTORY in the environment",
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
        "the framework cannot use the GPU that the driver opens: its build is of a newer CUDA than the driver, or "
        "lacks a library of it",
        "its build for the CUDA that `nvidia-smi` shows with all of its libraries, or a newer driver",
    ),
    Known(
        r"libonnxruntime_providers\w+\.so: cannot open"
        r"|is built without CUDA|Torch not compiled with CUDA enabled|CUDA-enabled jaxlib is not installed|not compiled with CUDA",
        "the framework's build is for the CPU",
        "its build with CUDA: the index or the package's name says which (cu128, cuda12, -gpu)",
    ),
    Known(
        r"finds no GPU: cu\w+ says|[Ff]ailed call to cuInit|operation cuInit\(0\) failed|CUDA driver initialization failed"
        r"|CUDA initialization failure with error|CUDA failed to initialize",
        "the CUDA driver does not start",
        "`runner doctor`, `nvidia-smi`, and the kernel's log (`dmesg`) tell more",
    ),
    Known(
        r"undefined symbol: nvml\w+",
        "the driver's NVML (libnvidia-ml) is older than the framework asks for",
        "a newer driver; in a container also look for another libnvidia-ml in LD_LIBRARY_PATH, such as one in a folder `stubs`",
    ),
    Known(
        r"undefined symbol: _*nv(JitLink|rtc)|undefined symbol: _*(cu(da|blas|dnn|sparse|solver|fft|rand)|nccl)"
        r"|version lib(cu|nv)\S+ not defined in file|lib(cu|nv)[\w.-]*: version `[^']+' not found",
        "a library of another release of CUDA or NCCL is loaded than the framework was built with",
        "look for other copies of CUDA in LD_LIBRARY_PATH, and for packages of two releases (`pip list | grep nvidia`)",
    ),
    Known(
        r"lib(cudnn|nccl|cublas|cudart|cufft|curand|cusolver|cusparse|cupti|nvJitLink)[\w.]*: cannot open shared object file"
        r"|Cannot dlopen some GPU libraries|Unable to load cu\w+\. Is it installed|Unable to load CUDA\. Is it"
        r"|CUDA (wasn't|was not|could not be|cannot be) (able to be )?loaded"
        r"|Failed to create CUDAExecutionProvider"
        r"|third-party dynamic library \(lib(cu|nv|nccl)",
        "the framework does not find NVIDIA's libraries in the image",
        "the image's LD_LIBRARY_PATH, or a base image with CUDA and cuDNN of the releases that the framework names",
    ),
    Known(
        r"CUDA[_ ](error: |failure \W?(\d+ ')?)?out of memory|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|OutOfMemoryError",
        "the GPU's memory did not suffice",
        "a GPU with more memory; look with `runner gpus` whether somebody else uses it",
    ),
    Known(
        r"uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE",
        "the GPU's memory is damaged",
        "take the GPU out of use; `nvidia-smi -q -d ECC,ROW_REMAPPER` tells more",
    ),
    # the runner, of a driver that answers and lists nothing (runner.machine.detect)
    Known(
        r"the NVIDIA driver knows no GPU|No devices were found",
        "the driver runs and has no GPU: none was given to this job or container, or none could be started",
        "ask for GPUs in the job or container; on the machine itself `dmesg | grep NVRM` tells why one did "
        "not start (RmInitAdapter): its "
        "power and seat, Above 4G Decoding in the BIOS, or a driver that knows it",
    ),
    # NVML, of a GPU after an error
    Known(
        r"GPU requires (reset|restart)",
        "the GPU must be reset before anything can compute on it again",
        "`nvidia-smi --gpu-reset -i N` when nothing uses it, or restart the machine; `nvidia-smi -q -d "
        "ECC,ROW_REMAPPER` tells if its memory failed",
    ),
    Known(
        r"NVIDIA driver does not answer \(Driver Not Loaded\)|couldn't communicate with the NVIDIA driver|key was rejected by service"
        r"|could not insert 'nvidia|module nvidia\S* not found|disagrees about version|NVRM: (?!Xid)",
        "NVIDIA's kernel module is not loaded, or does not start the GPU: after a new kernel it must be built again, Secure Boot refuses "
        "one that is not signed, and GPUs older than Turing want the closed one",
        "`modprobe nvidia` and `dmesg` tell why; `dkms status` if it was built for `uname -r`; else install the driver "
        "again, and unload nouveau",
    ),
    Known(
        r"GPU is lost|fallen off the bus|Unable to determine the device handle|answers with an error \(Unknown Error\)",
        "the GPU answers no more",
        "restart the machine; when it comes back: power supply, riser, heat",
    ),
    Known(
        r"GPU access blocked by the operating system|WSL environment detected but no adapters|libdxcore\.so",
        "Windows gives this WSL no GPU",
        WSL_FIX,
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
        r"NVML_SUCCESS == r|nvml\w+_? ?(failed|INTERNAL ASSERT)",
        "the framework asked NVML for the GPU's memory and got no answer: in a container without the capability `utility`, or on a part of "
        "a GPU (MIG) that is full",
        "`nvidia-smi` in the container tells which; a GPU or instance with more memory",
    ),
    # NCCL
    Known(
        r"Duplicate GPU detected",
        "two processes of the cell were given the same GPU",
        "look at CUDA_VISIBLE_DEVICES, which may name one twice, and plan again",
    ),
    Known(
        r"ibv_(reg_mr|create_cq|create_qp)\w*[^\n]*(allocate memory|failed)|memlock",
        "InfiniBand may not hold as much memory as it needs: the limit of locked memory is too low",
        "`ulimit -l unlimited` where the runner starts, or in limits.conf; NCCL_IB_DISABLE=1 goes by the network without it",
    ),
    Known(
        r"NET/IB",
        "a link of InfiniBand or RoCE between the machines failed",
        "`ibstat` and `ibv_devinfo` show its ports: cable, switch, or their address (NCCL_IB_GID_INDEX); NCCL_IB_DISABLE=1 goes by the "
        "network without it",
    ),
    Known(
        r"no socket interface found|no NCCL_SOCKET_IFNAME interface|ncclSocketInit: connecting to address",
        "NCCL finds no network interface by the name that it was given",
        "set NCCL_SOCKET_IFNAME to one that `ip address` shows, or take it out of the environment",
    ),
    Known(
        r"[Ww]atchdog caught collective operation timeout|collective operation timeout: WorkNCCL",
        "the GPUs waited for one of them in vain: a process was slow, ended or stood elsewhere, or their link hangs",
        "the stacks of all ranks in the log tell which one was elsewhere; NCCL_P2P_DISABLE=1 tells if it is the direct "
        "link between GPUs",
    ),
    Known(
        r"peer access is not supported|cudaErrorPeerAccessUnsupported|CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
        r"|failed to open CUDA IPC handle",
        "these GPUs cannot read each other's memory directly, and the framework took it that they can",
        "NCCL_P2P_DISABLE=1 goes by the machine's memory; else switch off ACS and the IOMMU in the BIOS (`iommu=pt`)",
    ),
    Known(
        # A failure of CUDA that it hands on has an entry of its own, by CUDA's words.
        r"NCCL [Ee]rror(?![^\n]*unhandled cuda)|NCCL WARN(?! Cuda failure)|nccl(System|Internal|Remote)Error|ncclInvalid\w+",
        "the GPUs did not reach each other",
        "NCCL_DEBUG=INFO in the image tells more; most often /dev/shm is too small, or the network interface is another one",
        general=True,
    ),
    # torch.distributed, Gloo and NCCL, of processes that look for each other
    Known(
        r"client socket has (failed|timed out)|connectFullMesh|DistNetworkError|DistStoreError|TCPStore|find address for: |rendezvous",
        "the processes of a cell do not find each other",
        "the name of this machine must lead to it (`getent hosts $(hostname)`); GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the network "
        "interface; a firewall or proxy may be between, even on one machine",
        general=True,
    ),
    # Triton, as torch.compile uses it; of the linker and compilers below it
    Known(
        r"fatal error: \S+: No such file|\bld: cannot find |(gcc|g\+\+|cc|clang|nvcc)\b[^\n]*(returned non-zero|failed with exit)"
        r"|compilation terminated|metadata-generation-failed|[Ff]ailed (to build|building wheel)",
        "a package that is compiled here lacks a part of what that takes, which the message names",
        "install it: Python.h is in python3-dev; -lcuda is the driver's, which a container gets with its GPUs; for a package that has no "
        "build for this Python name another one with --python",
        general=True,
    ),
    Known(
        r"Failed to find C compiler|Please specify via CC environment",
        "Triton compiles as the program runs, and the image has no C compiler",
        "an image with gcc, or CC that names a compiler",
    ),
    # what has no entry of its own above, by CUDA's names
    Known(
        r"cuda (\w+ )?(error|call failed|failed|failure)|unhandled cuda|cudaError[A-Z]\w+|CUDA_ERROR_\w+|\bcuda\w{4,}\(\)|initialize CUDA",
        "a call of CUDA failed",
        "`nvidia-smi` and the kernel's log (`dmesg | grep -i xid`) tell if the GPU is well; then another version of "
        "the framework",
        general=True,
    ),
)
