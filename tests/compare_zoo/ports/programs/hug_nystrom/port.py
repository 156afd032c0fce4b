# SPDX-License-Identifier: Apache-2.0
"""The rater written out: landmarks by pooling, the inverse as a polynomial, the convolution along
one axis, fused projections, Adagrad by hand.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

D, H, E, LENGTH, MARKS, KERNEL, PAD = 24, 3, 8, 24, 8, 5, 1


def landmarks(x):
    """Means of neighbours: [batch, head, place, e] to [batch, head, landmark, e]."""
    flat = x.flatten(0, 1).transpose(1, 2)
    pooled = F.avg_pool1d(flat, LENGTH // MARKS)  # <- landmarks
    return pooled.transpose(1, 2).unflatten(0, (-1, H))  # <- landmarks


def inverse(a):
    z = a.mT / a.sum(-2).amax()  # <- inverse
    eye = torch.eye(MARKS)
    for _ in range(6):
        az = a @ z  # <- inverse
        az2 = az @ az
        z = z @ (13 * eye - 15 * az + 7 * az2 - az2 @ az) / 4
    return z


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.taps = nn.Parameter(torch.empty(H, 1, KERNEL))
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x, padding):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, E)).permute(2, 0, 3, 1, 4)
        q, k = q * E**-0.25, k * E**-0.25
        few_q, few_k = landmarks(q), landmarks(k)
        first = (q @ few_k.mT).softmax(-1)
        middle = (few_q @ few_k.mT).softmax(-1)
        last = (few_q @ k.mT).masked_fill(padding[:, None, None], -math.inf)  # <- mask
        mixed = first @ inverse(middle) @ (last.softmax(-1) @ v)  # <- mask
        rows = v.movedim(-1, 1).flatten(0, 1)
        near = F.conv1d(rows, self.taps, padding=KERNEL // 2, groups=H)
        mixed = mixed + near.unflatten(0, (-1, E)).movedim(1, -1)
        x = self.norm1(x + self.out(mixed.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.gelu(self.up(x), approximate="tanh")))


class Rater(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, D, padding_idx=PAD)
        self.places, self.kind = nn.Embedding(LENGTH + 2, D), nn.Parameter(torch.empty(1, D))
        self.norm = nn.LayerNorm(D)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.dense, self.score = nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, words):
        places = self.places.weight[2 : 2 + words.size(1)]  # <- positions
        x = self.norm(self.words(words) + places + self.kind)  # <- positions
        for layer in self.layers:
            x = layer(x, words == PAD)
        return self.score(F.gelu(self.dense(x[:, 0]), approximate="tanh"))[:, 0]


def gather(theirs):
    theirs = {k.removeprefix("nystromformer."): t for k, t in theirs.items()}
    ours = {
        "words.weight": theirs["embeddings.word_embeddings.weight"],
        "places.weight": theirs["embeddings.position_embeddings.weight"],
        "kind": theirs["embeddings.token_type_embeddings.weight"],
    }
    names = {"norm": "embeddings.LayerNorm"}
    names |= {"dense": "classifier.dense", "score": "classifier.out_proj"}
    for n in range(2):
        a, b = f"layers.{n}", f"encoder.layer.{n}"
        ours[f"{a}.taps"] = theirs[f"{b}.attention.self.conv.weight"].squeeze(-1)
        names |= {f"{a}.out": f"{b}.attention.output.dense", f"{a}.down": f"{b}.output.dense"}
        names |= {f"{a}.up": f"{b}.intermediate.dense", f"{a}.norm2": f"{b}.output.LayerNorm"}
        names[f"{a}.norm1"] = f"{b}.attention.output.LayerNorm"
        for kind in ("weight", "bias"):
            parts = (theirs[f"{b}.attention.self.{w}.{kind}"] for w in ("query", "key", "value"))
            ours[f"{a}.qkv.{kind}"] = torch.cat(tuple(parts))
    for a, b in names.items():
        ours |= {f"{a}.{kind}": theirs[f"{b}.{kind}"] for kind in ("weight", "bias")}
    return ours


model = Rater()
model.load_state_dict(gather(torch.load(sys.argv[1])))
sums = [torch.full_like(p, 0.1) for p in model.parameters()]  # <- accumulator
rng = torch.Generator().manual_seed(431)
losses = []
for _ in range(4):
    words = torch.randint(2, 50, (4, LENGTH), generator=rng)
    sizes = torch.randint(9, LENGTH + 1, (4, 1), generator=rng)
    words = torch.where(torch.arange(LENGTH) < sizes, words, PAD)
    loss = (model(words) - torch.randn(4, generator=rng)).square().mean()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for p, total, g in zip(model.parameters(), sums, grads):
            total.addcmul_(g, g)  # <- accumulator
            p.sub_(0.02 * g / (total.sqrt() + 1e-10))  # <- accumulator
    losses.append(loss.item())
