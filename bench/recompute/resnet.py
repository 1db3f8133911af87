"""The ResNet of He et al. 2015 as torchvision has it (a bottleneck's stride is in its 3 x 3 convolution), with the
embedding of Tandem's: pooled features, a linear layer to 128, batch normalisation, and the classifier."""
from torch import nn

EMBEDDING = 128
STAGES = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


def conv(channels, out, kernel, stride=1):
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)


class ResidualBlock(nn.Module):
    def __init__(self, channels, width, stride, is_bottleneck):
        super().__init__()
        shapes = [(1, 1, 1), (3, stride, 1), (1, 1, 4)] if is_bottleneck else [(3, stride, 1), (3, 1, 1)]
        layers, inner = [], channels
        for kernel, step, expansion in shapes:
            layers += [conv(inner, width * expansion, kernel, step), nn.BatchNorm2d(width * expansion),
                       nn.ReLU(inplace=True)]
            inner = width * expansion
        self.branch = nn.Sequential(*layers[:-1])
        self.activation = layers[-1]
        self.shortcut = None
        if stride != 1 or channels != inner:
            self.shortcut = nn.Sequential(conv(channels, inner, 1, stride), nn.BatchNorm2d(inner))
        self.out_channels = inner

    def forward(self, x):
        values = self.branch(x)
        values += x if self.shortcut is None else self.shortcut(x)
        return self.activation(values)


def resnet(name, classes):
    """The stem, the residual blocks and the head, one after the other."""
    blocks, channels = [], 64
    for stage, count in enumerate(STAGES[name]):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            blocks.append(ResidualBlock(channels, 64 << stage, stride, name == "resnet50"))
            channels = blocks[-1].out_channels
    stem = nn.Sequential(conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, EMBEDDING, bias=False),
                         nn.BatchNorm1d(EMBEDDING), nn.Linear(EMBEDDING, classes, bias=False))
    return nn.Sequential(stem, *blocks, head)
