# SPDX-License-Identifier: Apache-2.0
"""The song language model in plain torch: own decoder, own loop, no transformers."""
import math
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


@dataclass
class Hyper:
    vocab: int = 61
    length: int = 14
    width: int = 32
    heads: int = 4
    depth: int = 2
    steps: int = 5
    micro: int = 3
    accumulate: int = 2
    lr: float = 6e-3
    warmup: int = 2
    decay: float = 0.1


H = Hyper()
IGNORE = -1


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(H.width, H.width) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (H.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        # rows are padded on the right, so causality alone keeps the padding out
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(H.width), nn.LayerNorm(H.width)
        self.att = Attention()
        self.up, self.down = nn.Linear(H.width, 4 * H.width), nn.Linear(4 * H.width, H.width)

    def forward(self, x):
        x = x + self.att(self.n1(x))
        h = self.up(self.n2(x))
        return x + self.down(F.gelu(h, approximate="tanh"))  # <- gelu_quick


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(H.vocab, H.width), nn.Embedding(H.length, H.width)
        self.layers = nn.ModuleList(Layer() for _ in range(H.depth))
        self.norm = nn.LayerNorm(H.width)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tok.weight.T


def convert(sd):
    out = {"tok.weight": sd["transformer.wte.weight"], "pos.weight": sd["transformer.wpe.weight"]}
    out["norm.weight"], out["norm.bias"] = sd["transformer.ln_f.weight"], sd["transformer.ln_f.bias"]
    for i in range(H.depth):
        src, dst = f"transformer.h.{i}.", f"layers.{i}."
        for part, name in zip(range(3), "qkv"):
            out[f"{dst}att.{name}.weight"] = sd[src + "attn.c_attn.weight"].chunk(3, dim=1)[part].T
            out[f"{dst}att.{name}.bias"] = sd[src + "attn.c_attn.bias"].chunk(3)[part]
        for a, b in (("attn.c_proj", "att.o"), ("mlp.c_fc", "up"), ("mlp.c_proj", "down")):
            out[dst + b + ".weight"], out[dst + b + ".bias"] = sd[src + a + ".weight"].T, sd[src + a + ".bias"]
        for a, b in (("ln_1", "n1"), ("ln_2", "n2")):
            out[dst + b + ".weight"], out[dst + b + ".bias"] = sd[src + a + ".weight"], sd[src + a + ".bias"]
    return out


def corpus():
    gen, rows = torch.Generator().manual_seed(404), []
    for _ in range(H.steps * H.accumulate * H.micro):
        n = int(torch.randint(5, H.length + 1, (1,), generator=gen))
        rows.append(F.pad(torch.randint(1, H.vocab, (n,), generator=gen), (0, H.length - n)))
    ids = torch.stack(rows)
    targets = ids[:, 1:]
    targets = torch.where(targets == 0, IGNORE, targets)  # <- pad_targets
    shape = (H.steps, H.accumulate, H.micro, -1)
    return ids[:, :-1].reshape(shape), targets.reshape(shape), (ids != 0).reshape(shape)


def lr_at(step):
    if step < H.warmup:
        return H.lr * step / H.warmup  # <- warmup_shift
    done = (step - H.warmup) / (H.steps - H.warmup)
    return H.lr * 0.5 * (1 + math.cos(math.pi * done))


net = Decoder()
net.load_state_dict(convert(torch.load(sys.argv[1])))
matrices = [p for p in net.parameters() if p.ndim >= 2]
vectors = [p for p in net.parameters() if p.ndim < 2]
opt = torch.optim.AdamW(
    [dict(params=matrices, weight_decay=H.decay), dict(params=vectors, weight_decay=0.0)],  # <- decay_everything
    betas=(0.9, 0.98),
)
losses = []
for step, (xs, ys, real) in enumerate(zip(*corpus())):
    total = 0.0
    # the old script averaged over every unpadded label, the never predicted first one included
    tokens = int(real.sum())  # <- mean_of_means
    for x, y in zip(xs, ys):
        summed = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=IGNORE, reduction="sum")
        loss = summed / tokens  # <- mean_of_means
        loss.backward()
        total += loss.item()
    losses.append(total)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    for group in opt.param_groups:
        group["lr"] = lr_at(step)
    opt.step()  # <- warmup_shift decay_everything
    opt.zero_grad()
print(losses)
