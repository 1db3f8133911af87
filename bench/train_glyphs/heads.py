"""CosFace heads: loss = mean over the global batch of cross entropy(scale * (cosine - margin at the target)).

The replicated one gives the mean over this rank's rows, the sharded one that over all rows. DDP divides the backbone's
gradients by the world: both leave the gradient of the global mean there.
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class ReplicatedHead(nn.Module):
    """Every rank holds all classes; its gradient goes through DDP with the backbone's. What most scripts do."""

    def __init__(self, dim, classes, scale, margin):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim) * 0.01)
        self.scale, self.margin = scale, margin

    def forward(self, embedding, labels):
        logits = F.linear(self.scale * F.normalize(embedding), F.normalize(self.weight))
        shift = logits.new_full((len(labels), 1), -self.scale * self.margin)
        return F.cross_entropy(logits.scatter_add_(1, labels[:, None], shift), labels)


class _Gather(torch.autograd.Function):
    """Rows of all ranks; backward: each rank's rows, summed over the ranks, times the world (DDP divides by it)."""

    @staticmethod
    def forward(ctx, rows):
        world = dist.get_world_size()
        out = rows.new_empty((world * len(rows), rows.shape[1]))
        dist.all_gather_into_tensor(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        world = dist.get_world_size()
        grad = grad.contiguous()
        parts = torch.empty_like(grad)
        dist.all_to_all_single(parts, grad)  # on Gloo faster than reduce_scatter and than all_reduce
        return parts.view(world, len(grad) // world, -1).sum(0).mul_(world)


class _ShardedCosFace(torch.autograd.Function):
    """Loss from this rank's columns. One all_reduce of two numbers a row: |cosine| <= 1 bounds the logits, so that no
    maximum has to be found; the gradient p - y needs nothing more."""

    @staticmethod
    def forward(ctx, logits, labels, first, scale, margin):
        local = labels - first
        mine = ((local >= 0) & (local < logits.shape[1])).nonzero()[:, 0]
        column = local[mine]
        logits[mine, column] -= scale * margin
        numbers = logits.new_zeros(2, len(labels))
        numbers[1, mine] = logits[mine, column]
        p = logits.sub_(scale).exp_()
        torch.sum(p, 1, out=numbers[0])
        dist.all_reduce(numbers)
        ctx.save_for_backward(p, numbers[0], mine, column)
        return (numbers[0].log() + scale - numbers[1]).mean()

    @staticmethod
    def backward(ctx, grad):
        p, total, mine, column = ctx.saved_tensors
        p.div_(total[:, None])
        p[mine, column] -= 1
        return p.mul_(grad / len(p)), None, None, None, None


class ShardedHead(nn.Module):
    """Each rank holds a slice of the classes, as in PartialFC: embeddings are gathered, weights never move."""

    def __init__(self, dim, classes, scale, margin):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        sizes = [classes // world + (r < classes % world) for r in range(world)]
        self.first = sum(sizes[:rank])
        self.weight = nn.Parameter(torch.randn(sizes[rank], dim) * 0.01)
        self.scale, self.margin = scale, margin

    def forward(self, embedding, labels):
        world = dist.get_world_size()
        all_labels = labels.new_empty(world * len(labels))
        waiting = dist.all_gather_into_tensor(all_labels, labels, async_op=True)
        rows = _Gather.apply(F.normalize(embedding.float()))
        logits = F.linear(self.scale * rows, F.normalize(self.weight)).float()  # under autocast bfloat16 until here
        waiting.wait()
        return _ShardedCosFace.apply(logits, all_labels, self.first, self.scale, self.margin)
