"""How much memory a benchmark's process has needed."""

import resource
import sys
from pathlib import Path

__all__ = ["peak_mebibytes"]


def peak_mebibytes() -> float:
    """Of this process since it started."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a parent's memory may be counted as well
        line = next(s for s in status.read_text().splitlines() if "VmHWM" in s)
        return int(line.split()[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
