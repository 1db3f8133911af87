"""The vision transformer of peers: tandem's vit_tiny in plain torch, written to be fast."""
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, DEPTH = 192, 12


class Attention(nn.Module):
    def __init__(self, heads, ranks, part):
        super().__init__()
        self.of_head = WIDTH // heads
        self.heads = heads // ranks
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH // part) for _ in range(3))
        self.proj = nn.Linear(WIDTH // part, WIDTH)

    def forward(self, x):
        images, tokens, _ = x.shape
        q, k, v = (
            layer(x).view(images, tokens, self.heads, self.of_head).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(images, tokens, self.heads * self.of_head))


class Block(nn.Module):
    def __init__(self, heads, ranks, part):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = Attention(heads, ranks, part)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH // part), nn.Linear(4 * WIDTH // part, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, channels, size, patch, heads, classes, ranks, part):
        """`part`: by how much the layers are smaller than the model's."""
        super().__init__()
        self.proj = nn.Conv2d(channels, WIDTH, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(heads, ranks, part) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, classes, bias=False)

    def tokens(self, images):
        x = self.proj(images).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed

    def scores(self, x):
        return self.head(self.norm(x[:, 0]))

    def forward(self, images):
        return self.scores(self.blocks(self.tokens(images)))
