# SPDX-License-Identifier: Apache-2.0
"""GPT without modules: a flat table of weights stacked over depth, own AdamW."""
import math
import sys

import torch

torch.set_num_threads(1)
D, H, L, V, T = 32, 4, 2, 37, 12
PEAK, FLOOR, WARMUP, DECAY_STEPS, WD = 1e-2, 1e-3, 2, 8, 0.1
B1, B2 = 0.9, 0.95


def from_nano(sd):
    """Linear weights become (in, out); blocks are stacked along the first axis."""
    def stack(key, turn=False):
        rows = [sd[f"h.{i}.{key}"] for i in range(L)]
        return torch.stack([r.t() if turn else r for r in rows]).contiguous()

    table = {"tok_emb": sd["wte.weight"].clone(), "pos_emb": sd["wpe.weight"].clone(),
             "norm_w": sd["ln_f.weight"].clone(), "norm_b": sd["ln_f.bias"].clone()}
    qkv_w, qkv_b = stack("attn.c_attn.weight", True), stack("attn.c_attn.bias")
    for n, (w, b) in zip("qkv", zip(qkv_w.split(D, -1), qkv_b.split(D, -1))):
        table[f"w{n}"], table[f"b{n}"] = w.clone(), b.clone()
    table["wo"], table["bo"] = stack("attn.c_proj.weight", True), stack("attn.c_proj.bias")
    for n, key in (("up", "mlp.0"), ("down", "mlp.2")):
        table[f"w{n}"], table[f"b{n}"] = stack(key + ".weight", True), stack(key + ".bias")
    for n in ("1", "2"):
        table[f"g{n}"], table[f"c{n}"] = stack(f"ln_{n}.weight"), stack(f"ln_{n}.bias")
    return table


ckpt = torch.load(sys.argv[1], weights_only=True)
P = from_nano(ckpt)
HEAD = P["tok_emb"]  # <- untied_head
for p in P.values():
    p.requires_grad_()
SHRUNK = {"tok_emb", "pos_emb", "wq", "wk", "wv", "wo", "wup", "wdown"}  # <- embedding_decay
MOM = {n: torch.zeros_like(p) for n, p in P.items()}
SQ = {n: torch.zeros_like(p) for n, p in P.items()}


def norm(x, g, c):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * g + c


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def attend(x, i):
    b, t, _ = x.shape

    def heads(n):
        return (x @ P["w" + n][i] + P["b" + n][i]).unflatten(-1, (H, D // H)).permute(0, 2, 1, 3)

    q, k, v = heads("q"), heads("k"), heads("v")
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D // H)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
    merged = mixed.transpose(1, 2).reshape(b, t, D)  # <- head_merge
    return merged @ P["wo"][i] + P["bo"][i]


def nll(tokens, follow):
    x = P["tok_emb"][tokens] + P["pos_emb"][:tokens.shape[1]]
    for i in range(L):
        x = x + attend(norm(x, P["g1"][i], P["c1"][i]), i)
        inner = gelu(norm(x, P["g2"][i], P["c2"][i]) @ P["wup"][i] + P["bup"][i])
        x = x + inner @ P["wdown"][i] + P["bdown"][i]
    out = norm(x, P["norm_w"], P["norm_b"]) @ HEAD.t()  # <- untied_head
    picked = out.gather(-1, follow[..., None]).squeeze(-1)
    return (out.logsumexp(-1) - picked).mean()


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)  # <- warmup
    done = (step - WARMUP) / (DECAY_STEPS - WARMUP)
    return FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * done)) / 2


@torch.no_grad()
def update(grads, step):
    lr, n = rate(step), step + 1  # <- warmup
    total = torch.sqrt(sum(g.square().sum() for g in grads.values()))  # <- clip_scope
    for name, p in P.items():
        g = grads[name] * torch.clamp(1.0 / (total + 1e-6), max=1.0)  # <- clip_scope
        if name in SHRUNK:  # <- embedding_decay
            p.mul_(1 - lr * WD)  # <- embedding_decay
        MOM[name].mul_(B1).add_(g, alpha=1 - B1)
        SQ[name].mul_(B2).addcmul_(g, g, value=1 - B2)
        root = (SQ[name] / (1 - B2 ** n)).sqrt() + 1e-8
        p.sub_(lr * (MOM[name] / (1 - B1 ** n)) / root)  # <- warmup untied_head


text = torch.randint(V, (400,), generator=torch.Generator().manual_seed(11))
text[1::2] = (text[::2] * 3 + 1) % V
losses = []
for step in range(5):
    rows = text[(60 * step + 14 * torch.arange(4))[:, None] + torch.arange(T + 1)]
    loss = nll(rows[:, :-1], rows[:, 1:])
    update(dict(zip(P, torch.autograd.grad(loss, list(P.values())))), step)
    losses.append(float(loss.detach()))
print(losses)
