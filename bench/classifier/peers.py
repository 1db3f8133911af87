#!/usr/bin/env python3
"""Peers of `tandem bench classifier`: one training step of a CosFace classifier in Python's torch, on demand.

    peers.py NAME CLASSES DIM BATCH RANKS THREADS

Says "ready", then answers each line of stdin with "seconds extra_bytes": the time of forward, backward and SGD's update
of the slowest rank, and by how much the resident memory of all ranks rose at its highest above weights and momentum.

    naive          F.linear on normalised features and weights, cross_entropy; one process
    loss_parallel  the same with the classes as a DTensor's shards, torch.distributed.tensor.parallel.loss_parallel
    partial_fc     classes split over the ranks as in InsightFace's PartialFC at rate 1: three all_reduces of a number a
                   row, features gathered, their gradient reduced
"""
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import wait

import torch
import torch.distributed as dist
from torch.nn import functional as F

SCALE, MARGIN = 64.0, 0.35


def margin_at_target(cosine, labels):
    """CosFace on the rows whose label is a column here; the others carry -1."""
    rows = (labels >= 0).nonzero()[:, 0]
    shift = torch.zeros_like(cosine)
    shift[rows, labels[rows]] = MARGIN
    return (cosine - shift) * SCALE


class Naive:
    def __init__(self, classes, dim):
        self.weight = torch.nn.Parameter(torch.randn(classes, dim) * 0.01)

    def loss(self, features, labels):
        cosine = F.linear(F.normalize(features), F.normalize(self.weight))
        return F.cross_entropy(margin_at_target(cosine, labels), labels)


class LossParallel:
    def __init__(self, classes, dim):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.replicate, self.columns = [Replicate()], [Shard(1)]
        whole = torch.randn(classes, dim) * 0.01
        self.weight = torch.nn.Parameter(distribute_tensor(whole, self.mesh, [Shard(0)]))

    def step(self, features, labels):
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.parallel import loss_parallel
        x = DTensor.from_local(F.normalize(features), self.mesh, self.replicate)
        with loss_parallel():
            cosine = F.linear(x, F.normalize(self.weight))
            local, (first, _) = cosine.to_local(), self.bounds(cosine)
            here = (labels >= first) & (labels < first + local.shape[1])
            shifted = margin_at_target(local, torch.where(here, labels - first, -1))
            logits = DTensor.from_local(shifted, self.mesh, self.columns)
            target = DTensor.from_local(labels, self.mesh, self.replicate)
            F.cross_entropy(logits, target).backward()

    def bounds(self, cosine):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
        shape, offset = compute_local_shape_and_global_offset(cosine.shape, self.mesh, self.columns)
        return offset[1], shape[1]


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


class ShardedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        rows = (labels >= 0).nonzero()[:, 0]
        largest = logits.max(1, keepdim=True)[0]
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        logits.sub_(largest).exp_()
        total = logits.sum(1, keepdim=True)
        dist.all_reduce(total)
        logits.div_(total)
        probability = logits.new_zeros(len(labels), 1)
        probability[rows] = logits[rows].gather(1, labels[rows, None])
        dist.all_reduce(probability)
        ctx.save_for_backward(logits, rows, labels)
        return probability.clamp_min_(1e-30).log_().mean().neg_()

    @staticmethod
    def backward(ctx, gradient):
        logits, rows, labels = ctx.saved_tensors
        logits[rows, labels[rows]] -= 1
        return logits.mul_(gradient / len(labels)), None


class PartialFC:
    def __init__(self, classes, dim):
        rank, size = dist.get_rank(), dist.get_world_size()
        self.first = classes * rank // size
        self.weight = torch.nn.Parameter(torch.randn(classes * (rank + 1) // size - self.first, dim) * 0.01)

    def loss(self, features, labels):
        parts = GatherRows.apply(features.chunk(dist.get_world_size())[dist.get_rank()])
        labels = labels - self.first
        labels[(labels < 0) | (labels >= len(self.weight))] = -1
        cosine = F.linear(F.normalize(parts), F.normalize(self.weight)).clamp(-1, 1)
        return ShardedCrossEntropy.apply(margin_at_target(cosine, labels), labels)


PEERS = {"naive": Naive, "loss_parallel": LossParallel, "partial_fc": PartialFC}


def status(name):
    """A line of /proc/self/status, in bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


class Rank:
    def __init__(self, name, classes, dim, batch, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.peer = PEERS[name](classes, dim)
        self.optimizer = torch.optim.SGD([self.peer.weight], lr=0.1, momentum=0.9, weight_decay=5e-4)
        self.features = torch.randn(batch, dim, requires_grad=True)
        self.labels = torch.randint(classes, (batch,))
        self.peer.weight.grad = torch.zeros_like(self.peer.weight)
        self.optimizer.step()  # makes the momentum
        self.forget()

    def forget(self):
        self.peer.weight.grad = self.features.grad = None

    def step(self):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the highest resident size begins anew
        before, start = status("VmRSS"), time.perf_counter()
        if hasattr(self.peer, "step"):
            self.peer.step(self.features, self.labels)
        else:
            self.peer.loss(self.features, self.labels).backward()
        self.optimizer.step()
        seconds = time.perf_counter() - start
        extra = status("VmHWM") - before
        self.forget()
        return seconds, extra


def run_rank(rank, size, store, arguments, pipe):
    """Answers each order with a step, until the pipe has no other end: whoever gave the orders is gone."""
    if arguments[0] != "naive":
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    own = Rank(*arguments)
    pipe.send(None)
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        if size > 1:
            dist.barrier()
        pipe.send(own.step())


def answers_of(pipes):
    """One of each rank. An EOFError as soon as a rank has ended, for which others may wait."""
    answers, waiting = [], list(pipes)
    while waiting:
        for pipe in wait(waiting):
            answers.append(pipe.recv())
            waiting.remove(pipe)
    return answers


def start(context, rank, arguments):
    own, other = context.Pipe()
    context.Process(target=run_rank, args=(rank, *arguments, other), daemon=True).start()
    other.close()
    return own


def main():
    name, (classes, dim, batch, ranks, threads) = sys.argv[1], map(int, sys.argv[2:])
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, os.path.join(folder, "store"), (name, classes, dim, batch, threads))
        pipes = [start(context, rank, arguments) for rank in range(ranks)]
        try:
            answers_of(pipes)
            print("ready", flush=True)
            for _ in sys.stdin:
                for pipe in pipes:
                    pipe.send(True)
                steps = answers_of(pipes)
                print(max(seconds for seconds, _ in steps), sum(extra for _, extra in steps), flush=True)
        except (EOFError, BrokenPipeError):
            sys.exit(f"{name}: a rank has ended")


if __name__ == "__main__":
    main()
