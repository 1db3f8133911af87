"""What torch.utils.checkpoint makes of three functions that cannot be computed again, and plain autograd of each.

    checkpoint_errors.py FILE

Saves for each case, in float64, NAME.wanted: the true gradient of the sum of the function, and NAME.checkpoint: that of
torch.utils.checkpoint without reentrance, with its default checks; empty where it raises an error. Exits with 77 where
torch is missing.
"""
import sys

try:
    import torch
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(error)
    sys.exit(77)


def values():
    return torch.arange(1.0, 5.0, dtype=torch.float64, requires_grad=True)


def gradient(x, y):
    try:
        return torch.autograd.grad(y.sum(), x)[0]
    except RuntimeError:
        return torch.empty(0, dtype=torch.float64)


def written_in_place(x):
    y = x.exp()  # saves its result
    y.mul_(3)
    return y.sin()


def main():
    saved = {}
    x = values()
    saved["in_place.wanted"] = gradient(x, (x.exp() * 3).sin())
    saved["in_place.checkpoint"] = gradient(x, checkpoint(written_in_place, x, use_reentrant=False))

    weight = torch.full((4,), 2.0, dtype=torch.float64, requires_grad=True)
    saved["weight.wanted"] = gradient(x, (x * weight).sin())
    y = checkpoint(lambda x: (x * weight).sin(), x, use_reentrant=False)
    with torch.no_grad():
        weight.mul_(2)
    saved["weight.checkpoint"] = gradient(x, y)

    factors = iter([2.0, 3.0])
    saved["values.wanted"] = gradient(x, (x * 2).sin())
    saved["values.checkpoint"] = gradient(x, checkpoint(lambda x: (x * next(factors)).sin(), x, use_reentrant=False))
    torch.save({name: tensor.detach() for name, tensor in saved.items()}, sys.argv[1])


main()
