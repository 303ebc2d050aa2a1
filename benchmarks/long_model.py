"""Peak memory of `ssl-geometry diagnose` on a vision transformer with layers named by a pattern, by number of images.

    python benchmarks/long_model.py [--model vit_base_patch32_224] [--images 256 1024 4096] [--batch_size 32]

Each row is one process. The first memory is the largest anonymous memory of the process, read every 50 ms (Linux): the
pages of the memory-mapped images are not in it, as the system can drop them at any time. The second is the peak RSS of
the whole process (`getrusage`), with these pages. The third is the size of the states of all layers' diagnostics and of
the sample for CKA, after the last batch. The images are low-frequency noise and are decoded before the measurement.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
from machine import machine
from PIL import Image

SIDE = 224
DIAGNOSE = """
import resource, sys
from torch import Tensor
from lightning_ssl_geometry.callbacks import LayerGeometry
from lightning_ssl_geometry.cli import main

def states(metric):
    held = [getattr(metric, name) for name in metric._defaults]
    return [tensor for each in held for tensor in ([each] if isinstance(each, Tensor) else each)]

def counted(self, *given):
    global size
    metrics = [metric for by in self._metrics.values() for metric in by.values()]
    tensors = [tensor for metric in [*metrics, self._sample] if metric for tensor in states(metric)]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    end(self, *given)

size, end = 0, LayerGeometry.end
LayerGeometry.end = counted
main()
print(size / 2**20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
"""


def write_images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for place in range(count):
        coarse = Image.fromarray(generator.integers(256, size=(8, 8, 3), dtype=np.uint8))
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / f"{place}.jpg")


def anonymous_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), default=0.0)


def measured(command: list[str], output: Path) -> tuple[float, float, float, float]:
    """Return the largest anonymous memory, the peak RSS and the states of the layers in MiB, and the seconds."""
    start, peak = time.perf_counter(), 0.0
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, anonymous_mib(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}: {' '.join(command)}")
    states, whole = output.read_text().split()[-2:]
    return peak, float(whole), float(states), time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="vit_base_patch32_224")
    parser.add_argument("--images", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--batch_size", type=int, default=32)
    options = parser.parse_args()
    side = str(timm.get_pretrained_cfg(options.model).input_size[-1])
    print(machine("timm", model=options.model), flush=True)
    print("| images | peak memory, MiB | peak RSS, MiB | layers, MiB | seconds |\n|" + " --- |" * 5, flush=True)
    for count in options.images:
        with tempfile.TemporaryDirectory() as folder:
            write_images(Path(folder, "images"), count)
            decode = (
                "from lightning_ssl_geometry.diagnose import folder_of_images as f; import sys; "
                "f(sys.argv[1], int(sys.argv[3]), 32, cache=sys.argv[2]).setup('test')"
            )
            images, output = f"{folder}/images", f"{folder}/out"
            subprocess.run([sys.executable, "-c", decode, images, f"{output}/.decoded", side], check=True, stdout=-3)
            command = [sys.executable, "-c", DIAGNOSE, "diagnose", f"timm:{options.model}"]
            command += ["--pretrained", "false", "--layers", "blocks.*", "--images", images, "--output", output]
            command += ["--batch_size", f"{options.batch_size}", "--accelerator", "cpu", "--progress", "false"]
            found = measured(command, Path(folder, "said"))
        print("| " + " | ".join(f"{each:,.0f}" for each in (count, *found)) + " |", flush=True)


if __name__ == "__main__":
    main()
