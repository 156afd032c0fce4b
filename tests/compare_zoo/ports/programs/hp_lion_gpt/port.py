# SPDX-License-Identifier: Apache-2.0
"""The GPT again: three projections per head, one-hot embedding products, foreach Lion, EMA kept by lerp."""
import sys
from types import SimpleNamespace as NS

import torch

torch.set_num_threads(1)
V, T, D, H = 29, 16, 32, 4
HD = D // H


def read(path):
    sd = torch.load(path)
    table = {"tok": sd["wte.weight"], "pos": sd["wpe.weight"], "fin.g": sd["ln_f.weight"], "fin.b": sd["ln_f.bias"]}
    for i in range(2):
        s, d = f"h.{i}.", f"layer{i}/"
        q, k, v = sd[s + "attn.c_attn.weight"].chunk(3)
        # one (heads, in, head_dim) tensor per projection; the output projection is (heads, head_dim, out)
        for name, w in (("q", q), ("k", k), ("v", v)):
            table[d + name] = w.view(H, HD, D).transpose(1, 2).contiguous()
        table[d + "o"] = sd[s + "attn.c_proj.weight"].t().reshape(H, HD, D).contiguous()
        for n, m in (("ln_1", "a"), ("ln_2", "m")):
            table[d + m + ".g"], table[d + m + ".b"] = sd[f"{s}{n}.weight"], sd[f"{s}{n}.bias"]
        table[d + "up"], table[d + "up.b"] = sd[s + "mlp.0.weight"].t().contiguous(), sd[s + "mlp.0.bias"]
        table[d + "dn"], table[d + "dn.b"] = sd[s + "mlp.2.weight"].t().contiguous(), sd[s + "mlp.2.bias"]
    return {k: v.clone().requires_grad_() for k, v in table.items()}


def norm(x, w, name):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[name + ".g"] + w[name + ".b"]


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def negative_log_likelihood(w, window):
    inputs, wanted = window[:, :-1], window[:, 1:]
    x = torch.nn.functional.one_hot(inputs, V).float() @ w["tok"] + w["pos"]
    for i in range(2):
        d = f"layer{i}/"
        y = norm(x, w, d + "a").unsqueeze(1)
        q, k, v = y @ w[d + "q"], y @ w[d + "k"], y @ w[d + "v"]
        heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum("bhte,heo->bto", heads, w[d + "o"])
        y = norm(x, w, d + "m")
        x = x + (gelu(y @ w[d + "up"] + w[d + "up.b"]) @ w[d + "dn"] + w[d + "dn.b"])
    scores = norm(x, w, "fin") @ w["tok"].t()
    return (scores.logsumexp(-1) - scores.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)).mean()


def lion(weights, grads, state, lr, b1=0.9, b2=0.99):
    """All tensors at once; decay only those which are matrices in the model as it is written down."""
    matrices = [w for n, w in zip(state.names, weights) if not n.endswith((".g", ".b"))]
    torch._foreach_mul_(matrices, 1 - lr * 0.1)
    step = torch._foreach_lerp(grads, state.m, b1)
    torch._foreach_sign_(step)
    torch._foreach_add_(weights, step, alpha=-lr)
    torch._foreach_lerp_(state.m, grads, 1 - b2)


w = read(sys.argv[1])
names, tensors = list(w), list(w.values())
state = NS(names=names, m=[torch.zeros_like(t) for t in tensors])
shadow = {k: t.detach().clone() for k, t in w.items()}

gen = torch.Generator().manual_seed(5)
windows = torch.randint(0, V, (400,), generator=gen).unfold(0, T + 1, 1)
losses, log = [], []
for step in range(5):
    window = windows[torch.randint(0, 400 - T - 1, (6,), generator=gen)]
    loss = negative_log_likelihood(w, window)
    grads = torch.autograd.grad(loss, tensors)
    lr = 2e-3 * min(step + 1, 3) / 3
    with torch.no_grad():
        lion(tensors, list(grads), state, lr)
        torch._foreach_lerp_(list(shadow.values()), tensors, 0.1)
        log.append((lr, torch.stack(torch._foreach_norm(grads)).norm().item()))
    losses.append(loss.item())
with torch.no_grad():
    losses.append(negative_log_likelihood(shadow, window).item())
print(losses)
