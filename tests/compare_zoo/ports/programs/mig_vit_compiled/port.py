# SPDX-License-Identifier: Apache-2.0
"""The vision transformer under torch.compile: patches by rearranging and a matrix, separate
projections, sdpa, the whole step in one graph.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

SIDE, P, WIDTH, N_HEADS, N_LAYERS, N_CLASSES, MICRO, STEPS = 12, 4, 24, 3, 2, 6, 3, 4


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (N_HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_mix, self.before_mlp = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.mix = Mixer()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.gammas = nn.Parameter(torch.empty(2, WIDTH))

    def forward(self, x):
        x = torch.addcmul(x, self.gammas[0], self.mix(self.before_mix(x)))  # <- layer_scale
        h = F.gelu(self.fc1(self.before_mlp(x)))
        return torch.addcmul(x, self.gammas[1], self.fc2(h))  # <- layer_scale


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_tokens = nn.Linear(P * P * 3, WIDTH)  # <- patches
        self.first = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.places = nn.Parameter(torch.empty((SIDE // P) ** 2 + 1, WIDTH))
        self.layers = nn.ModuleList([EncoderLayer() for _ in range(N_LAYERS)])
        self.last_norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.classify = nn.Linear(WIDTH, N_CLASSES)

    def forward(self, images):  # NHWC
        g = SIDE // P
        patches = images.reshape(-1, g, P, g, P, 3).transpose(2, 3).reshape(-1, g * g, P * P * 3)
        tokens = self.to_tokens(patches) + self.places[1:]  # <- patches
        first = self.first + self.places[0]
        x = torch.cat((first.expand(len(tokens), 1, WIDTH), tokens), 1)
        for layer in self.layers:
            x = layer(x)
        return self.classify(self.last_norm(x.select(1, 0)))


def port_weights(old):
    kernel = old["patch_embed.weight"].permute(0, 2, 3, 1).flatten(1)  # <- patches
    new = {
        "to_tokens.weight": kernel,
        "to_tokens.bias": old["patch_embed.bias"],
        "first": old["cls_token"],
        "places": old["pos_embed"].squeeze(0),
    }
    names = {"attn.proj": "mix.o", "norm1": "before_mix", "norm2": "before_mlp"}
    names.update({"mlp.0": "fc1", "mlp.2": "fc2"})
    for kind in ("weight", "bias"):
        for i in range(N_LAYERS):
            qkv = old[f"blocks.{i}.attn.qkv.{kind}"].chunk(3)
            new.update({f"layers.{i}.mix.{n}.{kind}": w for n, w in zip("qkv", qkv)})
            for theirs, ours in names.items():
                new[f"layers.{i}.{ours}.{kind}"] = old[f"blocks.{i}.{theirs}.{kind}"]
            scales = [old[f"blocks.{i}.ls{n}"] for n in (1, 2)]  # <- layer_scale
            new[f"layers.{i}.gammas"] = torch.stack(scales)
        new[f"last_norm.{kind}"], new[f"classify.{kind}"] = old[f"norm.{kind}"], old[f"head.{kind}"]
    return new


def read_batch(rng):
    pixels = torch.randint(0, 256, (2 * MICRO, SIDE, SIDE, 3), generator=rng).float()
    offset = torch.tensor([0.485, 0.456, 0.406]) * 255  # <- colours
    spread = torch.tensor([0.229, 0.224, 0.225]) * 255  # <- colours
    labels = torch.randint(0, N_CLASSES, (2 * MICRO,), generator=rng)
    return (pixels - offset) / spread, labels  # <- colours


net = Encoder()
net.load_state_dict(port_weights(torch.load(sys.argv[1])))


@torch.compile(backend="aot_eager")
def objective(images, labels):
    logp = net(images).log_softmax(-1)
    wanted = F.one_hot(labels, N_CLASSES) * 0.9 + 0.1 / N_CLASSES  # <- smoothing
    return -(wanted * logp).sum(-1).mean()  # <- smoothing


optimizer = torch.optim.AdamW(net.parameters(), 3e-3, eps=1e-4, weight_decay=0.05, foreach=True)
rng = torch.Generator().manual_seed(152)
losses = []
for step in range(STEPS):
    for group in optimizer.param_groups:
        group["lr"] = 1.5e-3 * (1 + math.cos(math.pi * step / STEPS))
    images, labels = read_batch(rng)
    parts = []
    for micro in range(2):
        here = slice(micro * MICRO, (micro + 1) * MICRO)
        loss = objective(images[here], labels[here])
        (loss * 0.5).backward()  # <- gathered
        parts.append(loss.item())
    optimizer.step()  # <- gathered
    optimizer.zero_grad()
    losses.append(sum(parts) / 2)
