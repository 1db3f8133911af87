#!/usr/bin/env python3
"""torch's own gradcheck and gradgradcheck on the ten operators: a process that runs them on thread-ranks answers.

    gradcheck.py OPERATOR_RANK

Values, gradients and gradients of gradients come from that process; torch compares them with finite differences of the
values. The function that is checked maps all ranks' inputs to all ranks' outputs.
"""
import json
import subprocess
import sys

import torch
from torch.autograd import Function, gradcheck, gradgradcheck

ROWS, MOST_RANKS = 2, 3


class Server:
    def __init__(self, program):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program, "derivatives"], stdin=pipe, stdout=pipe, text=True)
        self.cases = json.loads(self.process.stdout.readline())

    def ask(self, case, **numbers):
        question = dict(case, **{name: [t.flatten().tolist() for t in tensors] for name, tensors in numbers.items()})
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{question}: no answer")
        answer = json.loads(line)
        return {name: [torch.tensor(row, dtype=torch.float64) for row in rows] for name, rows in answer.items()}


def like(tensors, shapes):
    return tuple(t.reshape(s.shape) for t, s in zip(tensors, shapes))


class Gradient(Function):
    @staticmethod
    def forward(ctx, server, case, *tensors):
        n = case["ranks"]
        ctx.server, ctx.case = server, case
        ctx.save_for_backward(*tensors)
        return like(server.ask(case, x=tensors[:n], g=tensors[n:])["gradient"], tensors[:n])

    @staticmethod
    def backward(ctx, *h):
        tensors, n = ctx.saved_tensors, ctx.case["ranks"]
        answer = ctx.server.ask(ctx.case, x=tensors[:n], g=tensors[n:], h=h)
        return None, None, *like(answer["by_x"], tensors[:n]), *like(answer["by_g"], tensors[n:])


class Value(Function):
    @staticmethod
    def forward(ctx, server, case, *x):
        ctx.server, ctx.case = server, case
        ctx.save_for_backward(*x)
        return tuple(server.ask(case, x=x)["value"])

    @staticmethod
    def backward(ctx, *g):
        return None, None, *Gradient.apply(ctx.server, ctx.case, *ctx.saved_tensors, *g)


def check(server, case):
    torch.manual_seed(1)
    first = server.ask(case)
    inputs = tuple(torch.randn(g.numel(), dtype=torch.float64, requires_grad=True) for g in first["gradient"])

    def function(*x):
        return tuple(y for y in Value.apply(server, case, *x) if y.numel() > 0)

    gradcheck(function, inputs)
    gradgradcheck(function, inputs, fast_mode=True)  # random projections: the whole would take a minute


def main():
    server, count = Server(sys.argv[1]), 0
    for one in server.cases:
        for ranks in range(1, MOST_RANKS + 1):
            for root in range(ranks if one["has_root"] else 1):
                check(server, {"operator": one["name"], "ranks": ranks, "root": root, "rows": ROWS})
                count += 1
    print(f"{count} cases of {len(server.cases)} operators")


main()
