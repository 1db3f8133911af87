"""The card, or the CPU in its place: how fast it copies and multiplies, and training steps written plainly in torch."""
import gc
import pathlib
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ModuleNotFoundError:
    print("python3 has no torch, the peer of these figures", file=sys.stderr)
    sys.exit(69)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[1:1] = [str(ROOT / "bench/classifier"), str(ROOT / "bench/recompute")]  # both have peers.py
import peers as classifier  # noqa: E402
from resnet import resnet  # noqa: E402

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
WORDS = ["device=cuda"] if HAS_GPU else ["device=cpu", "threads=1"]  # of the program
if not HAS_GPU:
    torch.set_num_threads(1)
MACHINE = torch.cuda.get_device_name() if HAS_GPU else "no GPU: small sizes on the CPU"
MACHINE += f", torch {torch.__version__}"
NO_MEMORY = torch.OutOfMemoryError


def judged(is_reached):
    """None without a GPU: small sizes on a CPU reach nothing."""
    return bool(is_reached) if HAS_GPU else None


def settle():
    if HAS_GPU:
        torch.cuda.synchronize()


def release():
    gc.collect()
    if HAS_GPU:
        torch.cuda.empty_cache()


def free_bytes():
    release()
    return torch.cuda.mem_get_info()[0] if HAS_GPU else 2**30


def seconds_of(action, times=10, warm_up=3):
    """The median of single runs, each waited for."""
    found = []
    for _ in range(warm_up + times):
        settle()
        start = time.perf_counter()
        action()
        settle()
        found.append(time.perf_counter() - start)
    return statistics.median(found[warm_up:])


def copy_bandwidth():
    """Bytes read and written a second by a large copy."""
    source = torch.ones(2**28 if HAS_GPU else 2**23, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds_of(lambda: target.copy_(source))


def product_speed():
    """FLOP/s of a large square product in bf16."""
    size = 8192 if HAS_GPU else 256
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: a @ b)


class Swish(nn.Module):
    """x * sigmoid(x) as two operations, each of which keeps its inputs."""

    def forward(self, x):
        return x * x.sigmoid()


def with_activation(model, make):
    for name, child in model.named_children():
        if isinstance(child, nn.ReLU):
            setattr(model, name, make())
        else:
            with_activation(child, make)
    return model


class Images(nn.Module):
    """A ResNet and the mean cross entropy of its classifier."""

    def __init__(self, name, classes, activation=None):
        super().__init__()
        model = resnet(name, classes)
        self.model = with_activation(model, activation) if activation else model

    def forward(self, images, labels):
        return F.cross_entropy(self.model(images.to(memory_format=torch.channels_last)), labels)


class Rows(nn.Module):
    """Tandem's mlp, and a CosFace classifier: one of bench/classifier/peers.py, or with its interface."""

    def __init__(self, size, classes, dim, head=classifier.Naive):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(3 * size**2, 256), nn.ReLU(),
                                      nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, dim))
        self.head = head(1, 1)
        self.weight = self.head.weight = nn.Parameter(torch.empty(classes, dim, device=DEVICE).normal_(0, 0.01))

    def forward(self, images, labels):
        return self.head.loss(self.features(images), labels)


class Loop:
    """Plain training steps: images come from the host in each, and its loss is read."""

    def __init__(self, model, batch, size, classes, bf16=False):
        torch.manual_seed(1)
        self.model, self.bf16 = model.to(DEVICE), bf16
        if isinstance(model, Images):
            self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True,
                                         weight_decay=5e-4)
        self.images, self.labels = torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))

    def step(self):
        images, labels = self.images.to(DEVICE), self.labels.to(DEVICE)
        self.optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.bf16):
            loss = self.model(images, labels)
        loss.backward()
        self.optimizer.step()
        loss.item()

    def step_seconds(self, steps):
        """The mean of so many steps."""
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        settle()
        return (time.perf_counter() - start) / steps


def peak_bytes(action):
    """(what `action` returns, the most bytes that tensors asked for on the GPU meanwhile)"""
    if not HAS_GPU:
        return action(), 0
    torch.cuda.reset_peak_memory_stats()
    return action(), torch.cuda.memory_stats()["requested_bytes.all.peak"]
