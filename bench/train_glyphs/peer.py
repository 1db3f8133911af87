#!/usr/bin/env python3
"""The peer of `tandem train data=glyphs`: the same job with torch's DistributedDataParallel on Gloo.

    peer.py --ranks 4 --head sharded --steps 60 --json -
    torchrun --nproc-per-node 4 peer.py --head replicated

Written to be fast: images wait as uint8 in memory that all ranks share, augmentation is one grid_sample a batch,
channels last, fused SGD, gradients as views of DDP's buckets, no buffer broadcast, nothing read back in a step.
Prints images/s: global batch over the median time of the steps behind the warm-up.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import warnings

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "4294967296"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--ranks", type=int, default=int(os.environ.get("WORLD_SIZE", 1)))
    add("--threads", type=int, default=0, help="of each rank; 0: cores / ranks")
    add("--head", choices=("replicated", "sharded"), default="sharded")
    add("--classes", type=int, default=3755)
    add("--size", type=int, default=32)
    add("--batch", type=int, default=128, help="of all ranks together")
    add("--steps", type=int, default=60, help="that are timed; with --epochs the end of the schedule")
    add("--warmup", type=int, default=10, help="steps before those")
    add("--epochs", type=float, default=0, help="train so long instead, and judge by the held-out fonts")
    add("--precision", choices=("float32", "bf16"), default="float32")
    add("--lr", type=float, default=0.3)
    add("--margin", type=float, default=0.2)
    add("--scale", type=float, default=24.0)
    add("--augment", choices=("affine", "none"), default="affine")
    add("--compile", action="store_true", help="torch.compile the backbone")
    add("--malloc", choices=("default", "keep"), default="default", help="keep: glibc gives no memory back")
    add("--cache", default=os.path.join(tempfile.gettempdir(), "train_glyphs"), help="folder for the drawn characters")
    add("--seed", type=int, default=1)
    add("--json", metavar="FILE", help="result; - for stdout")
    options = parser.parse_args()
    if options.batch < options.ranks or options.batch % options.ranks:
        parser.error(f"--batch is {options.batch}, wanted a multiple of --ranks, {options.ranks}")
    return options


class Batches:
    """This rank's part of each global batch, augmented: affine +-0.08 and shift +-0.06 (of half the image)."""

    def __init__(self, images, labels, options, rank):
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mapped read-only: nobody writes
            self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)
        self.options, self.rank = options, rank
        self.order = torch.Generator().manual_seed(options.seed)            # the same on all ranks
        self.noise = torch.Generator().manual_seed(options.seed * 997 + rank)
        self.base = torch.eye(2, 3)
        self.spread = torch.tensor([[0.16, 0.16, 0.12]])

    def __iter__(self):
        import torch

        batch, part = self.options.batch, self.options.batch // self.options.ranks
        while True:
            order = torch.randperm(len(self.images), generator=self.order)
            for begin in range(self.rank * part, len(order) - batch + 1 + self.rank * part, batch):
                chosen = order[begin:begin + part]
                yield self.augmented(self.images[chosen]), self.labels[chosen]

    def augmented(self, pixels):
        import torch
        from torch.nn import functional as F

        images = pixels[:, None].float().mul_(1 / 255)
        if self.options.augment == "none":
            return images
        theta = torch.rand(len(images), 2, 3, generator=self.noise).sub_(0.5).mul_(self.spread).add_(self.base)
        grid = F.affine_grid(theta, images.shape, align_corners=False)
        return F.grid_sample(images, grid, align_corners=False)


def build(options):
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import heads
    import network

    class Job(nn.Module):  # with a replicated head all of it goes through DDP
        def __init__(self, backbone, head):
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, images, labels):
            return self.head(self.backbone(network.channels_last(images)), labels)

    torch.manual_seed(options.seed)
    backbone = network.ResNetGlyph(1, options.size)
    make = heads.ShardedHead if options.head == "sharded" else heads.ReplicatedHead
    head = make(128, options.classes, options.scale, options.margin)
    net = torch.compile(backbone) if options.compile else backbone

    def distributed(module):
        if options.ranks == 1:
            return module
        return DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True,
                                       static_graph=True)

    job = Job(distributed(net), head) if options.head == "sharded" else distributed(Job(net, head))
    return job, backbone, head


def evaluate(options, backbone, head, images, labels):
    """Top-1 on the held-out fonts, on rank 0."""
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F

    weight = head.weight.detach()
    if options.head == "sharded" and options.ranks > 1:
        shards = [None] * options.ranks
        dist.all_gather_object(shards, weight)
        weight = torch.cat(shards)
    if dist.get_rank() > 0:
        return None
    backbone.eval()
    right, weight = 0, F.normalize(weight)
    with torch.no_grad():
        for begin in range(0, len(images), 512):
            pixels = torch.from_numpy(images[begin:begin + 512].copy())[:, None].float() / 255
            found = F.linear(F.normalize(backbone(pixels)), weight).argmax(1)
            right += (found == torch.from_numpy(labels[begin:begin + 512].copy())).sum().item()
    return right / len(images)


def train(rank, options, address):
    import torch
    import torch.distributed as dist

    import glyphs

    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(options.threads or max(1, cores // options.ranks))
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=options.ranks)
    images, labels, test_images, test_labels = glyphs.load(options.classes, options.size, options.cache)
    job, backbone, head = build(options)
    steps = options.warmup + options.steps
    if options.epochs:
        steps = int(options.epochs * (len(images) // options.batch))
    optimizer = torch.optim.SGD(
        job.parameters(), options.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps)
    bf16 = options.precision == "bf16"
    batches = iter(Batches(images, labels, options, rank))
    ends = [time.perf_counter()]
    for _ in range(steps):
        part, targets = next(batches)
        with torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = job(part, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        ends.append(time.perf_counter())
    times = [b - a for a, b in zip(ends, ends[1:])][options.warmup:]
    result = {
        "images_per_second": options.batch / statistics.median(times), "step_ms": 1e3 * statistics.median(times),
        "steps": steps, "seconds": ends[-1] - ends[0], "loss": loss.item(), "ranks": options.ranks,
        "head": options.head, "classes": options.classes, "batch": options.batch, "threads": torch.get_num_threads(),
        "precision": options.precision, "compile": options.compile, "malloc": options.malloc,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "torch": torch.__version__,
    }
    if options.epochs:
        result["top1"] = evaluate(options, backbone, head, test_images, test_labels)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        report(options, result)


def report(options, result):
    line = (f"{result['images_per_second']:.0f} images/s ({result['step_ms']:.1f} ms a step), loss {result['loss']:.3f}"
            + (f", top-1 {100 * result['top1']:.2f} %" if "top1" in result else ""))
    print(line, file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json == "-":
        print(json.dumps(result))
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file)


def main():
    options = arguments()
    if options.malloc == "keep" and any(os.environ.get(key) != value for key, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC})
    if "RANK" in os.environ:  # under torchrun
        train(int(os.environ["RANK"]), options, "env://")
        return
    import torch.multiprocessing as mp

    import glyphs

    glyphs.load(options.classes, options.size, options.cache)  # drawn once, before the ranks ask
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{folder}/store"
        if options.ranks == 1:
            train(0, options, address)
        else:
            mp.spawn(train, (options, address), nprocs=options.ranks)


if __name__ == "__main__":
    main()
