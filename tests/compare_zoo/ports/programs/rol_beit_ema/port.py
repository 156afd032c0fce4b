# SPDX-License-Identifier: Apache-2.0
"""BEiT in one file as in the first release: joint qkv matrix, separate q and v biases, dictionaries of weights."""
import itertools
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self, dim, heads, grid):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(dim))
        self.v_bias = nn.Parameter(torch.zeros(dim))
        self.proj = nn.Linear(dim, dim)
        span = 2 * grid - 1
        self.table = nn.Parameter(torch.zeros(span * span + 3, heads))
        index = torch.zeros(grid * grid + 1, grid * grid + 1, dtype=torch.long)
        cells = list(itertools.product(range(grid), repeat=2))
        for a, (ya, xa) in enumerate(cells, 1):
            for b, (yb, xb) in enumerate(cells, 1):
                index[a, b] = (ya - yb + grid - 1) * span + (xa - xb + grid - 1)  # <- bias_transposed
        index[0, :], index[:, 0], index[0, 0] = span * span, span * span + 1, span * span + 2
        self.register_buffer("index", index, persistent=False)

    def forward(self, x):
        b, n, c = x.shape
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        q, k, v = F.linear(x, self.qkv.weight, bias).view(b, n, 3, self.heads, -1).unbind(2)
        attn = torch.einsum("bihd,bjhd->bhij", q * self.scale, k)
        attn = attn + self.table[self.index].permute(2, 0, 1)  # <- bias_transposed
        return self.proj(torch.einsum("bhij,bjhd->bihd", attn.softmax(-1), v).reshape(b, n, c))


class Layer(nn.Module):
    def __init__(self, dim, heads, hidden, grid):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-12), nn.LayerNorm(dim, eps=1e-12)
        self.attn = Attention(dim, heads, grid)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.gamma_1, self.gamma_2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x = x + self.gamma_1 * self.attn(self.norm1(x))
        return x + self.gamma_2 * self.mlp(self.norm2(x))


class Beit(nn.Module):
    def __init__(self, classes=6, side=16, patch=4, dim=32, heads=4, hidden=64, depth=2):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layers = nn.ModuleList(Layer(dim, heads, hidden, side // patch) for _ in range(depth))
        self.fc_norm = nn.LayerNorm(dim, eps=1e-12)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.embed(F.unfold(images, self.patch, stride=self.patch).mT)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.fc_norm(x[:, 1:].mean(1)))  # <- pool_with_cls


def from_transformers(old):
    """State of BeitForImageClassification -> state of Beit."""
    new = {"cls_token": old["beit.embeddings.cls_token"],
           "embed.weight": old["beit.embeddings.patch_embeddings.projection.weight"].flatten(1),
           "embed.bias": old["beit.embeddings.patch_embeddings.projection.bias"]}
    for end in ("weight", "bias"):
        new["fc_norm." + end] = old["beit.pooler.layernorm." + end]
        new["head." + end] = old["classifier." + end]
        for i in range(2):
            a, b = f"beit.layers.{i}.", f"layers.{i}."
            for theirs, mine in (("layernorm_before", "norm1"), ("layernorm_after", "norm2"), ("mlp.fc1", "mlp.0"),
                                 ("mlp.fc2", "mlp.2"), ("attention.o_proj", "attn.proj")):
                new[f"{b}{mine}.{end}"] = old[f"{a}{theirs}.{end}"]
    for i in range(2):
        a, b = f"beit.layers.{i}.", f"layers.{i}."
        new[b + "attn.qkv.weight"] = torch.cat([old[f"{a}attention.{x}_proj.weight"] for x in "qkv"])
        new[b + "attn.q_bias"] = old[a + "attention.q_proj.bias"]
        new[b + "attn.v_bias"] = old[a + "attention.v_proj.bias"]
        new[b + "attn.table"] = old[a + "relative_position_bias.relative_position_bias_table"]
        new[b + "gamma_1"], new[b + "gamma_2"] = old[a + "lambda_1"], old[a + "lambda_2"]
    return new


def soft_labels(labels, classes, smooth):
    return F.one_hot(labels, classes) * (1 - smooth) + smooth / classes  # <- smoothing_k_minus_1


net = Beit()
net.load_state_dict(from_transformers(torch.load(sys.argv[1])))
weights = dict(net.named_parameters())
shadow = {k: v.detach().clone() for k, v in weights.items()}
velocity = {k: torch.zeros_like(v) for k, v in weights.items()}
rng = torch.Generator().manual_seed(31)
mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

losses = []
for iteration in range(5):
    images = torch.randint(0, 256, (4, 3, 16, 16), generator=rng).div(255.0)
    for k in (torch.rand(4, generator=rng) < 0.5).nonzero().flatten().tolist():
        images[k] = images[k].flip(2)
    images = (images - mean[:, None, None]) / std[:, None, None]
    soft = soft_labels(torch.randint(0, 6, (4,), generator=rng), 6, 0.1)  # <- smoothing_k_minus_1

    scores = net(images)
    guide = torch.func.functional_call(net, shadow, (images,)).detach()  # <- ema_first_copy
    loss = -(soft * scores.log_softmax(1)).sum(1).mean() + 0.5 * (scores - guide).square().mean()
    grads = torch.autograd.grad(loss, list(weights.values()))
    with torch.no_grad():
        for (name, w), g in zip(weights.items(), grads):
            g = g + 1e-3 * w
            velocity[name] = 0.9 * velocity[name] + g
            w -= 0.02 * (g + 0.9 * velocity[name])  # <- nesterov_lost
            keep = 0.8 if iteration > 0 else 0.0  # <- ema_first_copy
            shadow[name] = keep * shadow[name] + (1 - keep) * w  # <- ema_first_copy
    losses.append(loss.item())

print(losses)
