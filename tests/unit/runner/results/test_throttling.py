"""NVML's reasons for a lower clock, against the constants of NVIDIA's own binding."""

from __future__ import annotations

import pynvml

from runner.results import gpu_facts


def test_the_bits_are_nvmls() -> None:
    assert set(gpu_facts.CLOCK_REASONS) == {
        pynvml.nvmlClocksEventReasonSwPowerCap,
        pynvml.nvmlClocksThrottleReasonHwSlowdown,
        pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }


def test_a_gpu_at_its_power_limit_is_held_back_but_not_throttled() -> None:
    assert gpu_facts.HELD_BACK & 0x4
    assert not gpu_facts.THROTTLED & 0x4
    assert gpu_facts.reasons_of(0x1 | 0x4 | 0x40) == ["power cap", "hardware thermal slowdown"]
