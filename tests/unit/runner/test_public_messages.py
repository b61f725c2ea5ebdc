"""Messages from public reports, by families: a program that is not in any list is told by what its words are about."""

from __future__ import annotations

import pytest

from runner import known_messages

# What each family means, in words of its sentence -> messages that people met.
FAMILIES: dict[str, tuple[str, ...]] = {
    "Windows gives this WSL no GPU": (
        "nvidia-container-cli: initialization error: WSL environment detected but no adapters were found: unknown",
        "ImportError: libdxcore.so: cannot open shared object file: No such file or directory",
    ),
    "the engine could not start the container": (
        "FATAL:   container creation failed: failed to resolve session directory /usr/local/var/apptainer/mnt/session",
        "FATAL:   container creation failed: while getting /proc/self/ns/user file descriptor: connection reset by peer",
        'failed to start shim: start failed: exec: "containerd-shim-runc-v2": executable file not found in $PATH: unknown',
    ),
    "the control group of a container": (
        'FATAL: while applying cgroups config: unable to start unit "apptainer-1.scope": Interactive authentication required.',
        "Error: sd-bus call: Permission denied: OCI runtime permission denied error",
        "OCI runtime create failed: error setting cgroup config for procHooks process: bpf_prog_query(BPF_CGROUP_DEVICE) failed",
        "failed to create shim: setting cgroup config for procHooks process caused: load program: invalid argument: unknown",
        'unable to apply cgroup configuration: cannot enter cgroupv2 "/sys/fs/cgroup/default" -- it is in an invalid state',
        "OCI runtime create failed: process_linux.go: Failed to reset devices.list: Operation not permitted",
        "docker: Error response from daemon: cgroups: cgroup mountpoint does not exist: unknown.",
        "cgroups: cannot find cgroup mount destination: unknown",
        "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
    ),
    "its control groups were not handed to it": (
        "Error: crun: the requested cgroup controller `cpuset` is not available: OCI runtime error",
        "OCI runtime create failed: openat2 /sys/fs/cgroup/user.slice/user-1000.slice/cpuset.cpus: no such file or directory",
    ),
    "could not mount the container's file system": (
        "Error: crun: make `/home/j/.local/share/containers/storage/overlay/ef/merged` private: Permission denied: OCI permission denied",
        "error creating overlay mount to /var/lib/docker/overlay2/ab/merged: invalid argument",
        'error during container init: error mounting "proc" to rootfs at "/proc": operation not permitted: unknown',
    ),
    "settings of its storage or its registries": (
        'Error: short-name "base" did not resolve to an alias and no registries are defined in "/etc/containers/registries.conf"',
        "Error: configure storage: 'overlay' is not supported over overlayfs, a mount_program is required",
    ),
    "this kernel lets users make no user namespace": (
        "runc create failed: unable to start container process: can't get final child's PID from pipe: EOF: unknown",
        "ERROR  : User namespace not supported, and program not running privileged.",
    ),
    "the engine does not see this machine's folders": (
        "Error response from daemon: mounts denied: The path /data is not shared from the host and is not known to Docker.",
    ),
    "releases that do not speak with each other": (
        "Error response from daemon: client version 1.41 is too old. Minimum supported API version is 1.44",
    ),
    "the network of a container": (
        "failed to set up container networking: driver failed programming external connectivity on endpoint x: Unable to enable DNAT rule: "
        "(iptables failed: iptables --wait -t nat -A DOCKER: iptables: No chain/target/match by that name.\n (exit status 1))",
        "failed to create network bridge: Unable to enable ACCEPT INCOMING rule: Chain 'DOCKER-ISOLATION-STAGE-2' does not exist",
        "Error: pasta failed with exit code 1:\nnetns dir open: Permission denied, exiting",
        "Error: could not find pasta, the network namespace can't be configured: exec: \"pasta\": executable file not found in $PATH",
    ),
    "a layer of the image is damaged": (
        "failed to extract layer sha256:02c0: failed to get reader from content store: content digest sha256:6969: not found",
        "failed to register layer: Error processing tar file(exit status 1): archive/tar: invalid tar header",
        "failed to register layer: exit status 1: unpigz: skipping: <stdin>: corrupted -- invalid deflate data",
    ),
    "another kind of processor": (
        "FATAL: could not open image /x.sif: the image's architecture (amd64) could not run on the host's (arm64)",
    ),
    "two packages are of releases that do not fit": (
        "TypeError: Descriptors cannot not be created directly.\nIf this call came from a _pb2.py file, your generated code is out of date",
        "RuntimeError: jaxlib version 0.4.30 is newer than and incompatible with jax version 0.4.23.",
    ),
    "built for another release of NumPy": ("RuntimeError: Numpy is not available",),
    "instructions that this CPU does not have": (
        "RuntimeError: This version of jaxlib was built using AVX instructions, which your CPU and/or operating system do not support.",
    ),
    "a file of a package's name lies in its way": (
        "AttributeError: partially initialized module 'torch' has no attribute 'Tensor' (most likely due to a circular import)",
    ),
    "Python does not find a part of its own": (
        "Fatal Python error: init_fs_encoding\nModuleNotFoundError: No module named 'encodings'",
        "ModuleNotFoundError: No module named '_ctypes'",
    ),
    "the framework does not find NVIDIA's libraries": (
        "RuntimeError: Unable to use CUDA because of the following issues:\nUnable to load CUDA. Is it installed?",
        "RuntimeError: CUDA_PATH is set but CUDA wasn't able to be loaded. Please install the correct version of CUDA and cuDNN",
    ),
    "the framework's build is for the CPU": (
        "Failed to load library libonnxruntime_providers_cuda.so with error: libonnxruntime_providers_cuda.so: cannot open shared object",
    ),
    "a library of NVIDIA refused a call": (
        "Check failed: stat == CUBLAS_STATUS_SUCCESS (13 vs. 0) [cublas status]: execution failed",
        "OSError: (External) CUBLAS error(7).",
    ),
    "a library of NVIDIA could not start": (
        "InternalError: Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul]",
    ),
    "the GPU's memory did not suffice": (
        "NCCL error in: NCCLUtils.hpp:317, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 'out of memory'",
    ),
    "the driver cannot start CUDA": (
        "NCCL error in: NCCLUtils.hpp:275, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 999 'unknown error'",
    ),
    "by a number or name that is not there": ("RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at CUDAContext.cpp",),
    "a call of CUDA failed": (
        "NCCL error in: NCCLUtils.hpp:275, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 1 'invalid argument'",
        "RuntimeError: CUDA driver error: invalid argument",
        "torch.cuda.DeferredCudaCallError: CUDA call failed lazily at initialization with error: device >= 0",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 3: initialization error",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
    ),
    "no code for this GPU's compute capability": (
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        "'sm_120' is not a recognized processor for this target (ignoring processor)\nRuntimeError: PassManager::run failed",
    ),
    "asked NVML for the GPU's memory": ("RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp",),
    "the kernel still runs the old module": (
        "NVRM: API mismatch: the client has the version 535.129.03, but this kernel module has the version 535.104.05.",
    ),
    "kernel module is not loaded, or does not start the GPU": (
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "NVRM: installed in this system is not supported by open nvidia.ko",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    ),
    "a program touched memory that is not its own": ("NVRM: Xid (PCI:0000:01:00): 31, pid=14292, name=python, MMU Fault: ENGINE HOST0",),
    "the GPU has fallen off the bus": ("kernel: NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.",),
    "an error of the GPU or its driver": ("NVRM: Xid (PCI:0000:65:00): 999, pid=1234, of a number that is in no list",),
    "the driver runs and has no GPU": ("No devices were found",),
    "two processes of the cell were given the same GPU": (
        "ncclInvalidUsage\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
    ),
    "a link of InfiniBand": (
        "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 vendor err 129 (Recv)",
    ),
    "the limit of locked memory is too low": (
        "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\nNCCL error: unhandled system error",
    ),
    "do not find each other": (
        "DistNetworkError: The client socket has failed to connect to [localhost]:29500 (errno: 111 - Connection refused).",
        "RuntimeError: [enforce fail at device.cc:208] ifa != nullptr. Unable to find address for: eth0",
    ),
    "a package that is compiled here lacks a part": (
        "/tmp/a/main.c:5:10: fatal error: Python.h: No such file or directory\ncompilation terminated.",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status",
        "error: metadata-generation-failed",
    ),
    "the settings of pip": (
        "error: externally-managed-environment",
        "ERROR: Can not perform a '--user' install. User site-packages are not visible in this virtualenv.",
    ),
    "the package index has no such release": (
        "ERROR: torch-2.1.0-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.",
        "ERROR: Could not find a version that satisfies the requirement torch==2.15.0 (from versions: 2.0.0)",
    ),
    "cut or damaged on its way": (
        "zipfile.BadZipFile: Bad magic number for file header",
        "Caused by: The wheel is invalid: Metadata field Name not found",
    ),
    "a server refused the request": (
        "connection broken by 'SSLError(SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number'))'",
        "Caused by: HTTP status server error (503 Timed out while waiting) for url (https://example.org/simple/)",
        "CondaHTTPError: HTTP 403 FORBIDDEN for url <https://example.org/a.tar.bz2>",
    ),
    "two copies of a library for threads": (
        "OMP: Error #15: Initializing libiomp5.so, but found libgomp.so.1 already initialized.",
        "OMP: Error #179: Function Can't open SHM failed:\nOMP: System error #13: Permission denied",
        "Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp.so.1 library.",
    ),
    "MPI could not start its processes": (
        "[proxy:0:0@n1] HYDU_create_process: execvp error on file python3 (No such file or directory)",
        "There are not enough slots available in the system to satisfy the 4\nslots that were requested",
        "A system call failed during shared memory initialization that should\nnot have.",
    ),
    "a security module of the kernel": (
        'SELinux relabeling of /var/lib/docker/volumes/x/_data is not allowed: "operation not supported".',
        "Error: preparing container 0711 for attach: lsetxattr /home/me/cache: operation not supported",
    ),
    "the proxy that HTTPS_PROXY": ("ERROR: Could not install packages due to an OSError: Missing dependencies for SOCKS support.",),
    "may not be used by this user": (
        "Error: initializing destination: creating a temporary directory: mkdir /var/tmp/storage3641978907: permission denied",
        "error: Failed to install: a-1.whl\n  Caused by: failed to copy file from /cache/a to /env/b\n"
        "  Caused by: Operation not permitted (os error 1)",
    ),
    "could not start a process on the node": (
        "srun: error: task 0 launch failed: Plugin initialization failed",
        "slurmstepd: error: Couldn't load specified plugin name for cgroup/v2: Plugin init() callback failed",
    ),
    "ended a process since memory was gone": ("kernel: Memory cgroup out of memory: Killed process 12345 (python3)",),
    "memory did not suffice": ("ImportError: libtorch.so: failed to map segment from shared object: Cannot allocate memory",),
    "/dev/shm is full": ("System memory request exceeds memory available in /dev/shm. The request is for 64000000000 bytes",),
    "a disk could not be read or written": ("ls: cannot open directory '/mnt/x': Transport endpoint is not connected",),
    "list of users and groups lacks": (
        "ERROR  : Failed to retrieve root group information: Success",
        "KeyError: 'getpwuid(): uid not found: 1000'",
    ),
    "something outside ended it": (
        "mpirun noticed that process rank 0 with PID 21183 on node host01 exited on signal 9 (Killed).",
        "torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 5 (pid: 2630)",
        "rank 1 of 2: it was ended by signal 9 (SIGKILL)",
    ),
    "native code crashed": (
        "F tensorflow/core/kernels/conv_ops.cc:659] Check failed: stream->parent()->GetConvolveAlgorithms(&algorithms)",
        "Assertion `err == cudaSuccess' failed.\nAborted (core dumped)",
    ),
    "the limit of open files": ("RuntimeError: received 0 items of ancdata",),
    "Slurm took the node or the job back": (
        "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** STEP 123.0 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO PREEMPTION",
    ),
    "variables of another job of Slurm's": (
        "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 123",
    ),
    "slurmctld does not answer": ("srun: error: Slurm controller not responding, sleeping and retrying.",),
    "another step of the same allocation": ("srun: Job 12 step creation temporarily disabled, retrying (Requested nodes are busy)",),
    "the node does not have this machine's folders": ("slurmstepd: error: execve(): /opt/runner: Permission denied",),
    "Ray lost the node": (
        "Task failed because the node it was running on is dead or unavailable. Node IP: 127.0.0.1",
        "Raylet is terminated: ip=10.0.3.49. Possible reasons include: (1) SIGKILL by the user or system OOM killer",
    ),
    "ssh does not reach the machine": (
        "kex_exchange_identification: read: Connection reset by peer",
        "user@host: Permission denied (publickey,gssapi-keyex,gssapi-with-mic).",
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_message_is_told_by_what_its_words_are_about(family: str) -> None:
    told = {text: known_messages.find(text) for text in FAMILIES[family]}
    assert [text for text, found in told.items() if found is None or family not in found.means] == []


# Lines of programs that are well, and words of a person's own network.
HARMLESS = [
    "Downloading https://example.org/500/torch-2.1.0.whl (404 MB)",
    "epoch 413: loss 0.500",
    "HTTP/1.1 200 OK",
    "Successfully installed numpy-2.0.0",
    "ValueError: shapes (3,4) and (5,6) not aligned",
    "AttributeError: 'Network' object has no attribute 'layers'",
    "2 active drivers ([<class 'c.CudaDriver'>]). There should only be one.",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_words_that_say_nothing_of_a_family_are_left_alone(line: str) -> None:
    assert known_messages.find(line) is None


def test_a_particular_message_counts_before_a_general_one_wherever_it_stands() -> None:
    shown = "nvidia-container-cli: mount error: /sys: no space left on device"
    found = known_messages.find(shown)
    assert found is not None
    assert found.means == "a disk is full"
    launcher = "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n= EXIT CODE: 9"
    own = "torch.OutOfMemoryError: CUDA out of memory."
    assert "GPU's memory did not suffice" in str(known_messages.hint("framework", f"{own}\n{launcher}"))


def test_the_words_of_a_program_before_its_error_are_no_reason() -> None:
    """TensorFlow's builds for CPUs look for CUDA's driver at each start, and say that there is none."""
    start = "I external/local_xla: Could not find cuda drivers on your machine, GPU will not be used."
    error = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: shapes differ'
    assert "in another image" in str(known_messages.hint("crash", "ValueError: shapes differ", f"{start}\n{error}"))
    assert "no driver of NVIDIA's" in str(known_messages.hint("crash", "exit code 1", start))
    full = f"{start}\n{error}\nOSError: [Errno 28] No space left on device"
    assert "a disk is full" in str(known_messages.hint("crash", "exit code 1", full))
