# SPDX-License-Identifier: Apache-2.0
"""Greedy generation with a key-value cache, prompts batched; prints the entropy of each step."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
W = torch.load(sys.argv[1], weights_only=True)
D, H = 24, 3


def norm(x, name):
    return F.layer_norm(x, (D,), W[name + ".weight"], W[name + ".bias"])


def advance(ids, cache):
    """Feed new tokens (batch, n); returns logits of the last one and the grown cache."""
    b, n = ids.shape
    seen = 0 if cache is None else cache[0].shape[2]
    x = W["tok.weight"][ids] + W["pos"][seen:seen + n]
    qkv = F.linear(norm(x, "n1"), W["att.in_proj_weight"], W["att.in_proj_bias"])
    q, k, v = qkv.view(b, n, 3, H, D // H).permute(2, 0, 3, 1, 4)
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(D // H)
    if n > 1:
        future = torch.arange(seen + n)[None] > torch.arange(seen, seen + n)[:, None]
        s = s.masked_fill(future, -math.inf)
    y = torch.einsum("bhqk,bhkd->bqhd", s.softmax(-1), v).reshape(b, n, D)
    x = x + F.linear(y, W["att.out_proj.weight"], W["att.out_proj.bias"])
    h = F.linear(norm(x, "n2"), W["ff.0.weight"], W["ff.0.bias"]).relu()
    x = x + F.linear(h, W["ff.2.weight"], W["ff.2.bias"])
    return F.linear(norm(x[:, -1], "nf"), W["out.weight"], W["out.bias"]), (k, v)


gen = torch.Generator().manual_seed(109)
losses = []
with torch.inference_mode():
    prompts = torch.cat([torch.randint(0, 30, (1, 4), generator=gen) for _ in range(3)])
    text, cache, new = prompts, None, prompts
    for step in range(8):
        logits, cache = advance(new, cache)
        prob = logits.double().softmax(-1)
        losses.append(-(prob * prob.log()).sum(-1).mean().item())
        new = logits.argmax(-1, keepdim=True)
        text = torch.cat([text, new], 1)
        print(f"step {step}: entropy {losses[-1]:.4f}")
    print("texts:", text.tolist())
print(losses)
