#!/usr/bin/env python3
"""The peer of `tandem bench pipeline`: a training step of a vision transformer by torch.distributed.pipelining over
Gloo, one process a rank, on one thread each.

    tandem launch -n N -- peers.py SCHEDULE MICRO_BATCHES BATCH CHANNELS SIZE PATCH HEADS CLASSES [alone PROGRAM]

SCHEDULE: gpipe, 1f1b or interleaved (two stages a rank). Every stage has as many blocks; the first also makes the
tokens, the last also has the classifier and the loss. Rank 0 prints "ready", then answers each line K of stdin with the
seconds of K steps. With `alone` nothing is sent: K times, the seconds that forward and backward of each stage take for
a micro-batch, in the order of PROGRAM (a line of actions a rank, as torch writes them), while all ranks
compute, and the most that a rank's update takes: F0 B0 F1 B1 ... U.
"""
import collections
import re
import sys
import time
import warnings
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parent.parent))

from serve import serve  # noqa: E402
from vit import DEPTH, WIDTH, ViT  # noqa: E402

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Stage(nn.Module):
    def __init__(self, model, index, stages):
        super().__init__()
        each = DEPTH // stages
        self.blocks = model.blocks[index * each : (index + 1) * each]
        self.whole = [model]  # no module of this one
        self.is_first, self.is_last = index == 0, index + 1 == stages
        if self.is_first:
            self.proj, self.cls_token, self.pos_embed = model.proj, model.cls_token, model.pos_embed
        if self.is_last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x):
        if self.is_first:
            x = self.whole[0].tokens(x)
        x = self.blocks(x)
        return self.whole[0].scores(x) if self.is_last else x


def main():
    schedule = sys.argv[1]
    micro_batches, batch, channels, size, patch, heads, classes = map(int, sys.argv[2:9])
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    chunks = 2 if schedule == "interleaved" else 1
    stages = chunks * ranks
    model = ViT(channels, size, patch, heads, classes, 1, 1).train()
    own = {i: Stage(model, i, stages) for i in range(rank, stages, ranks)}
    parameters = [p for module in own.values() for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05, foreach=True)
    images = torch.randn(batch, channels, size, size)
    labels = torch.randint(classes, (batch,))
    device = torch.device("cpu")
    pipelined = [PipelineStage(module, i, stages, device) for i, module in own.items()]
    runs = SCHEDULES[schedule](pipelined if chunks > 1 else pipelined[0], micro_batches, loss_fn=F.cross_entropy)
    takes = ([images] if 0 in own else [], {"target": labels} if stages - 1 in own else {})

    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        runs.step(*takes[0], **takes[1])
        optimizer.step()
        return time.perf_counter() - start

    each = batch // micro_batches
    values = torch.randn(each, 1 + (size // patch) ** 2, WIDTH)

    def run_list(actions, times):
        """Runs this rank's actions with nothing sent, so that as much is held as in a step."""
        graphs = {}
        for stage, what, micro_batch in actions:
            module, rows = own[stage], slice(micro_batch * each, (micro_batch + 1) * each)
            start = time.perf_counter()
            if what == "F":
                x = images[rows] if stage == 0 else values.clone().requires_grad_()
                start = time.perf_counter()
                y = module(x)
                graphs[stage, micro_batch] = F.cross_entropy(y, labels[rows]) if module.is_last else y
            else:
                y = graphs.pop((stage, micro_batch))
                gradient = torch.ones_like(y)
                start = time.perf_counter()
                y.backward(gradient)
            times[stage, what].append(time.perf_counter() - start)

    def costs():
        line = sys.argv[10].splitlines()[rank].split(",")
        words = [re.fullmatch(r"(\d+)([FB])(\d+)", word) for word in line]
        actions = [(int(word[1]), word[2], int(word[3])) for word in words if word]
        times, updates = collections.defaultdict(list), []
        dist.barrier()
        for _ in range(2):
            optimizer.zero_grad()
            run_list(actions, times)
            start = time.perf_counter()
            optimizer.step()
            updates.append(time.perf_counter() - start)
        everyone = [None] * ranks
        dist.all_gather_object(everyone, ({key: median(of) for key, of in times.items()}, median(updates)))
        by_stage = {key: seconds for part, _ in everyone for key, seconds in part.items()}
        return [by_stage[i, what] for i in range(stages) for what in "FB"] + [max(update for _, update in everyone)]

    serve(costs if sys.argv[9:10] == ["alone"] else step)


if __name__ == "__main__":
    main()
