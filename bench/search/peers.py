#!/usr/bin/env python3
"""Peer of `tandem bench search`: a step of DARTS in Python's torch over Gloo, one process a rank.

    tandem launch -n N -- peers.py ORDER BATCH CHANNELS CELLS SIZE CLASSES

The same algorithm: the gradient of the alphas at the weights after a step of SGD, the product of second derivatives by
backward through backward, gradients summed over the ranks as one flat tensor before each use, Adam for the alphas, then
a step of SGD with clipping. The network is that of tests/oracle/cells.py; the virtual weights are a copy, given to it
by torch.func.functional_call. Written to be fast: channels last, fused optimizers, `none` left out of the sums, nothing
read back but the norm.

Rank 0 says "ready", then answers each line of stdin: "bytes" with the most bytes that the process holds in a step,
weights and states included; "K" with the seconds of K steps.
"""
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler looks for GPUs, and complains

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "bench/recompute"), str(ROOT / "tests/oracle")]
from allocations import allocations, highest  # noqa: E402
from cells import EDGES, SPACES, Network, SearchCell  # noqa: E402

RATE, MOMENTUM, DECAY, CLIP = 0.01, 0.9, 3e-4, 5
OPERATIONS = SPACES["darts"]  # none is the first


class Supernet(nn.Module):
    def __init__(self, channels, cells, classes):
        super().__init__()
        self.features = Network(partial(SearchCell, OPERATIONS[1:]), 3, cells, channels, "cifar")
        self.classifier = nn.Linear(self.features.out, classes)

    def forward(self, images, normal, reduce):
        return self.classifier(self.features(images, normal[:, 1:], reduce[:, 1:]))


def summed(tensors, ranks):
    """Their sums over the ranks, as views of one tensor."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    if ranks > 1:
        dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors)]


class Search:
    def __init__(self, order, batch, channels, cells, size, classes, rank, ranks):
        torch.manual_seed(1)
        self.order, self.ranks = order, ranks
        self.net = Supernet(channels, cells, classes).to(memory_format=torch.channels_last).train()
        self.alphas = [(1e-3 * torch.randn(EDGES, len(OPERATIONS))).requires_grad_() for _ in range(2)]
        self.names = [name for name, _ in self.net.named_parameters()]
        self.weights = list(self.net.parameters())
        self.sgd = torch.optim.SGD(self.weights, RATE, MOMENTUM, weight_decay=DECAY, fused=True)
        self.adam = torch.optim.Adam(self.alphas, 3e-4, (0.5, 0.999), weight_decay=1e-3, fused=True)
        own = batch // ranks + (rank < batch % ranks)
        self.share = own / batch
        self.images = torch.randn(own, 3, size, size).to(memory_format=torch.channels_last)
        self.labels = torch.randint(classes, (own,))

    def loss(self, weights=None, with_alphas=True):
        shares = [alpha.softmax(1) for alpha in self.alphas]
        shares = shares if with_alphas else [share.detach() for share in shares]
        inputs = (self.images, *shares)
        scores = self.net(*inputs) if weights is None else functional_call(self.net, dict(zip(self.names, weights)),
                                                                           inputs)
        return F.cross_entropy(scores, self.labels) * self.share

    def virtual_weights(self):
        gradients = summed(torch.autograd.grad(self.loss(with_alphas=False), self.weights), self.ranks)
        with torch.no_grad():
            moves = torch._foreach_add(gradients, self.weights, alpha=DECAY)
            if self.sgd.state:
                velocity = [self.sgd.state[weight]["momentum_buffer"] for weight in self.weights]
                torch._foreach_add_(moves, velocity, alpha=MOMENTUM)
            moved = torch._foreach_sub(self.weights, moves, alpha=RATE)
        return [weight.requires_grad_() for weight in moved]

    def alpha_gradients(self):
        if self.order == 1:
            return summed(torch.autograd.grad(self.loss(), self.alphas), self.ranks)
        moved = self.virtual_weights()
        ahead = summed(torch.autograd.grad(self.loss(moved), moved + self.alphas), self.ranks)
        del moved
        vector, direct = ahead[:-2], ahead[-2:]
        first = torch.autograd.grad(self.loss(), self.weights, create_graph=True)
        product = torch.autograd.grad(first, self.alphas, vector)
        del first
        return torch._foreach_sub(direct, summed(product, self.ranks), alpha=RATE)

    def step(self):
        for alpha, gradient in zip(self.alphas, self.alpha_gradients()):
            alpha.grad = gradient
        self.adam.step()
        self.adam.zero_grad()
        gradients = summed(torch.autograd.grad(self.loss(with_alphas=False), self.weights), self.ranks)
        for weight, gradient in zip(self.weights, gradients):
            weight.grad = gradient
        torch.nn.utils.clip_grad_norm_(self.weights, CLIP)
        self.sgd.step()
        self.sgd.zero_grad()

    def held(self):
        tensors = [*self.net.state_dict().values(), *self.alphas, self.images, self.labels]
        for optimizer in (self.sgd, self.adam):
            for state in optimizer.state.values():
                tensors += [value for value in state.values() if torch.is_tensor(value)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def bytes(self):
        return self.held() + highest(allocations(self.step))


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    search = Search(*map(int, sys.argv[1:]), rank, ranks)
    search.step()
    dist.barrier()
    if rank == 0:
        print("ready", flush=True)
    while True:
        line = sys.stdin.readline().strip() if rank == 0 else ""
        asked = torch.tensor([-1 if line == "bytes" else int(line or 0)])
        dist.broadcast(asked, 0)
        if asked.item() == 0:
            break
        if asked.item() < 0:
            answer = [search.bytes()]
        else:
            answer = []
            for _ in range(asked.item()):
                start = time.perf_counter()
                search.step()
                answer.append(time.perf_counter() - start)
        if rank == 0:
            print(*answer, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
