"""Resolve the precision "auto": bf16 if the hardware is fast at it, else fp32, which is then faster and more exact."""

import os
import platform
from functools import cache

from tlm_ray import storage
from tlm_ray.console import console

CPU_FLAGS = ("avx512_bf16", "amx_bf16")
# oneDNN can be limited to older instructions; these limits still include those for bf16.
ONEDNN_BF16 = (
    *("", "DEFAULT", "ALL"),
    *("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"),
    *("AVX10_1_512", "AVX10_1_512_AMX", "AVX10_1_512_AMX_FP16"),
)


@cache
def fastest_precision(*, gpu: bool) -> str:
    """Return the precision of "auto", fp32 or bf16, and print it with the reason, once.

    gpu: whether trainings run on GPUs; else the driver's processor decides.
    """
    flag = next(iter(bf16_flags()), "")
    found = "bf16" if gpu or flag else "fp32"
    missing = f"neither of {', '.join(CPU_FLAGS)}"
    why = "on GPUs" if gpu else f"this processor has {flag or missing}"
    console.print(f"precision auto: {found}, {why}", highlight=False)
    return found


def bf16_flags(cpuinfo: str = "/proc/cpuinfo") -> list[str]:
    """List this machine's instructions for bf16 products that oneDNN may use."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() not in ONEDNN_BF16 or platform.machine() != "x86_64":
        return []
    lines = storage.read_bytes(cpuinfo).decode().splitlines() if storage.exists(cpuinfo) else []
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return [flag for flag in CPU_FLAGS if flag in flags]
