# SPDX-License-Identifier: Apache-2.0
"""timm-style ViT fed with NHWC images: unfolded patches, fused qkv, own momentum loop, evaluation in between."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

PX, P, C, WIDTH, DEPTH, NHEAD, NCLS = 16, 4, 3, 32, 2, 4, 5


class PatchEmbed(nn.Module):
    """(B, H, W, C) -> (B, tokens, width) through one matrix product."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(P * P * C, WIDTH)

    def forward(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // P, P, w // P, P, c).transpose(2, 3)
        return self.proj(x.reshape(b, -1, P * P * c))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, NHEAD, d // NHEAD).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * (d // NHEAD) ** -0.5) @ k.mT
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH, eps=1e-12), Attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, NCLS)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.pos_embed = nn.Parameter(torch.zeros((PX // P) ** 2, WIDTH))
        self.cls = nn.ParameterList([torch.zeros(WIDTH), torch.zeros(WIDTH)])  # token and its position
        self.patch_embed = PatchEmbed()

    def forward(self, x):
        x = self.patch_embed(x) + self.pos_embed
        cls = (self.cls[0] + self.cls[1]).expand(len(x), 1, -1)
        x = self.blocks(torch.cat([cls, x], 1))
        return self.head(self.norm(x[:, 0]))


def remap(old):
    """Checkpoint of the transformers model -> names and layouts of this file."""
    new, pos = {}, old.pop("vit.embeddings.position_embeddings")[0]
    new["cls.0"], new["cls.1"], new["pos_embed"] = old.pop("vit.embeddings.cls_token").flatten(), pos[0], pos[1:]
    stem = "vit.embeddings.patch_embeddings.projection."
    new["patch_embed.proj.weight"] = old.pop(stem + "weight").permute(0, 2, 3, 1).flatten(1)
    new["patch_embed.proj.bias"] = old.pop(stem + "bias")
    for kind in ("weight", "bias"):
        new["norm." + kind], new["head." + kind] = old.pop("vit.layernorm." + kind), old.pop("classifier." + kind)
        for i in range(DEPTH):
            src = {k: old.pop(f"vit.layers.{i}.{k}.{kind}") for k in (
                "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj",
                "layernorm_before", "layernorm_after", "mlp.fc1", "mlp.fc2")}
            q, k, v, *others = src.values()
            new[f"blocks.{i}.attn.qkv.{kind}"] = torch.cat([q, k, v])
            for name, t in zip(("attn.proj", "norm1", "norm2", "mlp.0", "mlp.2"), others):
                new[f"blocks.{i}.{name}.{kind}"] = t
    assert not old, list(old)
    return new


def prepare(seed=31, n=24):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, NCLS, (n,), generator=g)
    x = torch.randn(n, C, PX, PX, generator=g) + 0.3 * y.view(-1, 1, 1, 1)
    x = x.permute(0, 2, 3, 1).contiguous()                       # NHWC from here on
    coin = torch.rand(n, generator=g) < 0.5
    x[coin] = x[coin].flip(2)
    return x.sub(0.5).div(1.25), y


x_all, y_all = prepare()
order = list(torch.utils.data.DataLoader(range(24), 6, shuffle=True, generator=torch.Generator().manual_seed(4)))

net = VisionTransformer()
net.load_state_dict(remap(torch.load(sys.argv[1])))
velocity = {}
losses, train_accuracy, rates = [], [], []
for step, index in enumerate(order):
    rate = 0.05 * 0.5 * (1 + math.cos(math.pi * step / 8))
    logp = F.log_softmax(net(x_all[index]), -1)
    hard = -logp.gather(1, y_all[index, None]).mean()
    loss = 0.9 * hard - 0.1 * logp.mean()                        # smoothing written out
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            d = p.grad + 1e-3 * p
            velocity[p] = d if step == 0 else 0.9 * velocity[p] + d
            p -= rate * velocity[p]
            p.grad = None
        net.eval()
        train_accuracy.append((net(x_all).argmax(-1) == y_all).float().mean().item())
        net.train()
    rates.append(rate)
    losses.append(loss.item())

print(losses)
