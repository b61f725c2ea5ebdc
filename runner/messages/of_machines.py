"""The messages of a machine and its network: disks, memory, limits, servers, and signals that end a process."""

from __future__ import annotations

import sys

from runner.messages.known import Known

OF_MACHINES: tuple[Known, ...] = (
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
    # Python 3.11 and older, of bytecode that a full disk cut short
    Known(
        r"EOFError: (marshal data too short|EOF read where )",
        "a disk ran full while Python wrote the bytecode of a package",
        "remove the __pycache__ folders of the environment",
        again=True,
    ),
    # pip and uv, of their settings, of what an index has, and of a file that was cut
    Known(
        r"Can ?not perform a '--user' install|externally.managed|Could not find an activated virtualenv|Can ?not combine '--user'",
        "the settings of pip, or of this Python, forbid to install where the runner installs",
        "`pip config list` and `env | grep ^PIP_` show them: take user, target and require-virtualenv out, and name another Python with "
        "--python",
    ),
    Known(
        r"is not a supported wheel|No matching distribution found|Could not find a version that satisfies|no wheels? with a matching"
        r"|because there (is|are) no versions? of|[Rr]equires.Python|[Nn]o solution found",
        "the package index has no such release for this Python, processor and C library, or is one that lacks it",
        "`pip config list` names the index; `python --version`, `uname -m` and `ldd --version` what must fit; --python names another one",
        general=True,
    ),
    Known(
        r"BadZipFile|wheel is invalid|[Ii]nvalid wheel|[Ff]ailed to (unzip|extract (?!layer))|not a (zip|gzip) ?file|CRC check"
        r"|decoding response body",
        "a file of a package was cut or damaged on its way, or in a cache",
        "`pip cache purge` or `uv cache clean`, then try again; if it stays so, a proxy changes it",
    ),
    Known(
        r"SSLError|WRONG_VERSION_NUMBER|violation of protocol|UNEXPECTED_EOF|(tls|ssl)[^\n]{0,20}(handshake|alert)"
        r"|HTTP(?!S?:)[^\n/]{0,30}\b[45]\d\d\b|\b[45]\d\d (Client|Server) Error|status code:? [45]\d\d",
        "a server refused the request, has a fault of its own, or something else answers in its place",
        "of 401, 403 and 404 look at its address, and at a name and password for it; of 429 and 5xx try again later; where no encrypted "
        "connection comes about, HTTPS_PROXY begins with http:// for most proxies",
        general=True,
    ),
    # the machine
    # pip, requests and Docker, of a proxy between them and the address that they ask.
    Known(
        r"ProxyError|[Cc]annot connect to proxy|Tunnel connection failed|407 Proxy|[Pp]roxy [Aa]uthentication [Rr]equired|proxyconnect tcp"
        r"|Proxy URL had no scheme|SOCKS support",
        "the proxy that HTTPS_PROXY or HTTP_PROXY names does not answer, refuses, or is of a kind that this program does not speak (SOCKS)",
        "look at these variables and ALL_PROXY, and at a name and password in them; unset them where no proxy is needed",
    ),
    Known(
        r"shm_open failed ?: Permission denied|/dev/shm[^\n]*Permission denied|Permission denied[^\n]*/dev/shm",
        "/dev/shm may not be written",
        "`chmod 1777 /dev/shm`, in the container or on the machine, whichever has it",
    ),
    # torch's words about shared memory; those of a full one end as a full disk's, so they come before.
    Known(
        r"(shared memory|</torch_)[^\n]*No space left on device|exceeds memory available in /dev/shm"
        r"|/dev/shm[^\n]*(No space left on device|ENOSPC)|(No space left on device|ENOSPC)[^\n]*/dev/shm"
        r"|posix_fallocate failed: No space left|creating shared memory segment [^\n]*\(size [1-9]",
        "/dev/shm is full",
        "a larger shared memory for the container, or remove what ended processes left in /dev/shm (`df /dev/shm`)",
        again=True,
    ),
    Known(
        r"[Nn]o space left on device|ENOSPC|low on resource: ephemeral",
        "a disk is full",
        "free some space (`df -h` and `df -i` tell where)",
        again=True,
    ),
    Known(
        # The later ones are of damaged file systems, and of NFS and Lustre. Sockets say the last two as well, without a file.
        r"[Ii]nput/output error|\bEIO\b|[Ss]tructure needs cleaning|[Rr]emote I/O error"
        r"|\[Errno (107|108)\] [^\n:]*: '/|/\S+: transport endpoint is not connected",
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
        r"failed to map segment from shared object(?!: Cannot allocate)",
        "programs may not run from the disk of the environment (it is mounted noexec)",
        "set XDG_CACHE_HOME to a folder on a disk without noexec",
    ),
    Known(
        r"can't start new thread|pthread_create failed|Resource temporarily unavailable",
        "no further thread or process could be started: a limit of processes, or a Docker older than 20.10.10 with a "
        "newer C library",
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
        "set XDG_CACHE_HOME and --results to folders on another one",
    ),
    Known(
        r"certificate is not yet valid|certificate has expired|CERTIFICATE_VERIFY_FAILED|invalid peer certificate",
        "a server's certificate is not accepted: this machine's clock is wrong, or a proxy signs with an authority of its own",
        "`date` tells the clock; `pip config set global.cert FILE` names the authority",
    ),
    # pip, urllib3 and Python, of servers
    Known(
        r"(Failed to establish a new connection|NameResolutionError|Failed to resolve|urlopen error)[^\n]*"
        r"([Nn]ame or service not known|name resolution|No address associated)"
        r"|dns error|failed to lookup address",
        "the name of a server is not known here: there is no network, or no name server",
        "look at the network and /etc/resolv.conf; `pip config set global.index-url URL` names your site's index, and "
        "HTTPS_PROXY a proxy",
    ),
    Known(
        r"ReadTimeoutError|ConnectTimeoutError|HTTPS?Connection[^\n]*[Tt]imed out|urlopen error[^\n]*timed out"
        r"|operation timed out",
        "a server answered too slowly, or not at all",
        "try again; PIP_TIMEOUT=120 waits longer, and a mirror of your site (`pip config set global.index-url URL`) "
        "may be faster",
    ),
    Known(
        r"NewConnectionError|Failed to establish a new connection|urlopen error[^\n]*(refused|unreachable|No route)"
        r"|tcp connect error",
        "a server takes no connections from here",
        "look at the network; `pip config set global.index-url URL` names your site's index, and HTTPS_PROXY a proxy",
    ),
    Known(
        r"IncompleteRead|RemoteDisconnected|ProtocolError\(|ChunkedEncodingError",
        "a connection to a server broke off",
        "try again; if it stays so, a proxy or firewall cuts it",
    ),
    Known(
        r"[Tt]oo many open files|EMFILE|received 0 items of ancdata",
        "the limit of open files of a process is too low",
        "`ulimit -n` tells and raises it; where the message says `in system` it is the machine's: `sysctl fs.file-max`",
        again=True,
    ),
    Known(
        r"(GLIBC(XX)?|CXXABI)_[\d.]+' not found",
        "the framework's build needs a newer C or C++ library than this machine has",
        "--engine docker, whose images have their own; or an older build of the framework",
    ),
    Known(
        r"[Ss]tale (NFS )?file handle|ESTALE",
        "a folder on a network's disk was removed or exported anew while it was in use",
        "mount it again, or set XDG_CACHE_HOME to a folder on this machine's disk",
        again=True,
    ),
    Known(
        r"[Kk]ey has (expired|been revoked)",
        "your ticket for a disk on the network is over",
        "`kinit` gets a new one; for long runs, one that is renewed",
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
        r"(compiled to use|built using) [A-Z0-9_. ]+ instructions?, (but these aren't available|which your CPU)|Illegal instruction|SIGILL",
        "the framework's build uses instructions that this CPU does not have (AVX in most)",
        "a newer CPU, or an older build of the framework",
    ),
    Known(
        r"DataLoader worker .* is killed by signal: Bus error|insufficient shared memory",
        "/dev/shm is too small",
        "a larger shared memory for the container",
    ),
    Known(
        r"unable to (open|allocate) shared memory (object|file)",
        "a piece of shared memory could not be opened: the limit of open files is reached, or /dev/shm is full",
        "`ulimit -n` tells and raises the limit; `df /dev/shm`; a larger shared memory for the container",
    ),
    Known(
        r"SIGBUS|Bus error",
        "memory that was promised was not there: most often /dev/shm is too small, or a disk is full",
        "a larger shared memory for the container; `df`",
        general=True,
    ),
    Known(
        r"[Oo]ut of memory: Kill(ed)? process|oom-kill:|oom_reaper|systemd-oomd|earlyoom",
        "the kernel, or a guard of the machine's memory, ended a process since memory was gone",
        "fewer cells at a time, or a machine or group with more memory",
    ),
    # MPI
    Known(
        r"HYDU?_\w+|execvp error|slots available|attempt to run as root|shared memory initialization"
        r"|\b(ORTE|PRTE|PMIX|PMI2?|UCX)\b[^\n]*(error|fail|lost|unable)",
        "MPI could not start its processes, or connect them",
        "mpiexec must be that of the image (MPICH), before others on PATH; look for modules of a site's MPI and for variables OMPI_, "
        "PMIX_, SLURM_ and UCX_ in the environment",
        general=True,
    ),
    Known(
        r"OMP: (System )?[Ee]rror|MKL_THREADING_LAYER|INTEL MKL|Intel MKL|libi?omp5?\b[^\n]*already",
        "two copies of a library for threads or arithmetic (OpenMP, MKL) are loaded, or it may not use /dev/shm",
        "look for the other one in LD_PRELOAD, LD_LIBRARY_PATH and CONDA_PREFIX; `ls -ld /dev/shm` must show rwx for all",
        general=True,
    ),
    Known(
        r"SIGKILL|signal 9\b|exit ?code:? (-9|137)\b",
        "something outside ended it: a person, or the kernel when the machine's memory was gone",
        "`dmesg | grep -i 'out of memory'` tells which; fewer cells at a time, or a machine with more memory",
        general=True,
    ),
    # the loader, of what a distribution's slim image lacks
    Known(
        r"lib(GL|EGL|gthread-2\.0|glib-2\.0|X11|Xext|SM)\.so\.\d+[^\n]*cannot open shared object",
        "the image lacks a library of the desktop, which a package that draws or reads pictures wants",
        "install it into the image (Debian: libgl1, libglib2.0-0), or the package's build without it (opencv-python-headless)",
    ),
    Known(
        r"image's architecture \S+ could not run|exec format error|cannot execute binary file|Exec format error",
        "the program is of another kind of processor than this machine's",
        "take an image of this machine's architecture (`uname -m`), or install an emulator of the other one (binfmt)",
    ),
    # Python's venv
    Known(
        r"[Ee]nsurepip is not available|No module named ensurepip|No module named 'ensurepip'",
        "this Python lacks what makes environments, which its distribution has in a package of its own",
        "install it (Debian: python3-venv, of that Python's version), or name another Python with --python",
    ),
    Known(
        r"retrieve (root )?group information|getpwuid\(\)|getgrgid\(\)|(unknown|no such) user(id)?\b|unable to find user|no passwd entry",
        "this machine's list of users and groups lacks the one that is asked for",
        "`getent passwd $(id -u)` and `getent group 0` tell which; it belongs into /etc/passwd or /etc/group, or LDAP does not answer",
    ),
    # packages that do not fit each other
    Known(
        r"compiled against (API|ABI) version|multiarray failed to import|numpy\.dtype size changed|compiled using NumPy 1\.x"
        r"|Numpy is not available",
        "a package was built for another release of NumPy than the one that is there",
        "install the NumPy that it names (`numpy<2` for older ones), or a newer build of the package",
        general=True,
    ),
    Known(
        r"undefined symbol: |not defined in file \S+ with link time reference|\.so[\w.]*: version `[^']+' not found",
        "a library of another release is loaded than the one that this was built with",
        "the message names both: look for other copies in LD_LIBRARY_PATH, and install the release that the package wants",
        general=True,
    ),
    Known(
        r"\blib[\w+.-]+\.so[\w.]*: (cannot open shared object file|No such file or directory \(needed by)",
        "the image lacks a library of the system, which the message names",
        "install the package that has it (Debian: `apt-file search NAME`)",
        general=True,
    ),
    Known(
        r"partially initialized module|most likely due to a circular import",
        "a file of a package's name lies in its way, or the package lost a part of itself",
        "look for a file or folder of that name (torch.py) in PYTHONPATH and where the program starts; else make the environment again",
    ),
    Known(
        r"Descriptors cannot (not )?be created|incompatible [Pp]rotobuf|incompatible with \S+ (version|runtime)|VersionConflict"
        r"|DistributionNotFound|is required for a normal functioning",
        "two packages are of releases that do not fit each other",
        "install the releases of the lock, or those that the message names; look for other copies in PYTHONPATH (`pip check`)",
        general=True,
    ),
    Known(
        # A person's own network is a class of this name, and what it lacks is no package's fault.
        r"cannot import name|(?<!'Network' object )has no attribute '\w+'",
        "a package is of another release than the code that uses it",
        "install the releases of the lock, or those that the package names",
        general=True,
    ),
    Known(
        r"[Aa]ddress already in use|EADDRINUSE",
        "another process has the port or socket that this one wants",
        "`ss -ltnp` names it; end it, or start again later",
        again=True,
        general=True,
    ),
    Known(
        rf"No module named '?({'|'.join(sorted(sys.stdlib_module_names))})\b",
        "Python does not find a part of its own: a variable names another one's, or it was built without that part",
        "take PYTHONHOME and PYTHONPATH out of the environment; else name another Python with --python",
    ),
    Known(
        r"No module named '?[\w.]+",
        "the image lacks a Python package that its code wants",
        "install it there, or build the image again; a network's own file imports no other file of yours",
    ),
    Known(
        r"Segmentation fault|SIGSEGV|SIGABRT|signal (6|11)\b|\(core dumped\)|exit ?code:? (-11|139)\b|^F\d* .*Check failed: ",
        "a framework's native code crashed",
        "the stack stands in the log; try another version",
        general=True,
    ),
    Known(
        r"\[Errno 1\] |permission denied|\bEACCES\b|\(os error 13?\)",
        "a file or folder may not be used by this user",
        "the message names it: `ls -ld` tells its owner; a container's user is another one",
        general=True,
    ),
    Known(
        r"^[\w-]+\.py, line \d+: `|^[\w-]+\.py: (step|batch|read|load)\(\) ",
        "a line of a person's own network failed",
        "correct it in the file: docs/own-networks.md says what each part of it must do",
        general=True,
    ),
)
