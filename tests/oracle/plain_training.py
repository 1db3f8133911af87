"""Trains a small convolutional network on one device for ten SGD steps, and saves what it saw and became:

    plain_training.py FILE

Keys of the saved dictionary, each behind float32/ or float64/: images, targets, first.NAME (weights before), last.NAME
(weights after), losses.
Exits with 77 where torch is missing.
"""
import sys

try:
    import torch
    from torch import nn
except ImportError as error:
    print(error)
    sys.exit(77)

STEPS = 10


def network():
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(5 * 16, 4))


def train(dtype):
    torch.manual_seed(7)
    model = network().to(dtype)
    images, targets = torch.randn(11, 2, 6, 6, dtype=dtype), torch.randint(0, 4, (11,))
    saved = {"images": images, "targets": targets}
    saved.update({f"first.{name}": value.clone() for name, value in model.state_dict().items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    saved["losses"] = torch.stack(losses)
    saved.update({f"last.{name}": value for name, value in model.state_dict().items()})
    return saved


def main():
    torch.set_num_threads(1)
    everything = {}
    for name in ("float32", "float64"):
        everything |= {f"{name}/{key}": value for key, value in train(getattr(torch, name)).items()}
    torch.save(everything, sys.argv[1])


if __name__ == "__main__":
    main()
