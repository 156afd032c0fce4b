# SPDX-License-Identifier: Apache-2.0
"""Same model token by token with complex rotations and a cache; mean surprisal by position."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
V, D, H, KV, HD = 36, 32, 4, 2, 8
w = {k.removesuffix(".weight"): v for k, v in torch.load(sys.argv[1], weights_only=True).items()}
qkv = torch.cat([w["wq"], w["wk"], w["wv"]])
gate_up = torch.cat([w["gate"], w["up"]])
freq = 100.0 ** (-torch.arange(HD // 2) / (HD // 2))


def rms(x, name):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w[name]


class Session:
    def __init__(self, texts):
        self.keys = torch.empty(texts, KV, 0, HD // 2, dtype=torch.complex64)
        self.values = torch.empty(texts, KV, 0, HD)

    def step(self, token):
        x = w["tok"][token]
        q, k, v = (rms(x, "n1") @ qkv.T).split([H * HD, KV * HD, KV * HD], -1)
        turn = torch.polar(torch.ones(HD // 2), self.keys.shape[2] * freq)
        q = torch.complex(*q.view(-1, KV, H // KV, HD).chunk(2, -1)) * turn
        k = torch.complex(*k.view(-1, KV, HD).chunk(2, -1)) * turn
        self.keys = torch.cat([self.keys, k[:, :, None]], 2)
        self.values = torch.cat([self.values, v.view(-1, KV, 1, HD)], 2)
        score = (q @ self.keys.conj().transpose(-2, -1)).real / HD**0.5
        y = score.softmax(-1) @ self.values
        x = x + y.flatten(1) @ w["wo"].T
        a, b = (rms(x, "n2") @ gate_up.T).chunk(2, -1)
        x = x + (F.silu(a) * b) @ w["down"].T
        return rms(x, "nf") @ w["head"].T


g = torch.Generator().manual_seed(130)
losses = []
with torch.inference_mode():
    ids = torch.cat([torch.randint(0, V, (4, 13), generator=g) for _ in range(4)])
    session = Session(len(ids))
    outputs = []
    for t in range(12):
        outputs.append(session.step(ids[:, t]))
        surprise = F.cross_entropy(outputs[-1], ids[:, t + 1], reduction="none")
        losses.append(surprise.mean().item())
        print(f"position {t + 1:2d}: {losses[-1]:.4f} nats")
print(losses)
