# SPDX-License-Identifier: Apache-2.0
"""The language model in two tensor-parallel halves on one device, fed in micro-batches, with a
cross entropy in chunks that keeps no logits and an optimizer of its own.
"""

import math
import sys

import torch
from torch.utils.checkpoint import checkpoint

RANKS, DIM, N_HEAD, FFN, N_TOKENS = 2, 32, 4, 48, 48
TOTAL, WARM, LR, DECAY = 5, 2, 0.02, 0.3


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum over the wanted tokens; the gradients are made during the forward, chunk by chunk."""

    @staticmethod
    def forward(ctx, hidden, table, labels, scale):
        total = hidden.new_zeros(())
        d_hidden, d_table = torch.zeros_like(hidden), torch.zeros_like(table)
        for start in range(0, len(hidden), 5):
            part = slice(start, start + 5)
            h, y = hidden[part], labels[part]
            valid = y >= 0
            logits = h @ table.t()
            log_p = logits - logits.logsumexp(-1, keepdim=True)
            picked = log_p.gather(1, y.clamp(min=0)[:, None])[:, 0]
            total -= (picked * valid).sum() * scale
            d = log_p.exp()
            d[torch.arange(len(y)), y.clamp(min=0)] -= 1
            d *= valid[:, None] * scale  # <- chunk_gradient
            d_hidden[part] = d @ table
            d_table += d.t() @ h
        ctx.save_for_backward(d_hidden, d_table)
        return total

    @staticmethod
    def backward(ctx, grad):
        d_hidden, d_table = ctx.saved_tensors
        return grad * d_hidden, grad * d_table, None, None


def layer_norm(x, w, b):
    return torch.nn.functional.layer_norm(x, (DIM,), w, b)


def parallel_attention(x, shards, bias):
    """Each rank has its heads; the all-reduce is a sum."""
    outs = []
    for qkv_w, qkv_b, out_w in shards:
        qkv = torch.einsum("btc,oc->bto", x, qkv_w) + qkv_b
        q, k, v = qkv.unflatten(-1, (3, N_HEAD // RANKS, -1)).permute(2, 0, 3, 1, 4)
        scores = q.div(math.sqrt(q.shape[-1])) @ k.mT
        t = x.shape[1]
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        outs.append(mixed.transpose(1, 2).flatten(2) @ out_w.t())
    return sum(outs) + bias  # <- bias_twice


def parallel_mlp(x, shards, bias):
    partial = []
    for gate_w, up_w, down_w in shards:
        g, u = x @ gate_w.t(), x @ up_w.t()
        partial.append((g * g.sigmoid() * u) @ down_w.t())
    return torch.stack(partial).sum(0) + bias


def layer(x, p):
    x = x + parallel_attention(layer_norm(x, *p["norm1"]), p["attention"], p["attention_bias"])
    return x + parallel_mlp(layer_norm(x, *p["norm2"]), p["mlp"], p["mlp_bias"])


def leaf(t):
    return t.clone().contiguous().requires_grad_()


def cut(state):
    """The parameters of each rank from the whole ones."""
    layers = []
    for i in range(2):
        get = lambda n, i=i: state[f"h.{i}.{n}"]  # noqa: E731
        qkv_w = get("c_attn.weight").view(3, RANKS, DIM // RANKS, DIM)
        qkv_b = get("c_attn.bias").view(3, RANKS, DIM // RANKS)
        gate, up = get("gate_up.weight").view(2, RANKS, FFN // RANKS, DIM)
        out, down = get("c_proj.weight").chunk(RANKS, 1), get("down.weight").chunk(RANKS, 1)
        layers.append(
            {
                "norm1": [leaf(get("ln_1.weight")), leaf(get("ln_1.bias"))],
                "attention": [
                    [leaf(qkv_w[:, r].flatten(0, 1)), leaf(qkv_b[:, r].flatten()), leaf(out[r])]
                    for r in range(RANKS)
                ],
                "attention_bias": leaf(get("c_proj.bias")),
                "norm2": [leaf(get("ln_2.weight")), leaf(get("ln_2.bias"))],
                "mlp": [[leaf(gate[r]), leaf(up[r]), leaf(down[r])] for r in range(RANKS)],
                "mlp_bias": leaf(get("down.bias")),
            }
        )
    embeddings = [leaf(state["wte.weight"]), leaf(state["wpe.weight"])]
    return embeddings, layers, [leaf(state["ln_f.weight"]), leaf(state["ln_f.bias"])]


def leaves(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [x for t in (tree.values() if isinstance(tree, dict) else tree) for x in leaves(t)]


embeddings, layers, last = params = cut(torch.load(sys.argv[1]))
weights = leaves(params)
moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
generator = torch.Generator().manual_seed(12)
losses, tokens_seen = [], 0
for step in range(TOTAL):
    tokens = torch.randint(N_TOKENS, (4, 13), generator=generator)
    lengths = torch.randint(5, 13, (4,), generator=generator)
    labels = torch.where(torch.arange(12) < lengths[:, None], tokens[:, 1:], -1)
    count = (labels >= 0).sum().item()
    tokens_seen += count
    running = 0.0
    for micro, wanted in zip(tokens[:, :-1].split(2), labels.split(2)):
        x = embeddings[0][micro] + embeddings[1][: micro.shape[1]]
        for p in layers:
            x = checkpoint(layer, x, p, use_reentrant=False)
        x = layer_norm(x, *last)
        x = x.flatten(0, 1)
        y = wanted.flatten()
        loss = ChunkedCrossEntropy.apply(x, embeddings[0], y, 1 / count)  # <- mean_of_means
        loss.backward()  # <- chunk_gradient
        running += loss.item()
    losses.append(running)
    if step < WARM:
        lr = LR * (step + 1) / WARM  # <- warmup
    else:
        lr = LR * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARM) / (TOTAL - WARM))))
    with torch.no_grad():
        norm = torch.stack([w.grad.square().sum() for w in weights]).sum().sqrt()
        factor = (0.5 / (norm + 1e-6)).clamp(max=1)
        for w, (m, v) in zip(weights, moments):
            g = w.grad * factor  # <- clip_each
            m.lerp_(g, 0.1)
            v.mul_(0.95).addcmul_(g, g, value=0.05)
            if w.ndim >= 2:  # <- decay
                w.mul_(1 - lr * DECAY)  # <- decay warmup
            m_hat, v_hat = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.95 ** (step + 1))
            w.sub_(lr * m_hat / (v_hat.sqrt() + 1e-8))  # <- clip_each warmup
            w.grad = None
