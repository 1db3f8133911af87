"""torchvision's resnet18, trained by torch alone on drawn characters, as anyone may have done it elsewhere:

    pretrain.py --images FOLDER --steps 600 --out resnet18.safetensors

FOLDER/train/CLASS/*.png, as torchvision's ImageFolder wants them. Writes the module's state_dict.
"""
import argparse
import time

import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import datasets, models, transforms


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--images", required=True)
    add("--size", type=int, default=48)
    add("--batch", type=int, default=128)
    add("--steps", type=int, default=600)
    add("--lr", type=float, default=0.1)
    add("--out", default="resnet18.safetensors")
    return parser.parse_args()


def batches(options):
    transform = transforms.Compose([
        transforms.RandomAffine(5, (0.06, 0.06), (0.92, 1.08), 5, fill=255),
        transforms.Resize((options.size, options.size)),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    images = datasets.ImageFolder(f"{options.images}/train", transform)
    loader = torch.utils.data.DataLoader(images, options.batch, shuffle=True, drop_last=True, num_workers=1,
                                         persistent_workers=True)
    while True:
        yield from loader


def main():
    options = arguments()
    torch.manual_seed(1)
    source = batches(options)
    num_classes = len(datasets.ImageFolder(f"{options.images}/train").classes)
    net = models.resnet18(num_classes=num_classes)
    optimizer = torch.optim.SGD(net.parameters(), options.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=options.steps)
    begin, right = time.monotonic(), 0
    for step in range(1, options.steps + 1):
        images, labels = next(source)
        answers = net(images)
        loss = nn.functional.cross_entropy(answers, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        right += (answers.argmax(1) == labels).sum().item()
        if step % 100 == 0:
            seconds = time.monotonic() - begin
            print(f"step {step}: loss {loss.item():.3f}, top-1 {right / (100 * options.batch):.3f}, {seconds:.0f} s",
                  flush=True)
            right = 0
    save_file(net.state_dict(), options.out)


if __name__ == "__main__":
    main()
