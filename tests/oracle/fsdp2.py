#!/usr/bin/env python3
"""Trains the model of tests/parallel/sharded_model.h with FSDP2 on two processes over Gloo, and saves its weights.

    fsdp2.py FILE

Keys of the saved dictionary: plain/NAME, clip/NAME (norm at most 0.5), accumulate/NAME (two micro-batches a step).
Exits with 77 where torch or its FSDP2 is missing.
"""
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(error)
    sys.exit(77)

RANKS, STEPS = 2, 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.middle, self.last = nn.Conv2d(1, 7, 3), nn.Linear(7, 7), nn.Linear(7, 2)
        self.extra = nn.Parameter(torch.tensor([0.5, 2.0]))
        order = [*self.conv.parameters(), *self.middle.parameters(), *self.last.parameters(), self.extra]
        for phase, parameter in enumerate(order):
            numbers = (torch.arange(parameter.numel(), dtype=torch.float64) * 3 + phase).sin() * 0.4
            parameter.data.copy_(numbers.view(parameter.shape))

    def forward(self, images):
        hidden = self.conv(images).relu().mean((2, 3))
        hidden = (hidden + self.middle(hidden)).tanh()
        return (self.last(hidden) * self.extra).square().sum()


def images(seed, rank):
    every = ((torch.arange(7 * 16, dtype=torch.float64) + seed) * 5).cos().reshape(7, 1, 4, 4).float()
    return every[:4] if rank == 0 else every[4:]


def train(mode, rank):
    model = Model()
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in (model.conv, model.middle, model.last, model):
        fully_shard(block, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for step in range(STEPS):
        parts = images(step, rank).split([2, images(step, rank).shape[0] - 2]) if mode == "accumulate" else [
            images(step, rank)]
        for i, part in enumerate(parts):
            model.set_requires_gradient_sync(i + 1 == len(parts))
            (model(part) * RANKS).backward()  # FSDP2 takes the mean over the ranks
        if mode == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return {f"{mode}/{name}": tensor.full_tensor().detach() for name, tensor in model.named_parameters()}


def run(rank, store, output):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    weights = {}
    for mode in ("plain", "clip", "accumulate"):
        weights.update(train(mode, rank))
    if rank == 0:
        torch.save(weights, output)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, args=(folder + "/store", sys.argv[1]), nprocs=RANKS, start_method="fork")
