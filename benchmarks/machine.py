"""What a benchmark ran on: the line that each prints first."""

import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def machine(*packages: str, **said: object) -> str:
    """The date, processor, threads, load and versions of torch and `packages`; `said` is added as name and value."""
    found = [f"{date.today()}", f"{os.cpu_count()} x {processor()}", f"{torch.get_num_threads()} threads"]
    found += [f"OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', 'unset')}", f"load {os.getloadavg()[0]:.1f}"]
    found += [f"{name} {value}" for name, value in said.items()]
    return ", ".join([*found, *map(_installed, ("torch", *packages))]) + "\n"


def processor() -> str:
    """The name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"
