#!/usr/bin/env python3
"""Peer of `tandem bench search`: a step of DARTS in Python's torch over Gloo, one process a rank.

    tandem launch -n N -- peers.py ORDER BATCH CHANNELS CELLS SIZE CLASSES

The same algorithm: the gradient of the alphas at the weights after a step of SGD, the product of second derivatives by
backward through backward, gradients summed over the ranks as one flat tensor before each use, Adam for the alphas, then
a step of SGD with clipping. The virtual weights are a copy, given to the network by torch.func.functional_call. Written
to be fast: channels last, fused optimizers, `none` left out of the sums, nothing read back but the norm.

Rank 0 says "ready", then answers each line of stdin: "bytes" with the most bytes that the process holds in a step,
weights and states included; "K" with the seconds of K steps.
"""
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler looks for GPUs, and complains

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parent.parent / "recompute"))
from allocations import allocations, highest  # noqa: E402

RATE, MOMENTUM, DECAY, CLIP = 0.01, 0.9, 3e-4, 5
NODES, OPERATIONS = 4, 8


def norm(channels, affine=False):
    return nn.BatchNorm2d(channels, affine=affine)


class Halving(nn.Module):
    def __init__(self, before, channels):
        super().__init__()
        self.one = nn.Conv2d(before, channels // 2, 1, 2, bias=False)
        self.two = nn.Conv2d(before, channels - channels // 2, 1, 2, bias=False)
        self.norm = norm(channels)

    def forward(self, x):
        x = x.relu()
        return self.norm(torch.cat([self.one(x), self.two(x[:, :, 1:, 1:])], 1))


def projection(before, channels):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(before, channels, 1, bias=False), norm(channels))


def depthwise(channels, kernel, stride, dilation=1):
    return [nn.ReLU(), nn.Conv2d(channels, channels, kernel, stride, dilation * (kernel // 2), dilation, channels,
                                 bias=False), nn.Conv2d(channels, channels, 1, bias=False), norm(channels)]


def operations(channels, stride):
    """All but `none`."""
    return nn.ModuleList([
        nn.Sequential(nn.MaxPool2d(3, stride, 1), norm(channels)),
        nn.Sequential(nn.AvgPool2d(3, stride, 1, count_include_pad=False), norm(channels)),
        nn.Identity() if stride == 1 else Halving(channels, channels),
        nn.Sequential(*depthwise(channels, 3, stride), *depthwise(channels, 3, 1)),
        nn.Sequential(*depthwise(channels, 5, stride), *depthwise(channels, 5, 1)),
        nn.Sequential(*depthwise(channels, 3, stride, 2)),
        nn.Sequential(*depthwise(channels, 5, stride, 2)),
    ])


class Cell(nn.Module):
    def __init__(self, earlier, latest, channels, halves, halved_before):
        super().__init__()
        self.pre0 = Halving(earlier, channels) if halved_before else projection(earlier, channels)
        self.pre1 = projection(latest, channels)
        self.edges = nn.ModuleList(operations(channels, 2 if halves and value < 2 else 1)
                                   for node in range(NODES) for value in range(2 + node))
        self.halves = halves

    def forward(self, earlier, latest, weights):
        values, edge = [self.pre0(earlier), self.pre1(latest)], 0
        for node in range(NODES):
            total = 0
            for value in values[:2 + node]:
                for operation, weight in zip(self.edges[edge], weights[edge][1:]):
                    total = total + weight * operation(value)
                edge += 1
            values.append(total)
        return torch.cat(values[2:], 1)


class Supernet(nn.Module):
    def __init__(self, channels, cells, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 3 * channels, 3, padding=1, bias=False), norm(3 * channels, affine=True))
        earlier = latest = 3 * channels
        halved, self.cells = False, nn.ModuleList()
        for i in range(cells):
            halves = i in (cells // 3, 2 * cells // 3)
            channels *= 2 if halves else 1
            self.cells.append(Cell(earlier, latest, channels, halves, halved))
            earlier, latest, halved = latest, NODES * channels, halves
        self.classifier = nn.Linear(latest, classes)

    def forward(self, images, normal, reduce):
        earlier = latest = self.stem(images)
        for cell in self.cells:
            weights = [edge.unbind() for edge in (reduce if cell.halves else normal).unbind()]
            earlier, latest = latest, cell(earlier, latest, weights)
        return self.classifier(latest.mean((2, 3)))


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
        edges = NODES * (NODES + 3) // 2
        self.alphas = [(1e-3 * torch.randn(edges, OPERATIONS)).requires_grad_() for _ in range(2)]
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
