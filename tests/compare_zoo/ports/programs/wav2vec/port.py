# SPDX-License-Identifier: Apache-2.0
"""The same speech model with frames by unfolding, the normed weight computed in the forward pass,
masks by torch.where, cosines as products of normalised vectors, CTC by its recursion.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FILTERS, WIDTH, HEADS, ALPHABET, OTHERS, CODEBOOK = 8, 16, 2, 6, 3, 5


class Frames(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(FILTERS, 10))
        self.scale, self.shift = (
            nn.Parameter(torch.zeros(FILTERS)),
            nn.Parameter(torch.zeros(FILTERS)),
        )
        self.second = nn.Conv1d(FILTERS, FILTERS, 3, stride=2, bias=False)

    def forward(self, wave):
        x = wave.unfold(1, 10, 5) @ self.first.T
        x = F.layer_norm(x.mT, x.shape[1:2]).mT  # <- group_norm
        x = F.gelu(x * self.scale + self.shift)  # <- group_norm
        return F.gelu(self.second(x.mT)).mT  # <- stride


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.ones(1, 1, 8))
        self.v = nn.Parameter(torch.ones(WIDTH, WIDTH // 4, 8))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        norm = self.v.square().sum((0, 1), keepdim=True).sqrt()  # <- weight_norm
        weight = self.g * self.v / norm  # <- weight_norm
        padded = F.pad(x.mT, (4, 3))  # <- same_pad
        y = F.conv1d(padded, weight, self.bias, groups=4)  # <- same_pad weight_norm
        return x + F.gelu(y).mT


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm_after_attention, self.norm_after_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (y.view(n, t, HEADS, -1) for y in self.qkv(x).tensor_split(3, dim=-1))
        weights = torch.einsum("nqhd,nkhd->nhqk", q, k).div((WIDTH // HEADS) ** 0.5).softmax(-1)
        mixed = torch.einsum("nhqk,nkhd->nqhd", weights, v).reshape(n, t, WIDTH)
        x = self.norm_after_attention(x + self.out(mixed))
        return self.norm_after_mlp(x + self.mlp(x))


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames, self.norm = Frames(), nn.LayerNorm(FILTERS)
        self.widen, self.hidden = nn.Linear(FILTERS, WIDTH), nn.Parameter(torch.zeros(WIDTH))
        self.positions, self.encoder = Positions(), Encoder()
        self.codebook, self.picker = (
            nn.Parameter(torch.zeros(CODEBOOK, WIDTH)),
            nn.Linear(FILTERS, CODEBOOK),
        )
        self.spell = nn.Linear(WIDTH, ALPHABET)

    def forward(self, wave, masked, noise):
        z = self.norm(self.frames(wave))
        x = torch.where(masked[..., None], self.hidden, self.widen(z))  # <- masking
        soft = torch.softmax((self.picker(z) + noise) / 0.5, dim=-1)  # <- temperature
        hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
        chosen = (hard - soft).detach() + soft  # <- straight
        return self.encoder(self.positions(x)), torch.matmul(chosen, self.codebook)  # <- straight


def contrastive(context, targets, masked, negatives):
    c, q = F.normalize(context[masked], dim=1), F.normalize(targets[masked], dim=1)  # <- cosine
    positive = (c * q).sum(1, keepdim=True)  # <- cosine
    negative = torch.einsum("nd,nkd->nk", c, q[negatives])  # <- cosine
    scores = torch.cat([positive, negative], 1) / 0.1  # <- cosine
    return (scores.logsumexp(1) - scores[:, 0]).mean()


def ctc(log_probs, text):
    """The forward recursion of Graves et al. (2006), for one text."""
    path = torch.zeros(2 * len(text) + 1, dtype=torch.long)
    path[1::2] = text
    skip = torch.zeros(len(path), dtype=torch.bool)
    skip[3::2] = text[1:] != text[:-1]
    nothing = torch.tensor([-1e30])
    alpha = torch.cat([log_probs[0, path[:2]], nothing.expand(len(path) - 2)])
    for frame in log_probs[1:]:
        one = torch.cat([nothing, alpha[:-1]])
        two = torch.where(skip, torch.cat([nothing, nothing, alpha[:-2]]), nothing)
        alpha = torch.stack([alpha, one, two]).logsumexp(0) + frame[path]
    return -alpha[-2:].logsumexp(0)


def imported(path):
    old = torch.load(path)
    conv = "positions.conv."
    new = {
        "frames.first": old["features.conv0.weight"][:, 0],
        "frames.scale": old["features.norm0.weight"],
        "frames.shift": old["features.norm0.bias"],
        "frames.second.weight": old["features.conv1.weight"],
        "hidden": old["mask_vector"],
        "codebook": old["codes"],
        "positions.g": old[conv + "parametrizations.weight.original0"],
        "positions.v": old[conv + "parametrizations.weight.original1"],
        "positions.bias": old[conv + "bias"],
    }
    plain = {"feature_norm": "norm", "project": "widen", "choose": "picker", "letters": "spell"}
    plain |= {"layer.o": "encoder.out", "layer.norm1": "encoder.norm_after_attention"}
    plain |= {"layer.norm2": "encoder.norm_after_mlp", "layer.fc1": "encoder.mlp.0"}
    plain |= {"layer.fc2": "encoder.mlp.2"}
    for kind in ("weight", "bias"):
        new |= {f"{mine}.{kind}": old[f"{name}.{kind}"] for name, mine in plain.items()}
        new[f"encoder.qkv.{kind}"] = torch.cat([old[f"layer.{name}.{kind}"] for name in "qkv"])
    return new


net = Speech()
net.load_state_dict(imported(sys.argv[1]))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
rng = np.random.default_rng(15)
losses = []
for _ in range(2):
    wave = torch.from_numpy(rng.standard_normal((2, 150), dtype=np.float32))
    masked = torch.from_numpy(rng.random((2, 14)) < 0.5)
    count = int(masked.sum())
    negatives = torch.from_numpy(rng.integers(0, count, (count, OTHERS)))
    noise = torch.from_numpy(rng.gumbel(size=(2, 14, CODEBOOK)).astype(np.float32))
    text = torch.from_numpy(rng.integers(1, ALPHABET, (2, 4)))
    context, targets = net(wave, masked, noise)
    log_probs = net.spell(context).log_softmax(-1)
    spoken = (
        sum(ctc(one, letters) / len(letters) for one, letters in zip(log_probs, text)) / 2
    )  # <- ctc
    loss = contrastive(context, targets, masked, negatives) + 0.3 * spoken  # <- ctc
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
