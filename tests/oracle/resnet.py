"""Runs torchvision's ResNets in float64 and saves what they held, saw and gave:

    resnet.py NAME,CHANNELS,SIZE,EMBEDDING ... FILE

Keys of the saved dictionary, each behind the model's name and a slash: state.NAME (weights, float16 where floating, so
that every value is exact in any type), images, train (output in training mode), upstream, grad.NAME (of the sum of
train * upstream, every k-th entry), eval (output in evaluation mode, with the statistics of that one step).
Exits with 77 where torchvision is missing.
"""
import sys

try:
    import torch
    from torch import nn
    from torchvision.models import resnet as tv
except ImportError as error:
    print(error)
    sys.exit(77)

SAMPLES = 2000  # of each gradient


class Glyph(nn.Module):
    """resnet_glyph, made of torchvision's blocks."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.layer1 = nn.Sequential(tv.BasicBlock(32, 32))
        self.layer2 = nn.Sequential(tv.BasicBlock(32, 64, 2, self.shortcut(32, 64)))
        self.layer3 = nn.Sequential(tv.BasicBlock(64, 128, 2, self.shortcut(64, 128)))

    @staticmethod
    def shortcut(narrow, wide):
        return nn.Sequential(nn.Conv2d(narrow, wide, 1, 2, bias=False), nn.BatchNorm2d(wide))

    def forward(self, images):
        features = torch.relu(self.bn1(self.conv1(images)))
        return self.layer3(self.layer2(self.layer1(features))).flatten(1)


class Embedded(nn.Module):
    """The trunk's entries keep their names: an embedding stands beside them, not around them."""

    def __init__(self, trunk, features, dim):
        super().__init__()
        for name, parameter in trunk.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, child in trunk.named_children():
            if name not in ("fc", "head") and not isinstance(child, nn.Identity):
                self.add_module(name, child)
        self.trunk = [trunk]  # in a list: not registered a second time
        if dim:
            self.embedding = nn.Linear(features, dim, bias=False)
            self.embedding_bn = nn.BatchNorm1d(dim)

    def forward(self, images):
        features = self.trunk[0](images)
        return self.embedding_bn(self.embedding(features)) if hasattr(self, "embedding") else features


def build(name, channels, size, dim):
    if name == "resnet_glyph":
        trunk, features = Glyph(), 128 * ((size + 7) // 8) ** 2
    else:
        trunk = getattr(tv, name)(weights=None)
        features = trunk.fc.in_features
        trunk.fc = nn.Identity()
    first = trunk.conv1
    if first.in_channels != channels:
        trunk.conv1 = nn.Conv2d(channels, first.out_channels, first.kernel_size, first.stride, first.padding,
                                bias=False)
    return Embedded(trunk, features, dim)


def randomize(model):
    """Weights that float16 holds; normalisations away from 1 and 0, where a swap of the two would not show."""
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if not value.is_floating_point():
                continue
            if "bn" in key or "downsample.1" in key or "norm" in key:
                value.uniform_(0.5, 1.5)
            value.copy_(value.half())


def answer(model, *image):
    """`model`: an Embedded."""
    randomize(model)
    saved = {f"state.{key}": value.half() if value.is_floating_point() else value.clone()
             for key, value in model.state_dict().items()}
    model.double()
    model.trunk[0].double()
    images = torch.rand(3, *image, dtype=torch.float64)
    output = model(images)
    upstream = torch.randn_like(output)
    (output * upstream).sum().backward()
    saved |= {"images": images, "train": output.detach(), "upstream": upstream}
    for key, parameter in model.named_parameters():
        flat = parameter.grad.flatten()
        saved[f"grad.{key}"] = flat[::max(1, flat.numel() // SAMPLES)].clone()
    model.eval()
    model.trunk[0].eval()
    with torch.no_grad():
        saved["eval"] = model(images)
    return saved


def answers(cases, model_of):
    """Of each NAME,NUMBER,...; model_of(name, numbers...) gives an Embedded and the sizes of an image."""
    torch.set_num_threads(1)
    torch.manual_seed(5)
    everything = {}
    for case in cases:
        name, *numbers = case.split(",")
        model, image = model_of(name, *map(int, numbers))
        everything |= {f"{name}/{key}": value for key, value in answer(model, *image).items()}
    return everything


def main():
    def model_of(name, channels, size, dim):
        return build(name, channels, size, dim), (channels, size, size)

    torch.save(answers(sys.argv[1:-1], model_of), sys.argv[-1])


if __name__ == "__main__":
    main()
