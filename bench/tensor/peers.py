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
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parent.parent))

from serve import serve  # noqa: E402

WIDTH, DEPTH = 192, 12


class Attention(nn.Module):
    def __init__(self, heads, ranks, part):
        super().__init__()
        self.of_head = WIDTH // heads
        self.heads = heads // ranks
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH // part) for _ in range(3))
        self.proj = nn.Linear(WIDTH // part, WIDTH)

    def forward(self, x):
        images, tokens, _ = x.shape
        q, k, v = (
            layer(x).view(images, tokens, self.heads, self.of_head).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(images, tokens, self.heads * self.of_head))


class Block(nn.Module):
    def __init__(self, heads, ranks, part):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = Attention(heads, ranks, part)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH // part), nn.Linear(4 * WIDTH // part, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, channels, size, patch, heads, classes, ranks, part):
        """`part`: by how much the layers are smaller than the model's."""
        super().__init__()
        self.proj = nn.Conv2d(channels, WIDTH, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(heads, ranks, part) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, classes, bias=False)

    def forward(self, images):
        x = self.proj(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x)[:, 0]))


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
