# SPDX-License-Identifier: Apache-2.0
"""OLMo 2 as plain functions over stacked layer weights: complex rotary embedding, functional AdamW."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

V, D, L, H, KV, HD = 71, 32, 2, 4, 2, 8
EPS, THETA = 1e-5, 500000.0  # <- rope_theta
NORMS = ("q_gain", "k_gain", "attn_gain", "mlp_gain", "out_gain")


def interleave(rows):
    """Rows of each head from (first half, second half) to neighbouring pairs."""
    order = torch.arange(HD).view(2, HD // 2).T.reshape(-1)
    return rows.unflatten(0, (-1, HD))[:, order].flatten(0, 1)


def convert(path):
    """Checkpoint with a name per layer -> one tensor per kind, layers stacked in front."""
    sd = torch.load(path)

    def stack(name, how=lambda w: w):
        return torch.stack([how(sd[f"model.layers.{i}.{name}.weight"]) for i in range(L)])

    p = {
        "wte": sd["model.embed_tokens.weight"],
        "wq": stack("self_attn.q_proj", interleave).mT,
        "wkv": torch.cat([stack("self_attn.k_proj", interleave), stack("self_attn.v_proj")], 1).mT,
        "wo": stack("self_attn.o_proj").mT,
        "q_gain": stack("self_attn.q_norm", interleave),
        "k_gain": stack("self_attn.k_norm", interleave),
        "attn_gain": stack("post_attention_layernorm"),
        "wup": torch.cat([stack("mlp.gate_proj"), stack("mlp.up_proj")], 1).mT,
        "wdown": stack("mlp.down_proj").mT,
        "mlp_gain": stack("post_feedforward_layernorm"),
        "out_gain": sd["model.norm.weight"],
        "head": sd["lm_head.weight"].T,
    }
    return {k: v.contiguous().clone().requires_grad_() for k, v in p.items()}


def rms(x, gain):
    return gain * x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)


def phases(length):
    freq = 1.0 / THETA ** (torch.arange(0, HD, 2).float() / HD)  # <- rope_theta
    angle = torch.outer(torch.arange(length).float(), freq)
    return torch.polar(torch.ones_like(angle), angle)


def rotate(x, turn):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * turn).flatten(-2)


def forward(p, ids):
    b, t = ids.shape
    turn = phases(t)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    x = p["wte"][ids]
    for i in range(L):
        q = rms(x @ p["wq"][i], p["q_gain"][i])  # <- qk_norm_per_head
        k, v = (x @ p["wkv"][i]).chunk(2, -1)
        k = rms(k, p["k_gain"][i])  # <- qk_norm_per_head
        q = rotate(q.view(b, t, KV, H // KV, HD).permute(0, 2, 3, 1, 4), turn)
        k = rotate(k.view(b, t, KV, 1, HD).permute(0, 2, 3, 1, 4), turn)
        v = v.view(b, t, KV, 1, HD).permute(0, 2, 3, 1, 4)
        score = (q @ k.mT / math.sqrt(HD)).masked_fill(future, float("-inf"))
        mixed = (score.softmax(-1) @ v).permute(0, 3, 1, 2, 4).reshape(b, t, D)
        x = x + rms(mixed @ p["wo"][i], p["attn_gain"][i])
        gate, up = (x @ p["wup"][i]).chunk(2, -1)
        x = x + rms((F.silu(gate) * up) @ p["wdown"][i], p["mlp_gain"][i])
    return rms(x, p["out_gain"]) @ p["head"]


def objective(p, ids, prompt):
    logp = forward(p, ids)[:, :-1].log_softmax(-1)
    gold = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    answer = torch.arange(1, ids.shape[1]) >= prompt[:, None]  # <- prompt_in_loss
    return -(gold * answer).sum() / answer.sum()  # <- prompt_in_loss


def rate(k):
    """Learning rate of update k = 0, 1, ..."""
    floor = 0.1 + 0.45 * (1.0 + math.cos(math.pi * k / 10))
    return 8e-3 * floor * min(1.0, (k + 1) / 3)


@torch.no_grad()
def adamw(p, grads, moments, t, lr):
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
    shrink = min(1.0, 1.0 / (norm + 1e-6))
    for name, g in grads.items():
        m, v = moments[name]
        g = g * shrink
        m.mul_(0.9).add_(0.1 * g)
        v.mul_(0.95).add_(0.05 * g * g)
        step = (m / (1 - 0.9 ** t)) / ((v / (1 - 0.95 ** t)).sqrt() + 1e-8)
        wd = 0.0 if name in NORMS else 0.1  # <- decay_on_norms
        p[name].copy_(p[name] * (1 - lr * wd) - lr * step)  # <- decay_on_norms


params = convert(sys.argv[1])
moments = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in params.items()}
rng = torch.Generator().manual_seed(7)
tokens = torch.randint(0, V, (15, 12), generator=rng)
prompts = torch.randint(2, 7, (15,), generator=rng)

losses = []
for t in range(1, 6):
    rows = slice(3 * (t - 1), 3 * t)
    value = objective(params, tokens[rows], prompts[rows])
    grads = dict(zip(params, torch.autograd.grad(value, list(params.values()))))
    adamw(params, grads, moments, t, rate(t - 1))  # <- schedule_shift decay_on_norms
    losses.append(value.item())

print(losses)
