"""Trains a small model on two processes with torch's DistributedDataParallel on Gloo, in several ways:

    ddp.py FILE

Keys of the saved dictionary: initial/NAME (weights), inputs [STEPS, 2, ROWS, 6] and targets [STEPS, 2, ROWS, 3] by step
and rank, and WAY/NAME: the weights after all steps of each way. The learning rate is 0.1, the momentum 0.9.

    plain       each step sums once
    accumulate  two micro-batches, the first with no_sync
    clip        to a norm of 0.05
    unused      rank 1 leaves the branch out in odd steps, both ranks in every third
    join        rank 1 has batches for JOINED steps only; means over the ranks that have one
    post_local  gradients are summed in the first APART steps; then the ranks meet every EVERY steps
"""
import contextlib
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, ROWS, JOINED = 2, 10, 6, 7
APART, EVERY = 3, 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.branch, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, branch=True):
        x = torch.tanh(self.first(x))
        if branch:
            x = x + torch.tanh(self.branch(x))
        return self.last(x)


def has_branch(step, rank):
    return step % 3 != 0 and not (rank == 1 and step % 2 == 1)


def take_step(way, model, optimizer, step, rank, x, target):
    optimizer.zero_grad()
    parts = 2 if way == "accumulate" else 1
    for part in range(parts):
        quiet = model.no_sync() if part + 1 < parts else contextlib.nullcontext()
        with quiet:
            rows = slice(part * ROWS // parts, (part + 1) * ROWS // parts)
            output = model(x[rows], branch=way != "unused" or has_branch(step, rank))
            ((output - target[rows]).square().mean() / parts).backward()
    if way == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()


def train(way, initial, data, rank):
    model = Model()
    model.load_state_dict(initial)
    wrapped = DistributedDataParallel(model, find_unused_parameters=way == "unused")
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    if way == "post_local":
        state = PostLocalSGDState(None, None, start_localSGD_iter=APART, post_local_gradient_allreduce=False)
        wrapped.register_comm_hook(state, post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=EVERY, warmup_steps=APART))
    steps = JOINED if way == "join" and rank == 1 else STEPS
    joined = wrapped.join(divide_by_initial_world_size=False) if way == "join" else contextlib.nullcontext()
    with joined:
        for step in range(steps):
            take_step(way, wrapped, optimizer, step, rank, data["inputs"][step, rank], data["targets"][step, rank])
    return {f"{way}/{name}": value.detach().clone() for name, value in model.state_dict().items()}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    initial = {name: value.clone() for name, value in Model().state_dict().items()}
    data = {"inputs": torch.randn(STEPS, RANKS, ROWS, 6), "targets": torch.randn(STEPS, RANKS, ROWS, 3)}
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        rank = 1 if child == 0 else 0
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
        everything = {f"initial/{name}": value for name, value in initial.items()} | data
        for way in ("plain", "accumulate", "clip", "unused", "join", "post_local"):
            everything |= train(way, initial, data, rank)
        dist.barrier()
        dist.destroy_process_group()
        if child == 0:
            os._exit(0)
        _, status = os.waitpid(child, 0)
    torch.save(everything, sys.argv[-1])
    sys.exit(1 if status else 0)


if __name__ == "__main__":
    main()
