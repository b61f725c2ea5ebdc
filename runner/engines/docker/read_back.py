"""Reads back from the engine what a container has of what it was asked for. Engines drop limits that they cannot apply without a word:
rootless Podman on cgroups v1 those of memory, processes and CPUs, and before 5.4.0 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runner.engines.docker import cdi
from runner.results.on_disk.isolation import Isolation

# Limit -> docker-py's option that asks for it, and the field of HostConfig that has it (Docker Engine API, "Inspect a container").
_FIELDS = {
    "network": ("network_mode", "NetworkMode"),
    "read-only root": ("read_only", "ReadonlyRootfs"),
    "memory": ("mem_limit", "Memory"),
    "swap": ("memswap_limit", "MemorySwap"),
    "processes": ("pids_limit", "PidsLimit"),
    "CPUs": ("cpuset_cpus", "CpusetCpus"),
    "memory nodes": ("cpuset_mems", "CpusetMems"),
}


def isolation(
    version: Mapping[str, Any], info: Mapping[str, Any], options: Mapping[str, Any], host: Mapping[str, Any]
) -> Isolation:
    """The fact of a container that was made with these options of docker-py, and has this HostConfig.

    `version` and `info` are the engine's answers about itself.
    """
    limits = {
        limit: [options[option], host.get(field)] for limit, (option, field) in _FIELDS.items() if option in options
    }
    limits["capabilities"] = ["none", _capabilities(host)]
    limits["seccomp"] = ["default", _seccomp(info, host)]
    limits["no new privileges"] = [True, _no_new_privileges(host)]
    # An engine that does not show them is told by the bench's own check, before anything is measured.
    if (requests := options.get("device_requests")) and "DeviceRequests" in host:
        asked, has = _uuids(requests), _uuids(host["DeviceRequests"] or ())
        limits["GPUs"] = [len(asked), len(asked & has)]
    security = info.get("SecurityOptions") or ()
    rootless = any("rootless" in option for option in security)
    return {"engine": engine_name(version), "rootless": rootless, "limits": limits}


def engine_name(version: Mapping[str, Any]) -> str:
    """The engine's own name and version: Podman's socket answers as Docker's does, and says in its components what it is."""
    component = (version.get("Components") or [{}])[0]
    name = str(component.get("Name") or "Engine")
    return f"{'Docker Engine' if name == 'Engine' else name} {component.get('Version') or version.get('Version')}"


def _uuids(requests: Iterable[Mapping[str, Any]]) -> set[str]:
    """The GPUs of requests, which name them by UUID or by CDI name."""
    return {str(device).removeprefix(cdi.name("")) for request in requests for device in request.get("DeviceIDs") or ()}


def _capabilities(host: Mapping[str, Any]) -> str:
    dropped = "ALL" in (host.get("CapDrop") or ())
    return "none" if dropped and not host.get("CapAdd") and not host.get("Privileged") else "some"


def _seccomp(info: Mapping[str, Any], host: Mapping[str, Any]) -> str:
    """The filter of system calls: the engine's default, unless it has none or the container has another."""
    own = [option for option in host.get("SecurityOpt") or () if option.startswith("seccomp")]
    engines = [option for option in info.get("SecurityOptions") or () if "seccomp" in option]
    if host.get("Privileged") or not engines or any("unconfined" in option for option in (*own, *engines)):
        return "none"
    return "another" if own else "default"


def _no_new_privileges(host: Mapping[str, Any]) -> bool:
    return any(
        option.startswith("no-new-privileges") and not option.endswith("false")
        for option in host.get("SecurityOpt") or ()
    )
