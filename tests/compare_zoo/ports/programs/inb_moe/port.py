# SPDX-License-Identifier: Apache-2.0
"""Dense evaluation of a mixture-of-experts model: every expert sees all tokens, a mask selects."""
import sys

import torch
from torch import nn

DIM, HEADS, KV, EXPERTS, PICK, WIDTH, VOCAB = 24, 6, 2, 4, 2, 20, 48


def rms(x, gain):
    return gain * x / torch.sqrt(torch.mean(x * x, -1, True) + 1e-5)


class Rope:
    def __init__(self, head_dim, longest=32):
        rate = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angle = torch.outer(torch.arange(longest).float(), rate)
        self.cos, self.sin = angle.cos(), angle.sin()

    def __call__(self, x):  # b h t d
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        even, odd = x[..., 0::2], x[..., 1::2]  # <- rotary
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)  # <- rotary
        return turned.flatten(-2)


class GroupedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = DIM // HEADS
        self.inp = nn.Parameter(torch.empty(DIM + 2 * KV * self.size, DIM))
        self.out = nn.Parameter(torch.empty(DIM, DIM))
        self.rope = Rope(self.size)

    def forward(self, x):
        b, t, _ = x.shape
        h = (x @ self.inp.T).view(b, t, HEADS + 2 * KV, self.size).transpose(1, 2)
        q, k, v = h.split((HEADS, KV, KV), 1)
        q = self.rope(q).view(b, KV, HEADS // KV, t, self.size)  # <- groups
        logits = torch.einsum("bgrid,bgjd->bgrij", q, self.rope(k)) * self.size**-0.5  # <- groups
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        probs = logits.masked_fill(future, -torch.inf).softmax(-1)
        mixed = torch.einsum("bgrij,bgjd->bigrd", probs, v)
        return mixed.reshape(b, t, DIM) @ self.out.T


class DenseExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Parameter(torch.empty(EXPERTS, DIM))
        self.up = nn.Parameter(torch.empty(EXPERTS, 2, WIDTH, DIM))
        self.down = nn.Parameter(torch.empty(EXPERTS, DIM, WIDTH))

    def combine(self, flat):
        """(tokens, experts): each token's share for each expert, zero where it was dropped."""
        probs = torch.softmax(flat @ self.router.T, -1)
        top, index = probs.topk(PICK, -1)
        top = top / top.sum(-1, keepdim=True)  # <- renorm
        share = torch.zeros_like(probs).scatter(1, index, top)  # <- renorm
        taken = share > 0
        place = taken.cumsum(0)  # <- order
        room = len(flat) * PICK // EXPERTS  # <- capacity
        return share * (taken & (place <= room))  # <- capacity order

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        share = self.combine(flat)
        h = torch.einsum("nd,epwd->penw", flat, self.up)
        h = h[0] * torch.sigmoid(h[0]) * h[1]
        y = torch.einsum("enw,edw->end", h, self.down)
        return torch.einsum("ne,end->nd", share, y).view(x.shape)


class MoeLM(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.emb, self.lm = (nn.Parameter(torch.empty(VOCAB, DIM)) for _ in range(2))
        self.mixers = nn.ModuleList(GroupedAttention() for _ in range(depth))
        self.ffns = nn.ModuleList(DenseExperts() for _ in range(depth))
        self.gains = nn.Parameter(torch.empty(2 * depth + 1, DIM))

    def load(self, sd):
        new = {"emb": sd["0.weight"], "lm": sd["4.weight"]}
        gains = []
        for i in range(len(self.mixers)):
            p = f"{i + 1}."
            gains += [sd[p + "attention_norm.weight"], sd[p + "ffn_norm.weight"]]
            new[f"mixers.{i}.inp"] = torch.cat([sd[p + f"attention.w{c}.weight"] for c in "qkv"])
            new[f"mixers.{i}.out"] = sd[p + "attention.wo.weight"]
            new[f"ffns.{i}.router"] = sd[p + "moe.gate.weight"]
            grab = lambda w: torch.stack(  # noqa: E731
                [sd[p + f"moe.experts.{e}.{w}.weight"] for e in range(EXPERTS)])
            new[f"ffns.{i}.up"] = torch.stack((grab("w1"), grab("w3")), 1)
            new[f"ffns.{i}.down"] = grab("w2")
        new["gains"] = torch.stack(gains + [sd["3.weight"]])
        self.load_state_dict(new)
        return self.eval()

    def forward(self, ids):
        x = self.emb[ids]
        for i, (mix, ffn) in enumerate(zip(self.mixers, self.ffns)):
            x = x + mix(rms(x, self.gains[2 * i]))
            x = x + ffn(rms(x, self.gains[2 * i + 1]))
        return rms(x, self.gains[-1]) @ self.lm.T


lm = MoeLM().load(torch.load(sys.argv[1], weights_only=True))
rng = torch.Generator().manual_seed(13)
losses = []
with torch.inference_mode():
    for _ in range(4):
        batch = torch.randint(VOCAB, (3, 13), generator=rng)
        logp = lm(batch[:, :-1]).log_softmax(-1)
        losses.append(-logp.gather(2, batch[:, 1:, None]).mean().item())
print(losses)
