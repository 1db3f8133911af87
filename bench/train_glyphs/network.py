"""The backbone of Tandem's resnet_glyph in torch.nn, with the same state-dict names."""
import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    def __init__(self, narrow, wide, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.downsample = None
        if stride != 1 or narrow != wide:
            self.downsample = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += shortcut
        return F.relu(y, inplace=True)


class ResNetGlyph(nn.Module):
    def __init__(self, channels=1, size=32, embedding=128):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.layer1 = nn.Sequential(BasicBlock(32, 32, 1))
        self.layer2 = nn.Sequential(BasicBlock(32, 64, 2))
        self.layer3 = nn.Sequential(BasicBlock(64, 128, 2))
        self.embedding = nn.Linear(128 * ((size + 7) // 8) ** 2, embedding, bias=False)
        self.embedding_bn = nn.BatchNorm1d(embedding)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images):
        y = F.relu(self.bn1(self.conv1(images)), inplace=True)
        y = self.layer3(self.layer2(self.layer1(y))).flatten(1)
        return self.embedding_bn(self.embedding(y))


def channels_last(images):
    """Channels last even with one channel, where .to(memory_format=...) sees nothing to do; without a copy then."""
    n, channels, height, width = images.shape
    if channels > 1:
        return images.contiguous(memory_format=torch.channels_last)
    return images.contiguous().as_strided(images.shape, (height * width, 1, width, 1))
