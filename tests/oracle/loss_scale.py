"""Trains a few numbers with torch.amp.GradScaler, whose gradients are infinite in some steps:

    loss_scale.py STEPS INTERVAL STEP,STEP,... FILE

The loss is the sum of the squares of w [3] and v [5, 2]; SGD with learning rate 0.05 and Nesterov's momentum 0.9. In
the steps that are listed, counted from 0, the gradient of v has an infinity. Keys of the saved dictionary: scale
[STEPS], the scale after each step, and w [STEPS, 3].
Exits with 77 where torch is missing.
"""
import sys

try:
    import torch
except ImportError as error:
    print(error)
    sys.exit(77)


def main():
    steps, interval = int(sys.argv[1]), int(sys.argv[2])
    bad = {int(step) for step in sys.argv[3].split(",")}
    w = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    v = (torch.arange(10.0).reshape(5, 2) / 10).requires_grad_()
    optimizer = torch.optim.SGD([w, v], lr=0.05, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", growth_interval=interval)
    scales, weights = [], []
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(w.square().sum() + v.square().sum()).backward()
        if step in bad:
            v.grad[4, 1] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        weights.append(w.detach().clone())
    torch.save({"scale": torch.tensor(scales, dtype=torch.float64), "w": torch.stack(weights)}, sys.argv[4])


if __name__ == "__main__":
    main()
