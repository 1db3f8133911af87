"""What a piece of work allocates, by torch's profiler."""
import itertools

import torch
from torch._C._profiler import _EventType


def allocations(work):
    """(address, bytes) of each allocation of `work`, and (address, -bytes) of each release, in order of time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True,
                                acc_events=True) as profile:
        work()
    found, nodes = [], list(profile.profiler.kineto_results.experimental_event_tree())
    while nodes:
        node = nodes.pop()
        nodes += node.children
        kind, fields = node.typed
        if kind == _EventType.Allocation:
            found.append((node.start_time_ns, fields.ptr, fields.alloc_size))
    found.sort(key=lambda event: event[0])
    return [(address, size) for _, address, size in found]


def highest(events, left_out=()):
    """The most bytes at one moment that live storages of `events` have, without those that still live at the end at an
    address of `left_out`."""
    owner, changes = {}, []  # of each address, the number of its newest allocation
    for address, size in events:
        if size > 0:
            owner[address] = len(changes)
        number = owner[address] if size > 0 else owner.pop(address, None)
        if number is not None:  # else it is older than the events
            changes.append((number, size))
    out = {owner.get(address) for address in left_out}
    return max(itertools.accumulate(size for number, size in changes if number not in out), default=0)
