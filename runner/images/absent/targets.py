"""images/targets.toml: the GPUs for which steps are compiled without one being here, and XLA's text of each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.catalog.images import IMAGES, CatalogError, Image

TARGETS = IMAGES / "targets.toml"

# NVIDIA's limits of every GPU since Volta (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"), but for the
# threads of a multiprocessor, which are fewer on some consumer cards.
_TEXT = """\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared_bytes}
  threads_per_core_limit: 2048
  core_count: {multiprocessors}
  fpus_per_core: {fp32_lanes}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {memory_bytes_per_second}
  l2_cache_size: {l2_bytes}
  clock_rate_ghz: {clock_ghz}
  device_memory_size: {memory_bytes}
  shared_memory_per_block_optin: {shared_bytes_of_a_block}
  cuda_compute_capability {{
    major: {major}
    minor: {minor}{feature_extension}
  }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{
  major: {dnn[0]}
  minor: {dnn[1]}
  patch: {dnn[2]}
}}
device_description_str: "{model}"
"""


class Target(BaseModel):
    """One GPU as XLA asks of it. Bytes and lanes are of a multiprocessor where nothing else is said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # NVML's name, by which the plan knows it.
    model: str = Field(pattern=r"^[A-Za-z0-9 -]+$")
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    arch_specific: bool
    multiprocessors: int = Field(gt=0)
    fp32_lanes: int = Field(gt=0)
    clock_ghz: float = Field(gt=0)
    memory_bytes: int = Field(gt=0)
    memory_bytes_per_second: int = Field(gt=0)
    l2_bytes: int = Field(gt=0)
    shared_bytes: int = Field(gt=0)
    shared_bytes_of_a_block: int = Field(gt=0)

    def text(self, image: Image) -> str:
        """XLA's GpuTargetConfigProto as text, with the cuDNN that the image has."""
        major, minor = self.compute_capability.split(".")
        extension = "\n    feature_extension: ACCELERATED_FEATURES" if self.arch_specific else ""
        dnn = [*(image.cudnn or "0").split("."), "0", "0"]
        return _TEXT.format(**self.model_dump(), major=major, minor=minor, feature_extension=extension, dnn=dnn)


@cache
def load_targets() -> Mapping[str, Target]:
    """Name -> target, in the file's order. Raises CatalogError."""
    try:
        return {
            name: Target.model_validate(fields)
            for name, fields in tomllib.loads(TARGETS.read_text(encoding="utf-8")).items()
        }
    except (ValidationError, ValueError) as error:
        raise CatalogError(f"{TARGETS}: {error}; fix that target") from None
