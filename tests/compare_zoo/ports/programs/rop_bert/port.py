# SPDX-License-Identifier: Apache-2.0
"""Masked LM with a stacked, functional encoder; all batches are padded to one shape beforehand."""
import sys
from typing import NamedTuple

import torch
from torch.func import grad_and_value
from torch.nn.functional import gelu, layer_norm, one_hot

torch.set_num_threads(1)

D, H, L, V, WIDEST, STEPS, ROWS = 32, 4, 2, 45, 21, 5, 4


class Batch(NamedTuple):
    ids: torch.Tensor
    segment: torch.Tensor
    real: torch.Tensor
    answer: torch.Tensor
    weight: torch.Tensor


def build_batches(seed=11):
    g = torch.Generator().manual_seed(seed)
    shape = (STEPS * ROWS, WIDEST)
    ids, segment = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    real, answer, weight = torch.zeros(shape), torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    for r in range(shape[0]):
        na, nb = torch.randint(3, 10, (2,), generator=g).tolist()
        n = na + nb + 3
        ids[r, 0], ids[r, na + 1], ids[r, n - 1] = 1, 2, 2
        ids[r, 1 : na + 1] = torch.randint(4, V, (na,), generator=g)
        ids[r, na + 2 : n - 1] = torch.randint(4, V, (nb,), generator=g)
        segment[r, na + 2 : n] = 1
        real[r, :n] = 1
        answer[r] = ids[r]
        hide = (torch.rand(n, generator=g) < 0.3) & (ids[r, :n] >= 4)
        weight[r, :n] = hide.float()
        ids[r, :n][hide] = 3
    return Batch(*(t.view(STEPS, ROWS, WIDEST) for t in (ids, segment, real, answer, weight)))


def convert(path):
    s = torch.load(path)

    def stack(suffix):
        return torch.stack([s[f"layer.{i}.{suffix}"] for i in range(L)])

    def fused(kind):
        return torch.cat([stack(f"{n}.{kind}") for n in ("query", "key", "value")], dim=1)

    return {
        "word": s["embeddings.word_embeddings.weight"],
        "place": s["embeddings.position_embeddings.weight"],
        "kind": s["embeddings.token_type_embeddings.weight"],
        "ln0": torch.stack([s["embeddings.LayerNorm.weight"], s["embeddings.LayerNorm.bias"]]),
        "w_qkv": fused("weight").mT.contiguous(), "b_qkv": fused("bias"),
        "w_o": stack("attn_out.weight").mT.contiguous(), "b_o": stack("attn_out.bias"),
        "ln1": torch.stack([stack("attn_norm.weight"), stack("attn_norm.bias")], 1),
        "w_in": stack("intermediate.weight").mT.contiguous(), "b_in": stack("intermediate.bias"),
        "w_out": stack("output.weight").mT.contiguous(), "b_out": stack("output.bias"),
        "ln2": torch.stack([stack("out_norm.weight"), stack("out_norm.bias")], 1),
        "w_head": s["transform.weight"].T.contiguous(), "b_head": s["transform.bias"],
        "ln3": torch.stack([s["transform_norm.weight"], s["transform_norm.bias"]]),
        "b_vocab": s["decoder_bias"],
    }


def ln(x, gb):
    return layer_norm(x, (D,), gb[0], gb[1], 1e-12)


def encode(p, batch):
    kinds = one_hot(batch.segment, 2).float() @ p["kind"]  # <- segments_dropped
    x = ln(p["word"][batch.ids] + p["place"][: batch.ids.shape[-1]] + kinds, p["ln0"])  # <- segments_dropped
    block = ((batch.real - 1) * 1e9)[:, None, None, :]  # <- mask_on_queries
    for i in range(L):
        qkv = (x @ p["w_qkv"][i] + p["b_qkv"][i]).unflatten(-1, (3, H, D // H))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        att = torch.softmax((q * (D // H) ** -0.5) @ k.mT + block, -1)  # <- mask_on_queries
        mixed = (att @ v).transpose(1, 2).flatten(-2)
        x = ln(x + mixed @ p["w_o"][i] + p["b_o"][i], p["ln1"][i])  # <- norm_before_add
        inner = gelu(x @ p["w_in"][i] + p["b_in"][i])
        x = ln(x + inner @ p["w_out"][i] + p["b_out"][i], p["ln2"][i])  # <- norm_before_add
    return x


def objective(p, batch):
    h = ln(gelu(encode(p, batch) @ p["w_head"] + p["b_head"]), p["ln3"])
    logp = torch.log_softmax(h @ p["word"].T + p["b_vocab"], -1)
    nll = -(logp * one_hot(batch.answer, V)).sum(-1)
    return (nll * batch.weight).sum() / batch.weight.sum()  # <- mean_over_tokens


def rate(step, peak=4e-3, warm=1, end=6):
    if step < warm:
        return peak * step / warm
    return peak * (end - step) / (end - warm)  # <- schedule_span


def init(p):
    return {k: (torch.zeros_like(t), torch.zeros_like(t)) for k, t in p.items()}


def update(p, grads, state, step, lr):
    new_p, new_s = {}, {}
    for k, w in p.items():
        m = torch.lerp(state[k][0], grads[k], 0.1)
        v = torch.lerp(state[k][1], grads[k].square(), 0.001)
        root = (v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
        decay = 0.01 if k.startswith("w") or k in ("place", "kind") else 0.0
        new_p[k] = w * (1 - lr * decay) - lr * m / (1 - 0.9 ** (step + 1)) / root  # <- schedule_span
        new_s[k] = (m, v)
    return new_p, new_s


data = build_batches()
params = convert(sys.argv[1])
state = init(params)
losses = []
for step in range(STEPS):
    grads, value = grad_and_value(objective)(params, Batch(*(t[step] for t in data)))  # <- mean_over_tokens
    params, state = update(params, grads, state, step, rate(step))  # <- schedule_span
    losses.append(float(value))
print(losses)
