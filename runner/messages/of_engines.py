"""The messages of container engines and of what gives their containers GPUs."""

from __future__ import annotations

from runner.messages.known import Known

OF_ENGINES: tuple[Known, ...] = (
    # the engine, when the container is to be started (Docker's daemon/nvidia_linux.go; met)
    Known(
        r"could not select device driver \"(nvidia)?\" with capabilities: \[\[gpu",
        "dockerd found no nvidia-container-runtime-hook on its PATH when it started",
        "install the NVIDIA Container Toolkit (not Docker from snap), `nvidia-ctk runtime configure --runtime=docker`, "
        "restart dockerd",
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
        "the CDI specification is missing, older than the GPUs' present MIG layout, or in a folder that this engine "
        "does not read",
        "`systemctl restart nvidia-cdi-refresh` or `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; see `nvidia-ctk cdi list`; "
        "`docker info` names the engine's folders, and a rootless one reads those of its own daemon.json (cdi-spec-dirs)",
    ),
    Known(
        r"failed to stat CDI host device",
        "the CDI specification names a device node that is not there any more: it is older than the driver or the "
        "machine's devices",
        "`systemctl restart nvidia-cdi-refresh` or `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    ),
    # containerd's words, and those of moby's daemon/cdi.go
    Known(
        r"failed to inject (CDI )?devices|CDI device injection failed",
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
        r"[Dd]river/library version mismatch|NVML/RM version mismatch|NVRM: API mismatch",
        "the driver was upgraded, and the kernel still runs the old module",
        "restart the machine, or unload the nvidia modules (`rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia`) and "
        "load them again",
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
    Known(
        r"find runc path|no valid executable found for OCI runtime|unable to (find|locate) .{0,40}(runc|low-level runtime)",
        "NVIDIA's container runtime finds no runc or crun to start the container with",
        "install runc, or name what there is under `runtimes` in /etc/nvidia-container-runtime/config.toml; Podman takes GPUs by CDI",
    ),
    Known(
        r"failed to (register|extract) layer|content digest \S+ not found|invalid tar header|invalid deflate data",
        "a layer of the image is damaged, or the engine's folder of layers, most often since its disk was full once",
        "free some space (`docker system df`, `docker system prune`), restart the engine and pull again",
        general=True,
    ),
    Known(
        r"[Cc]ould not open loop device|failed to find loop device|could not attach image file to loop device",
        "Apptainer gets no loop device to mount the image's file with: a container without /dev/loop*, or all are in use",
        "`modprobe loop`, and give the outer container /dev/loop* and --privileged; or unpack the image: `apptainer build --sandbox`",
    ),
    Known(
        r"cgroups in hybrid mode not supported",
        "crun, Podman's runtime, refuses a machine that has control groups of both versions",
        'take runc: install it, and write `[engine]` and `runtime = "runc"` into /etc/containers/containers.conf; or start the machine '
        "with systemd.unified_cgroup_hierarchy=1, which leaves version 2 alone",
    ),
    Known(
        r"(squashfuse|fuse2fs|fusermount|gocryptfs)[^\n]*(/dev/fuse|fuse device)|/dev/fuse: (Permission denied|No such file)",
        "a user's Apptainer mounts an image's file by FUSE, and this user may not open /dev/fuse, or it is not there",
        "as root `modprobe fuse` and `chmod 666 /dev/fuse`, its usual mode; or unpack the image: `apptainer build --sandbox`",
    ),
    Known(
        r"squashfuse\S*(\"|:)?[^\n]{0,20}(executable file not found|not found in \$?PATH|command not found)",
        "Apptainer has no program that mounts an image's file for a user",
        "install squashfuse; or unpack the image: `apptainer build --sandbox`",
    ),
    Known(
        r"[Ff]ailed to create user namespace|user namespaces? (is |are )?(disabled|not enabled|not supported)"
        r"|not allowed to create user namespace|can't get final child's PID from pipe",
        "this kernel lets users make no user namespace, without which a container needs root",
        "as root `sysctl user.max_user_namespaces=15000`, on Debian also kernel.unprivileged_userns_clone=1, on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0; or install apptainer-suid",
    ),
    # the toolkit's program, which gives a container the driver's files and devices
    Known(
        r"load library failed: libnvidia-ml\.so|load library failed: libcuda\.so",
        "the NVIDIA Container Toolkit does not find the driver's libraries where the engine runs: no driver is "
        "installed there, or the engine has other files than this machine (Docker from snap, Docker Desktop)",
        "`nvidia-smi` on that machine; Docker of its own packages instead of the snap; on Windows its driver, with WSL "
        "2 up to date",
    ),
    Known(
        r"ldcache error|ldconfig(\.real)?: no such file",
        "the NVIDIA Container Toolkit cannot run ldconfig in the container: its settings name another path than this "
        "system has, or the image's libraries are broken",
        'set ldconfig = "@/sbin/ldconfig" (Ubuntu: "@/sbin/ldconfig.real") in '
        "/etc/nvidia-container-runtime/config.toml; else give GPUs by CDI",
    ),
    Known(
        r"failed to add device rules|device filters? (program|attached)",
        "the NVIDIA Container Toolkit may not change the rules for devices: the engine is rootless or itself in a "
        "container, or the toolkit is older than this kernel's control groups",
        "give GPUs by CDI; or no-cgroups = true in /etc/nvidia-container-runtime/config.toml (rootless); or a newer toolkit",
    ),
    Known(
        r"mount error: file creation failed: \S*lib(nvidia|cuda)\S*: file exists",
        "the image holds a driver of its own, in the place of the one that the toolkit gives it",
        "build the image again without the driver's files: one that was made by `docker commit` from a container with "
        "GPUs has them",
    ),
    Known(
        r"nvidia-container-cli: mount error: stat failed|mount error: (stat|open) failed: \S*/wsl/",
        "the NVIDIA Container Toolkit misses a file of the driver: it was changed under the toolkit",
        "restart the machine (on Windows `wsl --shutdown`) and update the toolkit",
    ),
    Known(
        r"initialization error: cuda error",
        "CUDA does not start on this machine, though its driver is loaded: the module nvidia_uvm is missing, or the driver's "
        "parts are of two releases",
        "`nvidia-smi` and `dmesg | grep -i nvrm` on the machine itself; `modprobe nvidia_uvm`, else restart it; then the driver anew",
    ),
    Known(
        r"nvml error: driver not loaded|initialization error: nvml error",
        "the NVIDIA Container Toolkit finds no loaded driver on this machine",
        "`nvidia-smi` on the machine itself; `modprobe nvidia`, then start the container again",
    ),
    Known(
        r"initialization error: (change|pivot) root failed",
        "the NVIDIA Container Toolkit looks for the driver below a folder that is not there",
        "take `root` out of /etc/nvidia-container-runtime/config.toml, or set it to where the driver lies; "
        "Docker of its own packages instead "
        "of the snap",
    ),
    # what else the toolkit's program ends with
    Known(
        r"nvidia-container-cli: ",
        "the NVIDIA Container Toolkit could not give the container its GPUs",
        "`nvidia-smi` on the machine and `nvidia-container-cli -k -d /dev/tty info` tell why; the driver's "
        "and the toolkit's newest release, or "
        "GPUs by CDI",
        general=True,
    ),
    Known(
        r"docker-credential-\S+ not installed",
        "Docker's settings name a credential store whose program is not here",
        'take "credsStore" and "credHelpers" out of ~/.docker/config.json',
    ),
    Known(
        r"Requested CPUs are not available",
        "the engine may use fewer CPUs than this process",
        "start the runner on the engine's CPUs (`taskset -c`), or give the engine all of them",
    ),
    Known(
        r"bind source path does not exist|mounts denied|is not shared from the host",
        "the engine does not see this machine's folders: it runs elsewhere, or this is a container with the engine's socket",
        "--engine venv, or mount the cache and --results at the same paths where the engine runs (Docker Desktop: Settings, Resources, "
        "File sharing)",
    ),
    Known(
        r"CPU does not support x86-64-v[234]",
        "the base image needs instructions that this CPU does not have",
        "a newer CPU, or --base-image with an older distribution",
    ),
    # Podman, whose API is asked for an init process in each container
    Known(
        r"container-init binary not found",
        "Podman has no catatonit, the init process of a container",
        "install the package catatonit",
    ),
    # Podman and Docker without root
    Known(
        r"no sub[ug]id ranges found|insufficient UIDs or GIDs|newuidmap: write to uid_map failed"
        r"|lchown [^\n]*: invalid argument",
        "an engine without root has no or too few user numbers for containers",
        "`usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER`, then `podman system migrate`",
    ),
    Known(
        r"cannot find newuidmap|newuidmap: executable file not found",
        "the program newuidmap is missing, without which an engine needs root",
        "install uidmap (Debian) or shadow-utils (Fedora)",
    ),
    Known(
        r"(client|API) version \S+ is too (old|new)|M(in|ax)imum supported API version",
        "the engine and Docker's package for Python are of releases that do not speak with each other",
        "take DOCKER_API_VERSION out of the environment; then a newer engine, or `pip install --upgrade docker`",
    ),
    # runc, crun and Apptainer, of control groups: what a user may not limit, and what cannot be made at all
    Known(
        r"controller\W+\w+\W+is not available|(cpuset|cpu|memory|pids)\.(cpus|mems|max|weight)\S*: (no such file|permission denied)",
        "this user may not limit the CPUs or the memory of a container: its control groups were not handed to it",
        "as root `systemctl edit user@.service` with `[Service]` and `Delegate=cpu cpuset io memory pids`, then log in anew",
    ),
    Known(
        r"Your kernel does not support|reset devices\.list|cgroups? (config|error|v2)|apply(ing)? cgroup|cgroupv2"
        r"|procHooks|cgroups: |cgroup mount|for cgroup not found|sd-bus|BPF_CGROUP|unable to start unit|subtree_control",
        "the engine cannot make the control group of a container, which limits its CPUs, memory and devices",
        "a user's engine needs systemd's session of that user (`loginctl enable-linger`); inside a container, give that --privileged and "
        "--cgroupns=host; an old kernel, systemd.unified_cgroup_hierarchy=0 at its start",
        general=True,
    ),
    Known(
        r"[Cc]onfigure storage|graph ?driver|storage[- ]driver|mount_program|registries\.conf|policy\.json",
        "the engine's settings of its storage or its registries do not fit this machine",
        "`podman info` or `docker info` shows them: storage.conf and registries.conf below ~/.config/containers, or daemon.json; inside a "
        "container Podman needs fuse-overlayfs",
        general=True,
    ),
    # what an engine mounts for a container
    Known(
        r"OCI (runtime )?permission denied|jailing process|pivot_root|error mounting \"|overlay mount|/merged\b|mount through procfd",
        "the engine could not mount the container's file system",
        "a user's engine needs its folder on a disk of this machine (no NFS), below folders that others may enter; inside a "
        "container, give that --privileged, and a disk that is no overlay for the engine's folder",
        general=True,
    ),
    # Docker's and Podman's network of a container
    Known(
        r"external connectivity|ip-?tables|nftables|netavark|slirp4netns|pasta failed|find pasta|network namespace|container networking"
        r"|network bridge",
        "the engine could not make the network of a container: rules of the firewall, a module of the kernel or a program is missing",
        "restart the engine after the firewall (`systemctl restart docker`), which writes its rules again; after an upgrade of the kernel "
        "restart the machine; a user's Podman needs passt or slirp4netns",
        general=True,
    ),
    # security modules of the kernel, and runc
    Known(
        r"[Aa]pp[Aa]rmor|avc: +denied|SELinux|lsetxattr|relabel failed",
        "a security module of the kernel (AppArmor, SELinux) keeps the engine from starting a container",
        "`journalctl -k | grep -i denied` names what it refused; reload its profile (`systemctl restart apparmor`), or Docker of its own "
        "packages instead of the snap; a disk that takes no labels, such as NFS, is mounted with `context=`",
    ),
    Known(
        r"Could not find any nv files|nv files on this host",
        "Apptainer finds none of NVIDIA's libraries on this machine",
        "`nvidia-smi` and `ldconfig -p | grep libcuda` on it: install the driver, or nvidia-container-cli, which names its files",
    ),
    # runc and containerd, of what has no entry of its own above
    Known(
        r"OCI runtime (create|exec|error|attempted)|failed to create (shim )?task|failed to start shim"
        r"|container creation failed|FATAL: +while",
        "the engine could not start the container",
        "the end of the message names what failed; `docker run --rm hello-world` (podman, apptainer) tells if any container starts, and "
        "`journalctl -u docker`, or the engine's option --debug, more",
        general=True,
    ),
)
