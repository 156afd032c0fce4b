# SPDX-License-Identifier: Apache-2.0
"""The Llama in the Ascend manner: sequences packed into (T, N, D) with cu_seqlens, fused norms and
projections, rotate-half, attention in blocks with a running maximum, loss scale, own AdamW.
"""

import itertools
import sys

import torch
import torch.nn.functional as F

N_VOCAB, WIDTH, N_HEAD, N_LAYER, BLOCK = 50, 32, 4, 2, 4
SIZE = WIDTH // N_HEAD
LOSS_SCALE = 1024.0


def halves(weight):
    """Rows of a projection so that rotate-half does what the complex product does."""
    return weight.unflatten(0, (N_HEAD, -1, 2)).transpose(1, 2).flatten(0, 2)  # <- rotary


def load_params(path):
    old = torch.load(path)
    params = {"embed": old["tok_embeddings.weight"], "norm": old["norm.weight"]}
    params["head"] = old["output.weight"].t()
    for n in range(N_LAYER):
        here = f"layers.{n}."
        take = {k[len(here) : -len(".weight")]: v for k, v in old.items() if k.startswith(here)}
        q, k = halves(take["attention.wq"]), halves(take["attention.wk"])  # <- rotary
        params[f"{n}.qkv"] = torch.cat([q, k, take["attention.wv"]]).t()  # <- rotary
        params[f"{n}.o"] = take["attention.wo"].t()
        up = [take["feed_forward.w1"], take["feed_forward.w3"]]  # <- gate
        params[f"{n}.gate_up"] = torch.cat(up).t()  # <- gate
        params[f"{n}.down"] = take["feed_forward.w2"].t()
        params[f"{n}.norm1"], params[f"{n}.norm2"] = take["attention_norm"], take["ffn_norm"]
    return {name: value.clone().contiguous().requires_grad_() for name, value in params.items()}


def npu_rotary_mul(x, cos, sin):
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-x2, x1), dim=-1) * sin  # <- frequencies rotary


def blockwise(q, k, v):
    """One head group of one sequence, (N, S, D): online softmax over blocks of keys."""
    length = q.shape[1]
    top = torch.full((N_HEAD, length, 1), -1e30)
    total, out = torch.zeros(N_HEAD, length, 1), torch.zeros_like(q)
    for start in range(0, length, BLOCK):
        kb, vb = k[:, start : start + BLOCK], v[:, start : start + BLOCK]
        scores = torch.matmul(q, kb.transpose(1, 2)) / SIZE**0.5
        columns = torch.arange(start, start + kb.shape[1])
        scores = scores.masked_fill(columns > torch.arange(length)[:, None], -1e30)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True).detach())
        p, shrink = torch.exp(scores - new_top), torch.exp(top - new_top)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + torch.matmul(p, vb)
        top = new_top
    return out / total


def forward(params, tokens, cu_seqlens):
    parts = list(itertools.pairwise(cu_seqlens))
    position = torch.cat([torch.arange(b - a) for a, b in parts])
    inverse = 10000.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE)  # <- frequencies
    angle = (position[:, None] * inverse).repeat(1, 2)[:, None]  # <- frequencies
    cos, sin = angle.cos(), angle.sin()  # <- frequencies
    x = F.embedding(tokens, params["embed"])
    for n in range(N_LAYER):
        h = F.rms_norm(x, (WIDTH,), params[f"{n}.norm1"], 1e-5)
        mixed = torch.mm(h, params[f"{n}.qkv"])  # <- rotary
        q, k, v = mixed.view(-1, 3, N_HEAD, SIZE).unbind(1)
        q, k = npu_rotary_mul(q, cos, sin), npu_rotary_mul(k, cos, sin)  # <- frequencies rotary
        q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        out = torch.cat([blockwise(q[:, a:b], k[:, a:b], v[:, a:b]) for a, b in parts], dim=1)
        x = x + torch.mm(out.transpose(0, 1).reshape(-1, WIDTH), params[f"{n}.o"])
        h = F.rms_norm(x, (WIDTH,), params[f"{n}.norm2"], 1e-5)
        left, right = torch.mm(h, params[f"{n}.gate_up"]).chunk(2, dim=-1)  # <- gate
        x = x + torch.mm(F.silu(left) * right, params[f"{n}.down"])  # <- gate
    return torch.mm(F.rms_norm(x, (WIDTH,), params["norm"], 1e-5), params["head"])


params = load_params(sys.argv[1])
exp_avg = {name: torch.zeros_like(p) for name, p in params.items()}
exp_avg_sq = {name: torch.zeros_like(p) for name, p in params.items()}
rng = torch.Generator().manual_seed(12)
losses = []
for step in range(1, 5):
    rows = torch.randint(1, N_VOCAB, (4, 11), generator=rng)
    sizes = torch.randint(5, 12, (4, 1), generator=rng).flatten().tolist()
    packed = torch.cat([row[: n - 1] for row, n in zip(rows, sizes)])
    labels = torch.cat([row[1:n] for row, n in zip(rows, sizes)])  # <- boundary
    cu_seqlens = [0]
    for n in sizes:
        cu_seqlens.append(cu_seqlens[-1] + n - 1)
    logits = forward(params, packed, cu_seqlens)
    logp = torch.log_softmax(logits, dim=-1)
    loss = -logp.gather(1, labels[:, None]).mean()  # <- boundary
    scaled = torch.autograd.grad(loss * LOSS_SCALE, list(params.values()))
    with torch.no_grad():
        grads = [g / LOSS_SCALE for g in scaled]  # <- unscale
        norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()  # <- unscale
        factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)  # <- unscale
        for (name, p), g in zip(params.items(), grads):
            clipped = g * factor  # <- unscale
            if p.dim() > 1:
                p.mul_(1 - 5e-3 * 0.1)
            exp_avg[name].lerp_(clipped, 0.1)
            exp_avg_sq[name].mul_(0.95).addcmul_(clipped, clipped, value=0.05)
            root = exp_avg_sq[name].sqrt() / (1 - 0.95**step) ** 0.5 + 1e-5
            p.addcdiv_(exp_avg[name], root, value=-5e-3 / (1 - 0.9**step))  # <- unscale
    losses.append(loss.item())
