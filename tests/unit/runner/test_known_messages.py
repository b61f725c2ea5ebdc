"""What other programs end with has a meaning and a remedy: of the most particular message that fits."""

from __future__ import annotations

import re

import pytest

from runner import known_messages
from runner.messages.of_gpus import xid


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "max_compute_capability",
        ),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "more memory"),
        ("jax: RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "more memory"),
        ("the provided PTX was compiled with an unsupported toolchain.", "older CUDA"),
        ("OSError: libcudnn.so.8: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
        ("OSError: [Errno 28] No space left on device", "--resume"),
        ("its process ended with exit code 132 (SIGILL) before its `end`", "AVX"),
        ("its process ended with exit code 137 (SIGKILL) before its `end`", "dmesg"),
        ("its process ended with exit code 135 (SIGBUS) before its `end`", "shared memory"),
        ("Failed to initialize NVML: Unknown Error", "cgroupfs"),
        ("CUDA error 802: system not yet initialized", "nvidia-fabricmanager"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "-c DEFAULT"),
        ("GPU access blocked by the operating system", "no Linux driver inside WSL"),
        ("CUDA error 804: forward compatibility was attempted on non supported HW", "`compat`"),
        ("failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"),
        ("Error 803: system has unsupported display driver / cuda driver combination", "restart the machine"),
        ("RuntimeError: No CUDA GPUs; no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"),
        ("torch 2.11 finds no GPU: cuInit says 100 CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("CUDA error: invalid device ordinal", "nvidia-smi -L"),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "nvidia_uvm"),
        ("jax finds no GPU: cuInit says 999 CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        ("failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized", "nvidia-fabricmanager"),
        ("CUDA error: an illegal memory access was encountered", "another version"),
        ("Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so", "cuda_nvrtc"),
        ("nvrtc: error: failed to open libnvrtc-builtins.so.12.4.", "cuda_nvrtc"),
        ("Loaded runtime CuDNN library: 8.5.0 but source was compiled with: 8.9.4", "LD_LIBRARY_PATH"),
        ("Outdated cuDNN installation found.", "LD_LIBRARY_PATH"),
        ("Failed to create cuDNN handle: CUDNN_STATUS_NOT_INITIALIZED", "who else uses"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "who else uses"),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "knows this GPU"),
        ("libdevice not found at ./libdevice.10.bc", "xla_gpu_cuda_data_dir"),
        ("Couldn't find ptxas binary in ${CUDA_DIR}/bin", "wheels of nvcc"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "modprobe nvidia"),
        ("nvidia-container-cli: initialization error: cuda error: unknown error: unknown", "modprobe nvidia_uvm"),
        ('exec: "runc": find runc path: executable file not found in $PATH', "install runc"),
        (
            "failed to register layer: open /var/lib/docker/overlay2/c2/.tmp-committed1: no such file or directory",
            "docker system df",
        ),
        ("failed to register layer: mkdir /opt/app/cache: no space left on device", "free some space"),
        (
            "FATAL: container creation failed: failed to find loop device: Could not open loop device /dev/loop0",
            "modprobe loop",
        ),
        ("crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv1: OCI runtime error", "runc"),
        (
            "FATAL: container creation failed: squashfuse_ll mount /run/it.sif: fuse: failed to open /dev/fuse: Permission denied",
            "chmod 666 /dev/fuse",
        ),
        (
            'FATAL: while mounting image: exec: "squashfuse_ll": executable file not found in $PATH',
            "install squashfuse",
        ),
        ("ERROR : Failed to create user namespace: user namespace disabled", "user.max_user_namespaces"),
        ("[TRT] CUDA initialization failure with error 35. Please check your CUDA installation", "newer driver"),
        ("CUDA failed to initialize. [[ Initialization error (error 3) ]]", "dmesg"),
        ("CUDA failed to initialize. [[ System not yet initialized (error 802) ]]", "nvidia-fabricmanager"),
        (
            "Error loading shared library libsubid.so.5: No such file or directory (needed by /usr/bin/starter-suid)",
            "apt-file",
        ),
        ("RuntimeError: unable to open shared memory object </torch_3> in read-write mode", "ulimit -n"),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "next version"),
        ("cuDNN error: CUDNN_STATUS_BAD_PARAM", "next version"),
        ("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`", "next version"),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "who else uses"),
        ("RuntimeError: GET was unable to find an engine to execute this computation", "knows this GPU"),
        ("Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice", "xla_gpu_cuda_data_dir"),
        ("Couldn't invoke ptxas --version", "wheels of nvcc"),
        ("Could not load library libnvrtc.so.12", "cuda_nvrtc"),
        ("RuntimeError: No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES"),
        ("Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.", "CUDA_VISIBLE_DEVICES"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "nvidia-smi"),
        ("The NVIDIA driver on your system is too old (found version 12020)", "a newer driver"),
        ("torch 2.11.0 opens no GPU, and the CUDA driver does: the driver is of CUDA 12.2", "a newer driver"),
        ("torch 2.11.0+cpu is built without CUDA; install its build with CUDA", "-gpu"),
        ("failed to inject CDI devices: failed to inject devices", "nvidia-ctk cdi list"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0", "nvidia-cdi-refresh"),
        ("failed call to cuInit: CUDA_ERROR_MPS_CONNECTION_FAILED", "CUDA_MPS_PIPE_DIRECTORY"),
        ("external/xla/xla/stream_executor: operation cuInit(0) failed", "dmesg"),
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"),
        ("ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory", "cuda_nvrtc"),
        ("CUDA_ERROR_MPS_RPC_FAILURE", "CUDA_MPS_PIPE_DIRECTORY"),
        ("CUDA error: MPS server is not ready to accept new MPS client requests", "CUDA_MPS_PIPE_DIRECTORY"),
        ("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "CUDA_MPS_PIPE_DIRECTORY"),
        ("jax finds no GPU: cuInit says 809; `nvidia-smi` may tell more", "CUDA_MPS_PIPE_DIRECTORY"),
        ("torch 2.11.0 finds no GPU: cuInit says 3; `nvidia-smi` may tell more", "dmesg"),
        ("failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)", "dmesg"),
        ("NVIDIA GeForce RTX 5090 is not compatible with the current PyTorch installation", "another image"),
        ("CUDA error: unspecified launch failure", "another version"),
        ("undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12", "other copies of CUDA"),
        ("OSError: libcudart.so.12: cannot open shared object file", "LD_LIBRARY_PATH"),
        ('could not select device driver "nvidia.runtime-hook" with capabilities: [[gpu]]', "nvidia-ctk cdi generate"),
        ("OSError: [Errno 122] Disk quota exceeded", "your files"),
        ("ImportError: libx.so: failed to map segment from shared object", "noexec"),
        ("RuntimeError: can't start new thread", "ulimit -u"),
        ("OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2", "pids.max"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "more memory"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3 GiB", "more memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "more memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9",
            "more memory",
        ),
        (
            "unable to open shared memory object </torch_9_1> in read-write mode: No space left on device (28)",
            "df /dev/shm",
        ),
        ("unable to write to file </torch_9_1>: No space left on device (28)", "df /dev/shm"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "df /dev/shm"),
        ("OSError: [Errno 116] Stale file handle: '/home/x'", "mount it again"),
        ("/lib/libstdc++.so.6: version `CXXABI_1.3.15' not found", "--engine docker"),
        ("libgomp.so.1: cannot allocate memory in static TLS block", "LD_PRELOAD"),
        ("/lib/libm.so.6: version `GLIBC_2.38' not found", "--engine docker"),
        ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "--engine docker"),
        ("Requested CPUs are not available - requested 0-7, available: 0-3", "taskset"),
        ("invalid mount config for type bind: bind source path does not exist: /cache", "--engine venv"),
        ("Fatal glibc error: CPU does not support x86-64-v2", "--base-image"),
        ("OSError: [Errno 30] Read-only file system: '/cache/x'", "XDG_CACHE_HOME"),
        ("    fcntl.flock(fd, fcntl.LOCK_EX)\nOSError: [Errno 38] Function not implemented", "another one"),
        ("OSError: [Errno 37] No locks available", "another one"),
        ("SSLError: certificate verify failed: certificate is not yet valid", "`date`"),
        ("docker-credential-desktop.exe not installed or not available in PATH", '"credsStore"'),
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
        ("rank 1 of 2: it was ended by signal 7 (SIGBUS)", "shared memory"),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "libgl1"),
        ("exec /usr/bin/python3: exec format error", "architecture"),
        (
            "The TensorFlow library was compiled to use AVX instructions, but these aren't available on your machine.",
            "AVX",
        ),
        ("RuntimeError: CUDA error: CUDA_ERROR_CONTAINED", "stayed within it"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "nvlink -e"),
        ("ModuleNotFoundError: No module named 'numpy.linalg'", "lacks a Python package"),
        ("407 Proxy Authentication Required", "proxy"),
        ("cuda runtime error (30) : unknown error at /opt/conda/THCGeneral.cpp:51", "nvidia_uvm"),
        ("Check failed: device_count_ > 0 (-1 vs. 0) : GPU usage requires at least 1 GPU", "CUDA_VISIBLE_DEVICES"),
        ("No GPU/TPU found, falling back to CPU.", "CUDA_VISIBLE_DEVICES"),
        ("OSError: libmxnet.so: undefined symbol: nvmlDeviceGetComputeRunningProcesses_v2", "a newer driver"),
        ("RuntimeError: UNKNOWN: PTX JIT compiler library not found", "code for this GPU"),
        ("ptxas exited with non-zero error code 256, output: ", "newer CUDA"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "licence"),
        ("nvidia-container-cli: initialization error: change root failed: no such file or directory", "config.toml"),
        (
            "nvidia-container-cli: initialization error: driver rpc error: failed to process request",
            "nvidia-container-cli -k",
        ),
        ("nvidia-container-cli: detection error: nvml error: unknown error", "nvidia-container-cli -k"),
        (
            "OCI runtime create failed: runc create failed: unable to start container process: something new",
            "hello-world",
        ),
        (
            "apparmor failed to apply profile: write /proc/self/attr/exec: permission denied",
            "systemctl restart apparmor",
        ),
        ("INFO:    Could not find any nv files on this host!", "ldconfig -p"),
        (
            "failed to open CUDA IPC handle : 217 peer access is not supported between these two devices",
            "NCCL_P2P_DISABLE=1",
        ),
        ("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister", "pip list"),
        ("ImportError: libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", "look for other copies"),
        (
            "RuntimeError: module compiled against ABI version 0x1000009 but this version of numpy is 0x2000000",
            "numpy<2",
        ),
        ("ImportError: numpy.core.multiarray failed to import", "numpy<2"),
        ("RuntimeError: CUDA error: operation not supported", "dmesg"),
        ("ImportError: libopenblas.so.0: cannot open shared object file: No such file or directory", "apt-file"),
        ("ImportError: cannot import name 'runtime_version' from 'google.protobuf'", "the releases of the lock"),
        ("RuntimeError: The server socket has failed to listen: EADDRINUSE, Address already in use", "ss -ltnp"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x'", "ls -ld"),
        ("Error 500: named symbol not found", "Docker Desktop (4.31"),
        ("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.", "dmesg"),
        ("CUDA driver is a stub library", "`stubs`"),
        (
            "NCCL WARN Error while creating shared memory segment nccl-shm-recv-2-0-1-3 (size 9637888)\nNCCL error: unhandled system error",
            "df /dev/shm",
        ),
        ("Call to posix_fallocate failed: No space left on device", "df /dev/shm"),
        (
            "NCCL WARN Call to shm_open failed : Permission denied\nRuntimeError: NCCL error in: unhandled system error",
            "chmod 1777",
        ),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=216)", "NCCL_P2P_DISABLE"),
        (
            "NCCL error\nncclInternalError: Internal check failed.\nncclSocketInit: connecting to address  with family 59936",
            "NCCL_SOCKET_IFNAME",
        ),
        ("NCCL WARN Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("Failed to create CUDAExecutionProvider. Please reference https://onnxruntime.ai", "LD_LIBRARY_PATH"),
        (
            "symbol free_gemm_select version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference",
            "other copies of CUDA",
        ),
        (
            "cuDNN version incompatibility: PyTorch was compiled  against (8, 7, 0) but found runtime version (8, 2, 4).",
            "LD_LIBRARY_PATH",
        ),
        ("Found cuDNN version 8600, but JAX was built against version 8906, which is newer.", "LD_LIBRARY_PATH"),
        ("Found CUDA version 12010, but JAX was built against version 12020, which is newer.", "LD_LIBRARY_PATH"),
        ("CUDA backend failed to initialize: Unable to load cuDNN. Is it installed?", "LD_LIBRARY_PATH"),
        ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "knows this GPU"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "max_compute_capability"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "gcc"),
        ("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open", "snap"),
        (
            "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory",
            "ldconfig.real",
        ),
        (
            "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters",
            "no-cgroups",
        ),
        (
            "nvidia-container-cli: mount error: file creation failed: /merged/usr/lib/libnvidia-ml.so.1: file exists",
            "docker commit",
        ),
        (
            "nvidia-container-cli: mount error: stat failed: /usr/lib/wsl/lib/libcuda.so.1: no such file or directory",
            "wsl --shutdown",
        ),
        (
            'setting up CDI devices: failed to inject devices: failed to stat CDI host device "/dev/dri/renderD129"',
            "nvidia-cdi-refresh",
        ),
        ("unresolvable CDI devices nvidia.com/gpu=all", "cdi-spec-dirs"),
        (
            "container create: container-init binary not found on the host: stat /usr/libexec/podman/catatonit",
            "install the package catatonit",
        ),
        ("potentially insufficient UIDs or GIDs available in user namespace (requested 0:42)", "add-subuids"),
        ("GPU 0 answers with an error (GPU requires restart); it needs a reset", "--gpu-reset"),
        ("GPU 0 answers with an error (Unknown Error); `nvidia-smi -q -i 0` says more", "restart the machine"),
        ("the NVIDIA driver does not answer (Driver Not Loaded); `runner doctor` says more", "Secure Boot"),
        ("the NVIDIA driver knows no GPU", "RmInitAdapter"),
        ("Failed to establish a new connection: [Errno -3] Temporary failure in name resolution", "resolv.conf"),
        (
            "error: Failed to fetch: `https://a/simple/b/` dns error: failed to lookup address information",
            "resolv.conf",
        ),
        ("ReadTimeoutError: HTTPSConnectionPool(host='files', port=443): Read timed out.", "PIP_TIMEOUT"),
        ("NewConnectionError: Failed to establish a new connection: [Errno 111] Connection refused", "HTTPS_PROXY"),
        ("urllib3.exceptions.IncompleteRead: IncompleteRead(900 bytes read, 100 more expected)", "a proxy or firewall"),
        ("invalid peer certificate: UnknownIssuer", "names the authority"),
        ("net.py, line 9: `loss.backward()`: TypeError: 'float' object is not callable", "correct it in the file"),
        ("net.py, line 2: `import other`: ModuleNotFoundError: No module named 'other'", "no other file of yours"),
        ("net.py: step() returned Tensor of shape (10,); return the loss, one number", "correct it in the file"),
        ("net.py, line 7: `x @ w`: RuntimeError: CUDA error: invalid device ordinal", "nvidia-smi -L"),
        ("The virtual environment was not created successfully because ensurepip is not available.", "python3-venv"),
    ],
)
def test_a_known_message_has_advice(text: str, words: str) -> None:
    assert words in str(known_messages.hint("crash", text))


@pytest.mark.parametrize(
    ("reason", "log", "words"),
    [
        ("exit code 139 (SIGSEGV)", "OpenBLAS blas_thread_init: pthread_create failed for thread 1", "pids.max"),
        ("NCCL error: unhandled system error", "shm.h:48 NCCL WARN Call to shm_open failed : Permission denied", "chmod 1777"),
        ("NCCL error: unhandled system error", "nothing else", "NCCL_DEBUG"),
        # TensorFlow prints this wherever there is no GPU: it ended no process.
        ("exit code 137 (SIGKILL)", "Could not find cuda drivers on your machine, GPU will not be used.", "out of memory"),
        ("exit code 137 (SIGKILL)", "dlerror: libnvinfer.so.7: cannot open shared object file: No such file", "out of memory"),
        # A process that lost the others says so of its connections, and no server is to blame.
        ("exit code 139 (SIGSEGV)", "RuntimeError: [gloo] Connection reset by peer [127.0.0.1]:3", "the stack"),
    ],
)  # fmt: skip
def test_a_general_message_gives_way_to_what_the_log_says_of_the_machine(reason: str, log: str, words: str) -> None:
    assert words in str(known_messages.hint("crash", reason, log))


# Of Slurm, MUNGE and Ray, as people report them: what was printed, and words of the sentence that a run ends with.
_SCHEDULERS = {
    "salloc: error: QOSMaxSubmitJobPerUserLimit\nsalloc: error: Job submit/allocate failed: Job violates accounting/QOS policy": (
        "QOSMaxSubmitJobPerUserLimit; Job submit", "squeue --me",
    ),
    "salloc: error:     --> error: requested timelimit exceeds max of 24 hours\nsalloc: error:  \nsalloc: error: Job submit/allocate "
    "failed: Job violates accounting/QOS policy": ("exceeds max of 24 hours", "SALLOC_TIMELIMIT"),
    "salloc: error: Cannot find GPU specification, you may not submit a job not requesting GPUs\nsalloc: error: Unspecified error": (
        "Cannot find GPU specification", "SALLOC_GRES",
    ),
    "salloc: error: Job submit/allocate failed: Invalid account or account/partition combination specified": (
        "Invalid account", "SALLOC_ACCOUNT",
    ),
    "salloc: error: Job submit/allocate failed: Requested node configuration is not available": ("configuration", "scontrol show node"),
    "salloc: error: Job submit/allocate failed: Invalid generic resource (gres) specification": ("(gres)", "gres.conf|GresTypes"),
    "sinfo: error: If munged is up, restart with --num-threads=10\nsinfo: error: Munge encode failed: Failed to access "
    "\"/var/run/munge/munge.socket.2\": No such file or directory\nslurm_load_partitions: Protocol authentication error": (
        "Munge encode failed", "systemctl start munge",
    ),
    "slurm_load_partitions: Unable to contact slurm controller (connect failure)": ("connect failure", "slurmctld"),
    "srun: error: Task launch for StepId=47.0 failed on node n0: Invalid job credential": ("Invalid job credential", "munge.key"),
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\nsrun: error: n0: task 0: Out Of Memory": ("Out Of Memory", "--mem=0"),
    "salloc: Granted job allocation 7\nsalloc: Prolog failure on node n3\nsalloc: error: Job allocation 7 has been revoked": (
        "Prolog failure on node n3; Job allocation 7 has been revoked", "sinfo -R",
    ),
    "srun: error: Task launch for StepId=1.4 failed on node n0: Unable to layout tasks on given cpus\nsrun: error: Application launch "
    "failed: Unable to layout tasks on given cpus": ("layout tasks", "SLURM_CPU_BIND"),
    "salloc: error: Users must say --ntasks here.\nsalloc: error: Job submit/allocate failed: Unspecified error": (
        "Users must say --ntasks here.; Job submit", "rules of its own",
    ),
    "the actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats": ("heartbeats", "raylet.out"),
    "slurmstepd: error: execve(): /home/me/dlbench/.venv/bin/python: No such file or directory\nsrun: error: n0: task 0: Exited with "
    "exit code 2": ("/home/me/dlbench", "all nodes share"),
    "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: Could not establish a configuration source": ("DNS", "SLURM_CONF"),
    "IOError: 14: failed to connect to all addresses; last error: HTTP proxy returned response code 403": ("proxy", "no_proxy"),
    "Session name session_2 does not match persisted value b'session_1'. Perhaps there was an error": ("persisted", "--port"),
    "Version mismatch: The cluster was started with:\n    Ray: 2.9.3\n    Python: 3.10.13\nThis process was started with:\n"
    "    Ray: 2.9.3\n    Python: 3.10.12\n": ("3.10.13 This process was started with: Ray: 2.9.3 Python: 3.10.12", "that the cluster has"),
    "Failed to set up runtime environment.\nOSError: [Errno 28] No space left on device: '/tmp/ray/session_latest/x'": (
        "No space left", "--temp-dir",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("printed", "words"), _SCHEDULERS.items())
def test_what_a_scheduler_prints_is_told_whole_with_its_remedy(printed: str, words: tuple[str, str]) -> None:
    said = known_messages.explained(printed, whole=not re.match("s[a-z_]+: ", printed))
    assert words[0] in said
    assert any(word in said for word in words[1].split("|"))
    assert "\n" not in said
    long = "Traceback (most recent call last):\n" + "  File 'a', line 1\n" * 99 + "ValueError: nothing that is known"
    assert (
        known_messages.explained(long)
        == known_messages.explained(long, whole=True)
        == "ValueError: nothing that is known"
    )
    assert known_messages.explained("Welcome to n1.\nHost key verification failed.").startswith(
        "Host key verification failed.; ssh "
    )
    assert known_messages.explained("Welcome to n1.\nIt is 5 pm.") == "It is 5 pm."
    assert known_messages.explained("") == ""


def test_the_cause_of_an_installer_s_failure_is_a_line_before_its_last_words() -> None:
    warning = "WARNING: Retrying: NewConnectionError('Failed to establish a new connection: [Errno -2] Name or service not known')"
    assert known_messages.cause(["Collecting a", warning, "ERROR: No matching distribution found for a"]) == warning
    last = "ERROR: No matching distribution found for a"
    assert known_messages.cause(["Collecting a", last]) == last
    assert known_messages.cause(["Collecting a", "done"]) is None


def test_an_unknown_message_has_the_advice_of_its_kind_or_none() -> None:
    assert "--timeout" in str(known_messages.hint("time-limit", "what is this"))
    assert "in another image" in str(known_messages.hint("crash", "what is this"))
    assert "in another image" in str(known_messages.hint("framework", "what is this"))
    assert known_messages.hint("parity", "what is this") is None
    semaphores = "    sl = _multiprocessing.SemLock(\nOSError: [Errno 38] Function not implemented"
    assert known_messages.find(semaphores) is None
    assert xid(79)[0] == "the GPU has fallen off the bus"
    assert xid(149)[0] == "an error on an NVLink"
    assert xid(9999)[0]


def test_every_pattern_is_a_regular_expression_and_every_entry_says_all_three() -> None:
    for known in known_messages.KNOWN:
        assert known_messages.find("nothing that is known here") is None
        assert known.pattern
        assert known.means
        assert known.fix
