# SPDX-License-Identifier: Apache-2.0
"""BEiT's pre-training by hand: patches cut from images with the channels last, one matrix for
queries, keys and values, the class token behind the patches, only masked places classified.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH, D, HEADS, INNER, CODES, LAYERS = 4, 4, 24, 3, 40, 24, 2
HD = D // HEADS
SPAN = 2 * SIDE - 1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-6), nn.LayerNorm(D, eps=1e-6)
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(D))
        self.v_bias = nn.Parameter(torch.zeros(D))
        self.proj = nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, INNER), nn.GELU(), nn.Linear(INNER, D))  # <- gelu
        self.gamma = nn.ParameterList(torch.empty(D) for _ in range(2))

    def forward(self, x, bias):
        y = self.norm1(x)
        both = torch.cat((self.q_bias, torch.zeros(D), self.v_bias))  # <- qkv_bias
        mixed = F.linear(y, self.qkv.weight, both)  # <- qkv_bias
        q, k, v = mixed.unflatten(-1, (3, HEADS, HD)).unbind(-3)
        scores = torch.einsum("bqhd,bkhd->hbqk", q * HD**-0.5, k) + bias[:, None]  # <- cls_bias
        y = torch.einsum("hbqk,bkhd->bqhd", scores.softmax(-1), v)
        x = torch.addcmul(x, self.gamma[0], self.proj(y.flatten(2)))
        return torch.addcmul(x, self.gamma[1], self.mlp(self.norm2(x)))  # <- gelu


class Beit(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH * 3, D)
        self.special = nn.Embedding(2, D)
        # offsets of rows and of columns, then: from the class token, to it, it to itself
        self.near = nn.Parameter(torch.empty(HEADS, SPAN, SPAN))
        self.to_class = nn.Parameter(torch.empty(HEADS))
        self.from_class = nn.Parameter(torch.empty(HEADS))
        self.class_itself = nn.Parameter(torch.empty(HEADS))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(D, eps=1e-6)
        self.decoder = nn.Linear(D, CODES)

    def bias(self):
        row, col = torch.arange(SIDE**2) // SIDE, torch.arange(SIDE**2) % SIDE
        down = row[:, None] - row[None] + SIDE - 1
        across = col[:, None] - col[None] + SIDE - 1
        inner = self.near[:, down, across]
        right = self.to_class[:, None, None].expand(-1, SIDE**2, 1)  # <- cls_bias
        last = self.from_class[:, None].expand(-1, SIDE**2)  # <- cls_bias
        last = torch.cat((last, self.class_itself[:, None]), 1)  # <- cls_bias
        return torch.cat((torch.cat((inner, right), 2), last[:, None]), 1)  # <- cls_bias

    def forward(self, images, masked):
        b = len(images)
        cut = images.view(b, SIDE, PATCH, SIDE, PATCH, 3).transpose(2, 3)  # <- patch_order
        x = self.embed(cut.reshape(b, SIDE**2, -1))  # <- patch_order
        x = torch.where(masked[..., None], self.special.weight[1], x)
        x = torch.cat((x, self.special.weight[0].expand(b, 1, -1)), 1)
        bias = self.bias()
        for block in self.blocks:
            x = block(x, bias)
        return self.decoder(self.norm(x[:, :-1][masked]))


def bring(model, old):
    old = {name.removeprefix("beit."): t for name, t in old.items()}
    kernel = old.pop("embeddings.patch_embeddings.projection.weight")
    new = {"embed.weight": kernel.permute(0, 2, 3, 1).flatten(1)}  # <- patch_order
    new["embed.bias"] = old.pop("embeddings.patch_embeddings.projection.bias")
    both = [old.pop(f"embeddings.{kind}_token").view(1, D) for kind in ("cls", "mask")]
    new["special.weight"] = torch.cat(both)
    table = old.pop("shared_position_bias.relative_position_bias_table").t()
    new["near"] = table[:, :-3].view(HEADS, SPAN, SPAN)
    new["from_class"], new["to_class"], new["class_itself"] = table[:, -3:].unbind(1)  # <- cls_bias
    for n in range(LAYERS):
        part = {k.split(".", 2)[2]: t for k, t in old.items() if k.startswith(f"layers.{n}.")}
        qkv = [part.pop(f"attention.{x}_proj.weight") for x in "qkv"]
        new[f"blocks.{n}.qkv.weight"] = torch.cat(qkv)
        new |= {f"blocks.{n}.{x}_bias": part.pop(f"attention.{x}_proj.bias") for x in "qv"}
        new |= {f"blocks.{n}.gamma.{i}": part.pop(f"lambda_{i + 1}") for i in (0, 1)}
        names = {"o_proj": "proj", "layernorm_before": "norm1", "layernorm_after": "norm2"}
        names |= {"fc1": "mlp.0", "fc2": "mlp.2"}
        for name, tensor in part.items():
            *_, module, kind = name.split(".")
            new[f"blocks.{n}.{names[module]}.{kind}"] = tensor
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"], new[f"decoder.{kind}"] = (
            old[f"layernorm.{kind}"],
            old[f"lm_head.{kind}"],
        )
    model.load_state_dict(new)


def rate(done):
    if done < 2:
        return 5e-3 * done / 2  # <- schedule
    return 2.5e-3 * (1 + math.cos(math.pi * (done - 2) / 4))


model = Beit()
bring(model, torch.load(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-5, weight_decay=0.05)
rng = torch.Generator().manual_seed(91)
losses = []
for step in range(4):
    images = torch.randn(3, 3, SIDE * PATCH, SIDE * PATCH, generator=rng)
    masked = torch.rand(3, SIDE**2, generator=rng) < 0.4
    codes = torch.randint(CODES, masked.shape, generator=rng)
    logp = model(images.permute(0, 2, 3, 1).contiguous(), masked).log_softmax(-1)
    loss = -logp.gather(1, codes[masked][:, None]).mean()
    loss.backward()
    optimizer.param_groups[0]["lr"] = rate(step)  # <- schedule
    optimizer.step()  # <- schedule
    optimizer.zero_grad()
    losses.append(loss.item())
