"""NT-Xent, forward and backward: this package beside lightly, stable-pretraining and the bare matrix products.

    OMP_WAIT_POLICY=passive python benchmarks/info_nce.py
    python benchmarks/info_nce.py --profile    # where the time of this package goes

Peers that are not installed are left out. The contenders take turns, so that a machine that slows down slows all of
them, and the ratios are of medians. The floor, "bare products", is what autograd of z @ z.T computes for 2N x P rows:
one 2N x 2N product and the two of its backward, with the 2N x 2N matrix in memory and nothing else. Memory is the
peak of a fresh process beyond what it held with torch warmed up and the inputs made. A second table has other forms
beside their own floors: the anchors of one view alone, whose products are N x 2N, an eighth of the samples as anchors,
as each of eight processes has them, and a learnt temperature of each dimension.

On cores that other processes share, OpenMP's threads spin while they wait for each other, and many short operations
then lose ten times as much as a few long ones; OMP_WAIT_POLICY=passive lets them sleep instead, for all contenders.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from machine import machine
from torch import Tensor, nn

from lightning_ssl_geometry.functional import info_nce
from lightning_ssl_geometry.losses import InfoNCELoss

OURS, FLOOR = "this package", "bare products"


def main() -> None:
    options = _options()
    if options.peak_of:
        print(_peak(options.peak_of, options.sizes[0], options.dimension, options.threads))
        return
    torch.set_num_threads(options.threads)
    print(machine("lightly", "stable-pretraining", P=options.dimension))
    if options.profile:
        _print_profile(options)
        return
    _print_speed(options)
    _print_forms(options)
    _print_memory(options)


def losses() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {OURS: InfoNCELoss(temperature=0.5)}
    with suppress(ImportError):
        from lightly.loss import NTXentLoss

        found["lightly"] = NTXentLoss(temperature=0.5)
    with suppress(ImportError):
        from stable_pretraining.losses import NTXEntLoss

        found["stable-pretraining"] = NTXEntLoss(temperature=0.5)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192], help="samples per view, N")
    parser.add_argument("--large", type=int, default=32768, help="N at which only this package's memory is measured")
    parser.add_argument("--dimension", type=int, default=128, help="P")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="print the share of each operation, and nothing else")
    parser.add_argument("--peak-of", help="print the peak memory in MiB of this contender alone, at the first size")
    return parser.parse_args()


def _print_speed(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    print("| N | contender | ms, median (range) | time / ours | ours / time |")
    print("| --- | --- | --- | --- | --- |")
    for n in options.sizes:
        times = _times(dict(_steps(n, options.dimension)), options.repeats)
        ours = statistics.median(times[OURS])
        for name, taken in times.items():
            middle = statistics.median(taken)
            spread = f"{min(taken) * 1e3:.0f}-{max(taken) * 1e3:.0f}"
            print(f"| {n} | {name} | {middle * 1e3:.0f} ({spread}) | {middle / ours:.2f} | {ours / middle:.2f} |")
    print()


def _print_forms(options: argparse.Namespace) -> None:
    print("| N | form | ms, median (range) | of its bare products |")
    print("| --- | --- | --- | --- |")
    for n in options.sizes:
        z1, z2 = (torch.randn(n, options.dimension, requires_grad=True) for _ in range(2))
        learnt = nn.Parameter(torch.full((options.dimension,), 0.5))
        few = partial(info_nce, temperature=0.5, anchors=slice(0, n // 8))
        forms = {
            "NT-Xent": (torch.cat([z1, z2]), InfoNCELoss(temperature=0.5)),
            "anchors of one view (COSENTINO)": (z1, InfoNCELoss(temperature=0.5, form="COSENTINO")),
            f"NT-Xent, {n // 8} samples as anchors": (torch.cat([z1[: n // 8], z2[: n // 8]]), few),
            "NT-Xent, a learnt temperature per dimension": (torch.cat([z1, z2]), InfoNCELoss(temperature=learnt)),
        }
        steps: dict[str, Callable[[], object]] = {}
        for name, (anchors, loss) in forms.items():
            steps[f"{FLOOR}, {name}"] = partial(_bare, anchors.detach(), torch.cat([z1, z2]).detach())
            learns = loss.parameters() if isinstance(loss, nn.Module) else ()
            steps[name] = partial(_forward_and_backward, loss, z1, z2, *learns)
        times = _times(steps, options.repeats)
        for name in forms:
            taken, floor = times[name], statistics.median(times[f"{FLOOR}, {name}"])
            middle = statistics.median(taken)
            spread = f"{min(taken) * 1e3:.0f}-{max(taken) * 1e3:.0f}"
            print(f"| {n} | {name} | {middle * 1e3:.0f} ({spread}) | {middle / floor:.2f} |", flush=True)
    print()


def _print_profile(options: argparse.Namespace) -> None:
    print("| N | operation | share of the time |")
    print("| --- | --- | --- |")
    for n in options.sizes:
        z1, z2 = (torch.randn(n, options.dimension, requires_grad=True) for _ in range(2))
        step = partial(_forward_and_backward, InfoNCELoss(temperature=0.5), z1, z2)
        step()
        with torch.profiler.profile() as profile:
            for _ in range(options.repeats):
                step()
        times = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
        for name in sorted(times, key=lambda name: -times[name])[:6]:
            print(f"| {n} | {name} | {100 * times[name] / sum(times.values()):.0f}% |")
    print()


def _steps(n: int, p: int) -> Iterator[tuple[str, Callable[[], object]]]:
    z1, z2 = (torch.randn(n, p, requires_grad=True) for _ in range(2))
    z = torch.cat([z1, z2]).detach()
    yield FLOOR, partial(_bare, z, z)
    for name, loss in losses().items():
        yield name, partial(_forward_and_backward, loss, z1, z2)


def _bare(anchors: Tensor, z: Tensor) -> None:
    s = anchors @ z.T
    _ = s @ z, s.T @ anchors


def _forward_and_backward(loss: Callable[[Tensor, Tensor], Tensor], z1: Tensor, z2: Tensor, *more: Tensor) -> None:
    torch.autograd.grad(loss(z1, z2), (z1, z2, *more))


def _times(steps: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if repeat > 0:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    return times


def _print_memory(options: argparse.Namespace) -> None:
    print("| N | contender | extra memory, MiB |")
    print("| --- | --- | --- |")
    for n, names in [(n, list(losses())) for n in options.sizes] + [(options.large, [OURS])]:
        for name in names:
            print(f"| {n} | {name} | {_peak_in_a_fresh_process(name, n, options):.0f} |", flush=True)


def _peak_in_a_fresh_process(name: str, n: int, options: argparse.Namespace) -> float:
    sizes = ["--sizes", str(n), "--dimension", str(options.dimension), "--threads", str(options.threads)]
    command = [sys.executable, __file__, "--peak-of", name, *sizes]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(answer.stdout.split()[-1])


def _peak(name: str, n: int, p: int, threads: int) -> float:
    torch.set_num_threads(threads)
    loss = losses()[name]
    loss(*torch.randn(2, 64, p, requires_grad=True)).backward()
    z1, z2 = (torch.randn(n, p, requires_grad=True) for _ in range(2))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _status("VmHWM")
    loss(z1, z2).backward()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    main()
