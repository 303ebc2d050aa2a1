"""SimCLR with ResNet-18 on the CPU, by what a YAML can set: the memory layout, the precision, and torch.compile.

    OMP_NUM_THREADS=1 python benchmarks/resnet18.py [--rounds 3] [--steps 4] [--batch 64] [--compiled] [--bfloat16]

Made-up 32 x 32 colour images, ResNet-18 with CIFAR's stem, linear projector to 128, NT-Xent, SGD. "Ours" is an epoch
under the Trainer, with views, loader and optimizer; the ceiling is the same network, forward and backward, on
ready-made views. Both have taken a step before the clock starts. All times but the first step's (with its
set-up) are of the processor (core time), so that other work on the machine counts little; run it on one thread.
Contestants take turns; a ratio is the median over the rounds of the ratios within a round. `--compiled` adds rows
that need a C++ compiler. On a processor that has no instructions for bfloat16, rows in it are left out but for
`--bfloat16`: a step takes half a minute there.

The settings are `data.init_args.views.init_args.channels_last=true` and `trainer.precision=bf16-mixed`.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time

import torch
from end_to_end import MadeUpDataModule, sgd
from epoch import one_epoch, silence
from machine import machine
from torch import nn

from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import ResNet
from lightning_ssl_geometry.views import SimCLRViews

SETTINGS = list(itertools.product((False, True), ("32-true", "bf16-mixed"), (False, True)))


def network(compiled):
    torch.manual_seed(0)
    backbone = ResNet(18, stem="cifar")
    if compiled:
        backbone.compile()
    return backbone, nn.Linear(512, 128, bias=False)


def ours(module, steps, batch, precision, last):
    """Seconds of a step under the Trainer."""
    data = MadeUpDataModule(steps, SimCLRViews(color="fast", channels_last=last), batch)
    return one_epoch(module, now=time.process_time, precision=precision, datamodule=data) / steps


def ceiling(backbone, projector, steps, batch, precision, last):
    """Seconds of a bare step."""
    ready = torch.randn(2 * batch, 3, 32, 32)
    ready = ready.to(memory_format=torch.channels_last) if last else ready
    loss, began = InfoNCELoss(), time.process_time()
    parameters = [*backbone.parameters(), *projector.parameters()]
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=precision != "32-true"):
            z1, z2 = projector(backbone(ready)).chunk(2)
            value = loss(z1, z2)
        value.backward()
    return (time.process_time() - began) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rounds", 3), ("steps", 4), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bfloat16", action="store_true", help="also where the processor has no instructions for it")
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile, which needs a C++ compiler")
    options = parser.parse_args()
    bfloat16 = options.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    settings = [each for each in SETTINGS if (options.compiled or not each[0]) and (bfloat16 or each[1] == "32-true")]
    silence()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # nothing was compiled before
    print(machine("lightning"))
    calls, first = {}, {}
    for setting in settings:
        compiled, precision, last = setting
        module, bare = SimCLRModule(*network(compiled), optimizer=sgd), network(compiled)
        calls[setting] = (
            lambda steps, m=module, p=precision, v=last: ours(m, steps, options.batch, p, v),
            lambda steps, b=bare, p=precision, v=last: ceiling(*b, steps, options.batch, p, v),
        )
        began = time.perf_counter()  # of the processes that compile, too
        calls[setting][0](1)
        first[setting] = time.perf_counter() - began
        calls[setting][1](1)
    rounds = [
        {key: [call(options.steps) for call in pair] for key, pair in calls.items()} for _ in range(options.rounds)
    ]
    print("| precision | layout | | ms a step, ours | first, s | times plain float32 | ours / ceiling |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for setting in settings:
        compiled, precision, last = setting
        seconds = statistics.median(found[setting][0] for found in rounds)
        times = statistics.median(found[SETTINGS[0]][0] / found[setting][0] for found in rounds)
        share = statistics.median(found[setting][1] / found[setting][0] for found in rounds)
        words = [precision, "channels last" if last else "plain", "compiled" if compiled else ""]
        print(f"| {' | '.join(words)} | {1e3 * seconds:.0f} | {first[setting]:.1f} | {times:.2f} | {share:.2f} |")


if __name__ == "__main__":
    main()
