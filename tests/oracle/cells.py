"""Networks of cells in Python's torch, stated from the description of DARTS (arXiv:1806.09055) and from the names of
its published weights and code. Runs them in float64 and saves what resnet.py saves:

    cells.py (NAME CELLS_OF CHANNELS SIZE CELLS CELL_CHANNELS STEM) ... FILE

CELLS_OF: a Genotype with a list of edges for each node, or search:SPACE for the network in which a search finds one.
Exits with 77 where torch is missing.
"""
import sys
from collections import namedtuple
from functools import partial

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    print(error)
    sys.exit(77)

SAMPLES = 2000  # of each gradient
Genotype = namedtuple("Genotype", "normal normal_concat reduce reduce_concat")
SPACES = {"darts": ("none", "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5",
                    "dil_conv_3x3", "dil_conv_5x5"),
          "s2": ("skip_connect", "sep_conv_3x3"),
          "s3": ("none", "skip_connect", "sep_conv_3x3")}
NODES = 4  # of each cell of a search
EDGES = NODES * (NODES + 3) // 2
KINDS = ("normal", "reduce")


def conv(channels, out, kernel, stride=1, padding=0, dilation=1, groups=1):
    return nn.Conv2d(channels, out, kernel, stride, padding, dilation, groups, bias=False)


class Named(nn.Module):
    """Layers below the name `op`."""

    def __init__(self, *layers):
        super().__init__()
        self.op = nn.Sequential(*layers)

    def forward(self, x):
        return self.op(x)


class Halve(nn.Module):
    def __init__(self, channels, out, norm):
        super().__init__()
        self.conv_1 = conv(channels, out // 2, 1, 2)
        self.conv_2 = conv(channels, out - out // 2, 1, 2)
        self.bn = norm(out)

    def forward(self, x):
        x = F.relu(x)
        return self.bn(torch.cat([self.conv_1(x), self.conv_2(x[:, :, 1:, 1:])], dim=1))


class Zeros(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return torch.zeros_like(x[:, :, ::self.stride, ::self.stride])


def depthwise(channels, kernel, stride, dilation, norm):
    return [nn.ReLU(), conv(channels, channels, kernel, stride, dilation * (kernel // 2), dilation, channels),
            conv(channels, channels, 1), norm(channels)]


def operation(name, c, stride, norm):
    if name == "none":
        return Zeros(stride)
    if name == "max_pool_3x3":
        return nn.MaxPool2d(3, stride, 1)
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else Halve(c, c, norm)
    if name == "conv_7x1_1x7":
        return nn.Sequential(nn.ReLU(), conv(c, c, (1, 7), (1, stride), (0, 3)),
                             conv(c, c, (7, 1), (stride, 1), (3, 0)), norm(c))
    kind, kernel = name[:3], int(name[-1])
    if kind == "sep":
        return Named(*depthwise(c, kernel, stride, 1, norm), *depthwise(c, kernel, 1, 1, norm))
    if kind == "dil":
        return Named(*depthwise(c, kernel, stride, 2, norm))
    return Named(nn.ReLU(), conv(c, c, kernel, stride, kernel // 2), norm(c))


class Cell(nn.Module):
    norm = nn.BatchNorm2d

    def __init__(self, halves, earlier, latest, c, is_earlier_larger):
        super().__init__()
        project = lambda channels: Named(nn.ReLU(), conv(channels, c, 1), self.norm(c))  # noqa: E731
        self.preprocess0 = Halve(earlier, c, self.norm) if is_earlier_larger else project(earlier)
        self.preprocess1 = project(latest)
        self.halves = halves

    def inputs(self, earlier, latest):
        return [self.preprocess0(earlier), self.preprocess1(latest)]

    def stride_from(self, source):
        return 2 if self.halves and source < 2 else 1


class GenotypeCell(Cell):
    def __init__(self, genotype, halves, earlier, latest, c, is_earlier_larger):
        super().__init__(halves, earlier, latest, c, is_earlier_larger)
        self.nodes, self.concat = genotype[2:] if halves else genotype[:2]
        self._ops = nn.ModuleList(operation(name, c, self.stride_from(source), self.norm)
                                  for node in self.nodes for name, source in node)
        self.out = len(self.concat) * c

    def forward(self, earlier, latest):
        values, ops = self.inputs(earlier, latest), iter(self._ops)
        for node in self.nodes:
            values.append(sum(next(ops)(values[source]) for _, source in node))
        return torch.cat([values[i] for i in self.concat], dim=1)


class Mixture(nn.Module):
    def __init__(self, names, c, stride, norm):
        super().__init__()
        self._ops = nn.ModuleList()
        for name in names:
            op = operation(name, c, stride, norm)
            self._ops.append(nn.Sequential(op, norm(c)) if "pool" in name else op)

    def terms(self, x, shares):
        return (share * op(x) for op, share in zip(self._ops, shares))


class SearchCell(Cell):
    """Nodes take all values before them, by all operations `names` at once, and all nodes are its output."""
    norm = staticmethod(partial(nn.BatchNorm2d, affine=False))

    def __init__(self, names, halves, earlier, latest, c, is_earlier_larger):
        super().__init__(halves, earlier, latest, c, is_earlier_larger)
        self._ops = nn.ModuleList(Mixture(names, c, self.stride_from(source), self.norm)
                                  for node in range(NODES) for source in range(2 + node))
        self.out = NODES * c

    def forward(self, earlier, latest, shares):
        values, edges = self.inputs(earlier, latest), zip(self._ops, shares)
        for _ in range(NODES):
            values.append(sum(term for x, (edge, of_edge) in zip(values, edges) for term in edge.terms(x, of_edge)))
        return torch.cat(values[2:], dim=1)


class Network(nn.Module):
    """make_cell(halves, earlier, latest, c, is_earlier_larger)"""

    def __init__(self, make_cell, channels, cells, c, stem):
        super().__init__()
        self.is_imagenet = stem == "imagenet"
        if self.is_imagenet:
            self.stem0 = nn.Sequential(conv(channels, c // 2, 3, 2, 1), nn.BatchNorm2d(c // 2), nn.ReLU(),
                                       conv(c // 2, c, 3, 2, 1), nn.BatchNorm2d(c))
            self.stem1 = nn.Sequential(nn.ReLU(), conv(c, c, 3, 2, 1), nn.BatchNorm2d(c))
            earlier = latest = c
        else:
            self.stem = nn.Sequential(conv(channels, 3 * c, 3, 1, 1), nn.BatchNorm2d(3 * c))
            earlier = latest = 3 * c
        self.cells, is_earlier_larger = nn.ModuleList(), self.is_imagenet
        for i in range(cells):
            halves = i in (cells // 3, 2 * cells // 3)
            c *= 2 if halves else 1
            self.cells.append(make_cell(halves, earlier, latest, c, is_earlier_larger))
            earlier, latest, is_earlier_larger = latest, self.cells[-1].out, halves
        self.out = latest

    def forward(self, images, *shares):
        """Of a search: the shares of operations in normal and in reduction cells, [edges, operations]."""
        if self.is_imagenet:
            earlier = self.stem0(images)
            latest = self.stem1(earlier)
        else:
            earlier = latest = self.stem(images)
        for cell in self.cells:
            earlier, latest = latest, cell(earlier, latest, *shares[cell.halves:][:1])
        return latest.mean(dim=(2, 3))


class Supernet(Network):
    def __init__(self, names, *sizes):
        super().__init__(partial(SearchCell, names), *sizes)
        self.alphas = nn.ParameterDict({kind: torch.randn(EDGES, len(names)) for kind in KINDS})

    def forward(self, images):
        return super().forward(images, *(self.alphas[kind].softmax(1) for kind in KINDS))


def network(text, *sizes):
    if text.startswith("search:"):
        return Supernet(SPACES[text.removeprefix("search:")], *sizes)
    genotype = eval(text, {"Genotype": Genotype})  # pylint: disable=eval-used
    return Network(partial(GenotypeCell, genotype), *sizes)


def answer(text, channels, size, cells, c, stem):
    model = network(text, channels, cells, c, stem)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                if value.dim() == 1 and "running" not in key:
                    value.uniform_(0.5, 1.5)  # of norms: away from 1 and 0
                value.copy_(value.half())
    saved = {f"state.{key}": value.half() if value.is_floating_point() else value.clone()
             for key, value in model.state_dict().items()}
    model.double()
    images = torch.rand(3, channels, size, size, dtype=torch.float64)
    output = model(images)
    upstream = torch.randn_like(output)
    (output * upstream).sum().backward()
    saved |= {"images": images, "train": output.detach(), "upstream": upstream}
    for key, parameter in model.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        flat = gradient.flatten()
        saved[f"grad.{key}"] = flat[::max(1, flat.numel() // SAMPLES)].clone()
    model.eval()
    with torch.no_grad():
        saved["eval"] = model(images)
    return saved


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    everything, words = {}, sys.argv[1:-1]
    for at in range(0, len(words), 7):
        name, text, channels, size, cells, c, stem = words[at:at + 7]
        found = answer(text, int(channels), int(size), int(cells), int(c), stem)
        everything |= {f"{name}/{key}": value for key, value in found.items()}
    torch.save(everything, sys.argv[-1])


if __name__ == "__main__":
    main()
