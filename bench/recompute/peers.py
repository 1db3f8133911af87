#!/usr/bin/env python3
"""Peer of `tandem bench recompute`: a training step of a ResNet in Python's torch, recomputed in segments by
torch.utils.checkpoint.checkpoint_sequential.

    peers.py MODEL BATCH SIZE CLASSES THREADS

Says "ready", then answers each line of stdin with a number:

    seconds K    time of forward, backward and SGD's step with K segments; K = 0 recomputes nothing
    bytes K      most bytes of activations at any moment of forward and backward: all tensors that the step allocates,
                 transient ones and kernels' scratch included, except gradients of parameters

The model is that of resnet.py.
"""
import os
import sys
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler looks for GPUs, and complains

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint_sequential

from allocations import allocations, highest
from resnet import resnet


class Peer:
    def __init__(self, name, batch, size, classes):
        torch.manual_seed(1)
        self.model = resnet(name, classes).to(memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True,
                                         weight_decay=5e-4)
        self.images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
        self.labels = torch.randint(classes, (batch,))

    def gradients(self, segments):
        self.optimizer.zero_grad()
        if segments == 0:
            scores = self.model(self.images)
        else:
            scores = checkpoint_sequential(self.model, segments, self.images, use_reentrant=False)
        F.cross_entropy(scores, self.labels).backward()

    def seconds(self, segments):
        start = time.perf_counter()
        self.gradients(segments)
        self.optimizer.step()
        return time.perf_counter() - start

    def bytes(self, segments):
        self.optimizer.zero_grad()
        events = allocations(lambda: self.gradients(segments))
        return highest(events, {one.grad.untyped_storage().data_ptr() for one in self.model.parameters()})


def main():
    name, (batch, size, classes, threads) = sys.argv[1], map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    peer = Peer(name, batch, size, classes)
    print("ready", flush=True)
    for line in sys.stdin:
        question, segments = line.split()
        print(getattr(peer, question)(int(segments)), flush=True)


if __name__ == "__main__":
    main()
