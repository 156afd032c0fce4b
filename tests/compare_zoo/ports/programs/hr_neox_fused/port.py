# SPDX-License-Identifier: Apache-2.0
"""NeoX-style decoder in plain tensors: adjacent-pair rotary, fused output matrix, own clipped AdamW."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

V, T, B, N_STEPS, WARM = 61, 12, 4, 5, 2
D, H, L, ROT = 24, 3, 2, 4
DH = D // H


def pair_order():
    """Half-split rotary order (0,2 | 1,3) -> adjacent pairs, the other channels untouched."""
    half = ROT // 2
    rot = [i // 2 + (i % 2) * half for i in range(ROT)]
    return torch.tensor(rot + list(range(ROT, DH)))


def load(path):
    """HF checkpoint -> dict of float tensors in this file's layout (matrices are input-major)."""
    sd = torch.load(path)
    order, p = pair_order(), {}
    p["tok"], p["unemb"] = sd["gpt_neox.embed_in.weight"], sd["lm_head.weight"].t()
    for norm, src in (("lnf", "gpt_neox.final_layer_norm"),):
        p[norm + ".g"], p[norm + ".b"] = sd[src + ".weight"], sd[src + ".bias"]
    for i in range(L):
        s, d = f"gpt_neox.layers.{i}.", f"h{i}."
        w = sd[s + "attention.query_key_value.weight"].view(H, 3, DH, D)
        b = sd[s + "attention.query_key_value.bias"].view(H, 3, DH)
        for j, nm in enumerate("qkv"):
            sel = order if nm != "v" else torch.arange(DH)
            p[d + "w" + nm] = w[:, j][:, sel].permute(2, 0, 1)        # D, H, DH
            p[d + "b" + nm] = b[:, j][:, sel]
        p[d + "up"], p[d + "up_b"] = sd[s + "mlp.dense_h_to_4h.weight"].t(), sd[s + "mlp.dense_h_to_4h.bias"]
        # attention output and MLP down projection read one concatenated activation
        p[d + "out"] = torch.cat([sd[s + "attention.dense.weight"].t(), sd[s + "mlp.dense_4h_to_h.weight"].t()])
        p[d + "out_b"] = torch.stack([sd[s + "attention.dense.bias"], sd[s + "mlp.dense_4h_to_h.bias"]])
        for nm, src in (("ln1", "input_layernorm"), ("ln2", "post_attention_layernorm")):
            p[d + nm + ".g"], p[d + nm + ".b"] = sd[s + src + ".weight"], sd[s + src + ".bias"]
    return {k: t.clone().contiguous().requires_grad_() for k, t in p.items()}


ANGLE = torch.arange(T).float()[:, None] * (10000.0 ** (-torch.arange(0, ROT, 2).float() / ROT))
COS, SIN = ANGLE.cos(), ANGLE.sin()
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()


def rope(x, offset=0):  # x: B T H DH
    r, keep = x[..., :ROT].unflatten(-1, (-1, 2)), x[..., ROT:]
    c = COS[offset:offset + x.shape[1], None]
    s = SIN[offset:offset + x.shape[1], None]
    even, odd = r.unbind(-1)
    turned = torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)
    return torch.cat([turned, keep], -1)


def block(p, x, cache=None):
    a = F.layer_norm(x, (D,), p["ln1.g"], p["ln1.b"])
    m = F.layer_norm(x, (D,), p["ln2.g"], p["ln2.b"])
    hidden = F.gelu(torch.addmm(p["up_b"], m.flatten(0, 1), p["up"])).unflatten(0, x.shape[:2])
    start = 0 if cache is None else cache["k"].shape[1]
    q, k, v = (torch.einsum("btd,dhe->bthe", a, p["w" + n]) + p["b" + n] for n in "qkv")
    q, k = rope(q, start), rope(k, start)
    if cache is not None:  # decoding only
        k, v = torch.cat([cache["k"], k], 1), torch.cat([cache["v"], v], 1)
    score = torch.einsum("bqhe,bkhe->bhqk", q / math.sqrt(DH), k)
    score = score.masked_fill(~CAUSAL[start:start + x.shape[1], :k.shape[1]], float("-inf"))
    mix = torch.einsum("bhqk,bkhe->bqhe", score.softmax(-1), v).flatten(2)
    return x + torch.cat([mix, hidden], -1) @ p["out"] + p["out_b"].sum(0)


def loss_fn(p, ids):
    x = F.embedding(ids, p["tok"])
    for i in range(L):
        x = block({k[len(f"h{i}."):]: t for k, t in p.items() if k.startswith(f"h{i}.")}, x)
    x = F.layer_norm(x[:, :-1], (D,), p["lnf.g"], p["lnf.b"])
    logp = (x @ p["unemb"]).log_softmax(-1)
    return -logp.gather(-1, ids[:, 1:, None]).mean()


params = load(sys.argv[1])
names, leaves = list(params), list(params.values())
m1 = [torch.zeros_like(t) for t in leaves]
m2 = [torch.zeros_like(t) for t in leaves]
gen = torch.Generator().manual_seed(2024)
losses, norms = [], []
for it in range(N_STEPS):
    loss = loss_fn(params, torch.randint(0, V, (B, T), generator=gen))
    grads = list(torch.autograd.grad(loss, leaves))
    total = torch.stack(torch._foreach_norm(grads)).norm()
    norms.append(float(total))
    grads = torch._foreach_mul(grads, torch.clamp(1.0 / (total + 1e-6), max=1.0))
    lr = 2e-3 * ((it + 1) / WARM if it < WARM else (N_STEPS + 2 - it) / (N_STEPS + 2 - WARM))
    with torch.no_grad():
        torch._foreach_lerp_(m1, grads, 0.1)
        torch._foreach_mul_(m2, 0.95)
        torch._foreach_addcmul_(m2, grads, grads, 0.05)
        denom = torch._foreach_sqrt(torch._foreach_div(m2, 1 - 0.95 ** (it + 1)))
        torch._foreach_add_(denom, 1e-8)
        torch._foreach_mul_(leaves, 1 - lr * 0.1)
        torch._foreach_addcdiv_(leaves, m1, denom, -lr / (1 - 0.9 ** (it + 1)))
    losses.append(loss.item())

print(losses)
