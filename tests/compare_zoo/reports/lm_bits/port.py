# SPDX-License-Identifier: Apache-2.0
"""Same character model with fused projections and SDPA; bits per character of every batch."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, DIM, HEADS, LEN = 40, 32, 4, 20


class FusedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_att, self.norm_mlp = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        q, k, v = self.qkv(self.norm_att(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_mlp(x))


def convert(sd, i):
    p = f"blocks.{i}."
    out = {}
    for kind in ("weight", "bias"):
        out["qkv." + kind] = torch.cat([sd[f"{p}{n}.{kind}"] for n in "qkv"])
        pairs = {"proj": "o", "norm_att": "ln1", "norm_mlp": "ln2", "mlp.0": "up", "mlp.2": "down"}
        for new, old in pairs.items():
            out[f"{new}.{kind}"] = sd[f"{p}{old}.{kind}"]
    return out


ckpt = torch.load(sys.argv[1], weights_only=True)
stack = nn.Sequential(FusedLayer(), FusedLayer()).eval()
for i, layer in enumerate(stack):
    layer.load_state_dict(convert(ckpt, i))


@torch.no_grad()
def log_probs(ids):
    x = F.embedding(ids, ckpt["tok.weight"]) + ckpt["pos.weight"][: ids.shape[1]]
    x = F.layer_norm(stack(x), (DIM,), ckpt["ln.weight"], ckpt["ln.bias"])
    return (x @ ckpt["head.weight"].T).log_softmax(-1)


gen = torch.Generator().manual_seed(102)
losses = []
for _ in range(4):
    text = torch.randint(0, VOCAB, (6, LEN + 1), generator=gen)
    lp = log_probs(text[:, :-1]).gather(-1, text[:, 1:, None])
    losses.append(-lp.double().mean().item() / math.log(2))
print("bits per character", sum(losses) / len(losses))
print(losses)
