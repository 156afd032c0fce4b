# SPDX-License-Identifier: Apache-2.0
"""Sequence model without nn.Module: three leaf copies of the tied matrix, gradients summed."""
import sys
import torch

w = {k: v.clone() for k, v in torch.load(sys.argv[1], weights_only=True).items()}
table = w.pop("src.weight")
del w["tgt.weight"], w["out.weight"]
w["table"] = table


def ln(p, name, x):
    var, mu = torch.var_mean(x, -1, keepdim=True, unbiased=False)
    return (x - mu) * (var + 1e-5).rsqrt() * p[name + ".weight"] + p[name + ".bias"]


def fc(p, name, x):
    return torch.einsum("...i,oi->...o", x, p[name + ".weight"]) + p[name + ".bias"]


def attend(p, name, x, src, heads, hide):
    (wq, wk, wv), (bq, bk, bv) = (
        p[name + ".in_proj_weight"].chunk(3), p[name + ".in_proj_bias"].chunk(3))
    cut = lambda z: z.unflatten(-1, (heads, -1))
    q, k, v = cut(x @ wq.T + bq), cut(src @ wk.T + bk), cut(src @ wv.T + bv)
    score = torch.einsum("bqhd,bkhd->bqkh", q, k) * q.shape[-1] ** -0.5
    prob = (score + hide[..., None]).softmax(2)
    return fc(p, name + ".out_proj", torch.einsum("bqkh,bkhd->bqhd", prob, v).flatten(2))


def run(p, copies, src, tgt):
    e_src, e_tgt, e_out = copies
    hide = torch.where(src.eq(0), -1e9, 0.0)[:, None, :]
    x = 4.0 * e_src[src] + p["pos"][None, :src.shape[1]]  # <- tied
    x = ln(p, "enc.norm1", x + attend(p, "enc.self_attn", x, x, 2, hide))
    mem = ln(p, "enc.norm2", x + fc(p, "enc.linear2", fc(p, "enc.linear1", x).relu()))
    n = tgt.shape[1]
    causal = torch.full((n, n), -1e9).triu(1)[None]
    y = 4.0 * e_tgt[tgt] + p["pos"][None, :n]
    z = ln(p, "dec.norm1", y)
    y = y + attend(p, "dec.self_attn", z, z, 4, causal)  # <- residual
    y = y + attend(p, "dec.multihead_attn", ln(p, "dec.norm2", y), mem, 4, hide)  # <- memory_mask
    u = fc(p, "dec.linear1", ln(p, "dec.norm3", y))
    y = y + fc(p, "dec.linear2", u * 0.5 * (1 + torch.erf(u / 2 ** 0.5)))
    return ln(p, "norm", y) @ e_out.T + p["out.bias"]


gen = torch.Generator().manual_seed(21)
state = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in w.items()}
losses = []
for t in range(1, 6):
    src, tgt, sl, tl = (torch.randint(lo, hi, shape, generator=gen) for lo, hi, shape in
                        [(2, 19, (6, 9)), (2, 19, (6, 8)), (4, 10, (6,)), (3, 9, (6,))])
    src = src * (torch.arange(9) < sl.unsqueeze(1))
    tgt = tgt * (torch.arange(8) < tl.unsqueeze(1))
    tgt[:, 0] = 1
    leaves = {k: v.detach().requires_grad_() for k, v in w.items() if k != "table"}
    copies = [w["table"].detach().clone().requires_grad_() for _ in range(3)]  # <- tied
    gold = tgt[:, 1:]
    real = gold.ne(0)
    z, gold = run(leaves, copies, src, tgt[:, :-1])[real], gold[real]
    picked = z.gather(1, gold[:, None])[:, 0]
    loss = (z.logsumexp(1) - 0.9 * picked - 0.1 * z.mean(1)).sum() / len(gold)  # <- smoothing
    loss.backward()
    grads = {k: v.grad for k, v in leaves.items()}
    grads["table"] = copies[2].grad + copies[1].grad + copies[0].grad  # <- tied
    lr = 3e-3 * (t / 3 if t < 3 else (3 / t) ** 0.5)  # <- warmup
    for k, gr in grads.items():
        m, v = state[k]
        m, v = 0.9 * m + 0.1 * gr, 0.98 * v + 0.02 * gr.square()
        state[k] = (m, v)
        step = (m / (1 - 0.9 ** t)) / ((v / (1 - 0.98 ** t)).sqrt() + 1e-4)
        w[k] = w[k] - lr * (step + 0.05 * w[k])  # <- warmup
    losses.append(loss.item())
print(losses)
