#!/usr/bin/env python3
"""Rank 1 of 2 in Python: meets a rank in C++ at a store and takes part in the ten operators, on torch's own Gloo.

    gloo_rank.py PORT
"""
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

RANK, SIZE, ROWS = 1, 2, 5
HEAD, MARK, MOST_DIMS = 20, 0x74616E64656D, 16
DTYPES = {torch.float64: 7, torch.float32: 6, torch.int64: 4}  # numbers of c10::ScalarType


def join(port):
    store = dist.TCPStore("127.0.0.1", port, SIZE, is_master=False, timeout=timedelta(seconds=60))
    store.add(f"tandem/of{SIZE}/arrived/{RANK}", 1)
    group = dist.ProcessGroupGloo(dist.PrefixStore("tandem/world", store), RANK, SIZE, timedelta(seconds=60))
    group.barrier().wait()
    return group


def rows(rank, count):
    return torch.arange(count * 3, dtype=torch.float64).reshape(count, 3) + 100 * rank


def exchange(group, x, sent, received):
    out = torch.empty(sum(received), *x.shape[1:], dtype=x.dtype)
    group.alltoall_base(out, x.contiguous(), received, sent).wait()
    return out


def send(group, x, to, tag):
    head = torch.zeros(HEAD, dtype=torch.int64)
    head[:4] = torch.tensor([MARK, DTYPES[x.dtype], 0, x.dim()])
    head[4:4 + x.dim()] = torch.tensor(x.shape)
    group.send([head], to, 2 * tag).wait()
    group.send([x.contiguous()], to, 2 * tag + 1).wait()


def recv(group, source, tag):
    head = torch.zeros(HEAD, dtype=torch.int64)
    group.recv([head], source, 2 * tag).wait()
    mark, dtype, _, dims = head[:4].tolist()
    assert mark == MARK, "not a message of tandem's"
    x = torch.empty(head[4:4 + dims].tolist(), dtype={number: kind for kind, number in DTYPES.items()}[dtype])
    group.recv([x], source, 2 * tag + 1).wait()
    return x


def expect(name, got, wanted):
    if not torch.equal(got, wanted):
        sys.exit(f"{name}: got\n{got}\nwanted\n{wanted}")


def main():
    group = join(int(sys.argv[1]))
    x = rows(RANK, ROWS)
    both = rows(0, ROWS) + x
    parts = [3, 2]  # of five rows

    y = x.clone()
    group.broadcast([y], dist.BroadcastOptions()).wait()  # from rank 0
    expect("broadcast", y, rows(0, ROWS))
    y = x.clone()
    group.reduce([y], dist.ReduceOptions()).wait()  # to rank 0
    y = x.clone()
    group.allreduce([y]).wait()
    expect("all_reduce", y, both)
    y = x.clone()
    group.allreduce(y, dist.ReduceOp.MAX).wait()
    expect("all_reduce max", y, x)
    exchange(group, rows(RANK, parts[RANK]), [parts[RANK], 0], [0, 0])  # gather at rank 0
    expect("scatter", exchange(group, x[:0], [0, 0], [parts[RANK], 0]), rows(0, ROWS)[3:])
    largest = max(parts)
    mine, everyone = torch.zeros(largest, 3, dtype=torch.float64), torch.empty(2 * largest, 3, dtype=torch.float64)
    mine[:parts[RANK]] = rows(RANK, parts[RANK])
    group._allgather_base(everyone, mine).wait()
    expect("all_gather", torch.cat([everyone[:3], everyone[largest:largest + 2]]), torch.cat([rows(0, 3), rows(1, 2)]))
    terms = exchange(group, x, parts, [parts[RANK]] * SIZE)
    expect("reduce_scatter", terms[:2] + terms[2:], both[3:])
    expect("all_to_all", exchange(group, x, [1, 4], [2, 4]), torch.cat([rows(0, ROWS)[3:], x[1:]]))
    expect("recv", recv(group, 0, 3), rows(0, ROWS).t())
    send(group, rows(RANK, 2), 0, 3)
    group.barrier().wait()


main()
