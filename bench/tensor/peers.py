#!/usr/bin/env python3
"""The peer of `tandem bench tensor`: a training step of a vision transformer by torch's tensor parallelism (DTensor)
over Gloo, one process a rank, on one thread each.

    tandem launch -n N -- peers.py BATCH CHANNELS SIZE PATCH HEADS CLASSES [alone]

The plan is that of torch's own examples: q, k, v and fc1 ColwiseParallel, the projection and fc2 RowwiseParallel, the
rest on every rank; two all_reduces a block forward and two backward. Rank 0 prints "ready", then answers each line K of
stdin with the seconds of K steps. Written to be fast: q, k and v of its heads only, scaled_dot_product_attention, the
foreach optimizer, nothing read back in a step. With `alone` each rank works out its part with plain tensors, and sends
nothing.
"""
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parent.parent))

from serve import serve  # noqa: E402
from vit import ViT  # noqa: E402

PLAN = {
    "attn.q": ColwiseParallel(),
    "attn.k": ColwiseParallel(),
    "attn.v": ColwiseParallel(),
    "attn.proj": RowwiseParallel(),
    "fc1": ColwiseParallel(),
    "fc2": RowwiseParallel(),
}


def main():
    batch, channels, size, patch, heads, classes = map(int, sys.argv[1:7])
    alone = sys.argv[7:] == ["alone"]
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = ViT(channels, size, patch, heads, classes, ranks, ranks if alone else 1).train()
    mesh = init_device_mesh("cpu", (ranks,))
    for block in [] if alone else model.blocks:
        parallelize_module(block, mesh, PLAN)
    divided = [p for p in model.parameters() if isinstance(p, DTensor)]
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]  # foreach takes no lists of both
    groups = [{"params": group} for group in (divided, whole) if group]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.05, foreach=True)
    images = torch.randn(batch, channels, size, size)
    labels = torch.randint(classes, (batch,))

    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        return time.perf_counter() - start

    serve(step)


if __name__ == "__main__":
    main()
