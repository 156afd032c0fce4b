# SPDX-License-Identifier: Apache-2.0
"""The decoder as one compiled function of two trees of arrays: matrices and vectors."""
import sys

import torch
from torch.nn import functional as F

N_VOCAB, N_CTX, D, N_HEAD, DEPTH = 31, 12, 16, 2, 2
D_HEAD = D // N_HEAD


def fuse(parts):
    """three [heads * d_head, ...] -> [heads * 3 * d_head, ...], q k v of a head side by side"""
    split = [p.reshape(N_HEAD, 1, D_HEAD, *p.shape[1:]) for p in parts]  # <- fused_layout
    return torch.cat(split, dim=1).flatten(0, 2).contiguous()  # <- fused_layout


def gather_weights(sd):
    big, small = {}, {}
    big["tok"], big["pos"], big["unembed"] = sd["wte.weight"], sd["wpe.weight"], sd["head.weight"]
    small["lnf_g"], small["lnf_b"] = sd["ln_f.weight"], sd["ln_f.bias"]
    for i in range(DEPTH):
        at = f"h.{i}."
        big[f"{i}.qkv"] = fuse([sd[f"{at}attn.{n}_proj.weight"] for n in "qkv"])
        small[f"{i}.qkv"] = fuse([sd[f"{at}attn.{n}_proj.bias"] for n in "qkv"])
        for ours, theirs in (("proj", "attn.out_proj"), ("up", "fc_in"), ("down", "fc_out")):
            big[f"{i}.{ours}"] = sd[f"{at}{theirs}.weight"]
            small[f"{i}.{ours}"] = sd[f"{at}{theirs}.bias"]
        for n in (1, 2):
            small[f"{i}.g{n}"] = sd[f"{at}ln_{n}.weight"]
            small[f"{i}.b{n}"] = sd[f"{at}ln_{n}.bias"]
    for tree in (big, small):
        for leaf in tree.values():
            leaf.requires_grad_(True)
    return big, small


def mix(x, w, b, w_out, b_out):
    rows, n, _ = x.shape
    fused = F.linear(x, w, b)
    q, k, v = fused.view(rows, n, N_HEAD, 3, D_HEAD).permute(3, 0, 2, 1, 4)  # <- fused_layout
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- fused_layout
    return F.linear(y.permute(0, 2, 1, 3).flatten(2), w_out, b_out)


def objective(big, small, inputs, labels):
    n = inputs.shape[1]
    pos = big["pos"][2:2 + n]  # <- position_start
    x = F.embedding(inputs, big["tok"]) + pos  # <- position_start
    for i in range(DEPTH):
        y = F.layer_norm(x, (D,), small[f"{i}.g1"], small[f"{i}.b1"])
        attn = (big[f"{i}.qkv"], small[f"{i}.qkv"], big[f"{i}.proj"], small[f"{i}.proj"])
        x = x + mix(y, *attn)
        y = F.layer_norm(x, (D,), small[f"{i}.g2"], small[f"{i}.b2"])
        u = F.linear(y, big[f"{i}.up"], small[f"{i}.up"])
        u = u * torch.sigmoid(1.702 * u)  # <- gelu_form
        x = x + F.linear(u, big[f"{i}.down"], small[f"{i}.down"])  # <- residual_source
    x = F.layer_norm(x, (D,), small["lnf_g"], small["lnf_b"])
    logits = (x @ big["unembed"].mT).flatten(0, 1)
    hit = logits.gather(1, labels.reshape(-1, 1)).squeeze(1)
    return torch.mean(torch.logsumexp(logits, 1) - hit)


compiled = torch.compile(objective, backend="aot_eager")
big, small = gather_weights(torch.load(sys.argv[1], weights_only=True))
optim = torch.optim.AdamW(
    [{"params": list(big.values())},
     {"params": list(small.values()), "weight_decay": 0}],  # <- decay_group
    lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)  # <- decay_group

rng = torch.Generator().manual_seed(314)
losses = []
for step in range(4):
    text = torch.randint(0, N_VOCAB, (4, N_CTX + 1), generator=rng)
    value = compiled(big, small, text[:, :N_CTX], text[:, 1:])
    value.backward()
    optim.step()  # <- decay_group
    optim.zero_grad()
    losses.append(value.item())
print(losses)
