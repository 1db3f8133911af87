#!/usr/bin/env python3
"""The floor of a search step: its convolutions alone, as Python's torch runs them, one thread.

    floor.py ORDER BATCH CHANNELS CELLS SIZE

Each convolution of the network of `tandem bench search` is run by itself: y, and its gradients in x and in the weight.
A pass with a gradient in the weights has one of each. The product of order 2 has, forward, the convolution of the
values, that of their derivative, and that of the weights' derivative; backward as many gradients in x, and none in the
weights. Prints the seconds of each kind, and of a step.
"""
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/oracle"))
from cells import EDGES, SPACES, Network, SearchCell  # noqa: E402

REPEATS = 5
WANTED = {"y": [], "dx": [True, False, False], "dw": [False, True, False]}


def convolutions(batch, channels, cells, size):
    """How often each (shape of x, shape of the weight, stride, padding, dilation, groups) occurs in a forward."""
    operations = SPACES["darts"]
    net = Network(partial(SearchCell, operations[1:]), 3, cells, channels, "cifar")
    seen = Counter()

    def note(layer, inputs):
        seen[(tuple(inputs[0].shape), tuple(layer.weight.shape), layer.stride, layer.padding, layer.dilation,
              layer.groups)] += 1

    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_pre_hook(note)
    shares = torch.full((EDGES, len(operations) - 1), 1 / len(operations))
    with torch.no_grad():
        net(torch.randn(batch, 3, size, size), shares, shares)
    return seen


def least_seconds(run):
    run()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def seconds_of(key, memory_format):
    shape, weight_shape, stride, padding, dilation, groups = key
    x = torch.randn(shape).to(memory_format=memory_format)
    weight = torch.randn(weight_shape).to(memory_format=memory_format)
    rest = (stride, padding, dilation, False, (0, 0), groups)
    y = torch.ops.aten.convolution(x, weight, None, *rest)
    runs = {
        kind: partial(torch.ops.aten.convolution_backward, y, x, weight, None, *rest, wanted)
        if wanted else partial(torch.ops.aten.convolution, x, weight, None, *rest)
        for kind, wanted in WANTED.items()
    }
    return {kind: least_seconds(run) for kind, run in runs.items()}


def main():
    torch.set_num_threads(1)
    order, *sizes = map(int, sys.argv[1:])
    total = dict.fromkeys(WANTED, 0.0)
    for key, count in convolutions(*sizes).items():
        forms = [seconds_of(key, form) for form in (torch.contiguous_format, torch.channels_last)]
        for kind in total:
            total[kind] += count * min(seconds[kind] for seconds in forms)
    passes = {1: 2, 2: 3}[order]  # with a gradient in the weights
    products = {1: 0, 2: 3}[order]
    step = {"y": passes + products, "dx": passes + products, "dw": passes}
    for kind, times in step.items():
        print(f"{kind:2}  {total[kind]:.3f} s, {times} times a step")
    print(f"step {sum(total[kind] * times for kind, times in step.items()):.2f} s")


if __name__ == "__main__":
    main()
