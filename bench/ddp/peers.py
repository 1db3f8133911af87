#!/usr/bin/env python3
"""Peers of `tandem bench ddp`: a training step of Python's torch over Gloo, one process a rank.

    tandem launch -n N -- peers.py STRATEGY MODEL BATCH CHANNELS SIZE CLASSES

STRATEGY is ddp (DistributedDataParallel), zero1 (ZeroRedundancyOptimizer beside it), fsdp (fully_shard of each
residual block), zero2 (the same, and parameters stay whole after forward) or dp (a plain module on one rank, with all
threads: DataParallel is for GPUs). Rank 0 prints a JSON object when all are ready, then answers each line K of stdin
with the seconds of K steps. Written to be fast: channels last, fused SGD, gradients as views of the buckets, static
graph, no broadcast of buffers, nothing read back in a step.
"""
import os
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

BENCH = Path(__file__).resolve().parent.parent
sys.path += [str(BENCH), str(BENCH / "recompute"), str(BENCH / "train_glyphs")]

from serve import serve  # noqa: E402

EMBEDDING = 128


class Glyph(nn.Module):
    """resnet_glyph and a classifier."""

    def __init__(self, channels, size, classes):
        super().__init__()
        import network

        self.backbone = network.ResNetGlyph(channels, size, EMBEDDING)
        self.head = nn.Linear(EMBEDDING, classes, bias=False)

    def forward(self, images):
        return self.head(self.backbone(images))


def build(name, channels, size, classes, channels_last):
    torch.manual_seed(1)
    if name == "resnet_glyph":
        model = Glyph(channels, size, classes)
        blocks = [*model.backbone.layer1, *model.backbone.layer2, *model.backbone.layer3]
    else:
        from resnet import resnet

        model = resnet(name, classes)
        blocks = list(model)
    return (model.to(memory_format=torch.channels_last) if channels_last else model).train(), blocks


SGD = dict(lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)


def replicated(model):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)


def plain(model, blocks):
    return model, torch.optim.SGD(model.parameters(), fused=True, **SGD)


def ddp(model, blocks):
    return plain(replicated(model), blocks)


def zero1(model, blocks):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = replicated(model)
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, fused=True, **SGD)


def fsdp(model, blocks, reshard=True):
    from torch.distributed.fsdp import fully_shard

    for block in blocks:
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(model)
    return model, torch.optim.SGD(model.parameters(), **SGD)


def zero2(model, blocks):
    return fsdp(model, blocks, reshard=False)


STRATEGIES = {"ddp": ddp, "zero1": zero1, "zero2": zero2, "fsdp": fsdp, "dp": plain}


def parts(batch, ranks):
    return [batch // ranks + (rank < batch % ranks) for rank in range(ranks)]


def main():
    strategy, name, (batch, channels, size, classes) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    shards = strategy in ("zero2", "fsdp")  # fully_shard refuses weights with channels last
    model, optimizer = STRATEGIES[strategy](*build(name, channels, size, classes, channels_last=not shards))
    own = parts(batch, ranks)[rank]
    images = torch.randn(own, channels, size, size).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (own,))

    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        return time.perf_counter() - start

    serve(step)


if __name__ == "__main__":
    main()
