# SPDX-License-Identifier: Apache-2.0
"""Functional tabular transformer: one joined table, read-out query only in the last layer, foreach AdamW."""
import sys
from itertools import accumulate

import torch
from torch.func import grad_and_value

torch.set_num_threads(1)

SIZES, N_NUM, DIM, H, K = (7, 4, 11), 4, 12, 3, 3
OFFSET = torch.tensor([0, *accumulate(SIZES)][:-1])


def convert(sd):
    """Biases ride as a last input column of each matrix; all tokens live in one table with the CLS row last."""
    tok = {k.removeprefix("tokenizer."): v for k, v in sd.items() if k.startswith("tokenizer.")}
    out = {"table": torch.cat([tok[f"categorical.{i}.weight"] for i in range(len(SIZES))]),
           "slope": tok["numeric_weight"].clone(),
           "offset": torch.cat([tok["categorical_bias"], tok["numeric_bias"], tok["cls"][0]])}

    def affine(w, b):
        return torch.cat([sd[w], sd[b][:, None]], 1)

    for i in range(2):
        at = f"layers.{i}."
        qkv = affine(at + "attention.in_proj_weight", at + "attention.in_proj_bias")
        out[f"{i}/q"] = qkv[:DIM].clone()
        out[f"{i}/kv"] = qkv[DIM:].clone()
        out[f"{i}/o"] = affine(at + "attention.out_proj.weight", at + "attention.out_proj.bias")
        wide = affine(at + "ffn_in.weight", at + "ffn_in.bias")
        out[f"{i}/value"], out[f"{i}/gate"] = wide[:2 * DIM].clone(), wide[2 * DIM:].clone()
        out[f"{i}/down"] = affine(at + "ffn_out.weight", at + "ffn_out.bias")
        out[f"{i}/n2"] = torch.stack([sd[at + "ffn_norm.weight"], sd[at + "ffn_norm.bias"]])
    out["1/n1"] = torch.stack([sd["layers.1.attention_norm.weight"], sd["layers.1.attention_norm.bias"]])
    out["head/n"] = torch.stack([sd["head.0.weight"], sd["head.0.bias"]])
    out["head/w"] = affine("head.2.weight", "head.2.bias")
    return out


def dense(w, x):
    return torch.addmm(w[:, -1], x.reshape(-1, x.shape[-1]), w[:, :-1].T).view(*x.shape[:-1], -1)


def standard(p, x):
    return torch.nn.functional.layer_norm(x, (DIM,), p[0], p[1])


def block(p, i, x, last):
    h = standard(p["1/n1"], x) if i else x
    q_from, x = (h[:, -1:], x[:, -1:]) if last else (h, x)
    q = dense(p[f"{i}/q"], q_from).unflatten(-1, (H, -1)).transpose(1, 2)
    k, v = dense(p[f"{i}/kv"], h).unflatten(-1, (2, H, -1)).permute(2, 0, 3, 1, 4)
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    x = x + dense(p[f"{i}/o"], mixed.transpose(1, 2).flatten(2))
    h = standard(p[f"{i}/n2"], x)
    return x + dense(p[f"{i}/down"], dense(p[f"{i}/value"], h) * dense(p[f"{i}/gate"], h).clamp_min(0))


def objective(p, num, cat, soft):
    rows = torch.cat([p["table"][cat + OFFSET], num[..., None] * p["slope"],
                      num.new_zeros(len(num), 1, DIM)], 1) + p["offset"]
    x = block(p, 0, rows, last=False)
    x = block(p, 1, x, last=True)[:, 0]
    logp = dense(p["head/w"], standard(p["head/n"], x).relu()).log_softmax(-1)
    return -(soft * logp).sum(), logp


params = convert(torch.load(sys.argv[1]))
names = list(params)
decays = []                                            # elementwise decay masks, zero for the bias column
for name in names:
    mask = torch.zeros_like(params[name])
    if name.split("/")[-1] in ("q", "kv", "o", "value", "gate", "down", "w"):
        mask[:, :-1] = 0.1
    decays.append(mask)

gen = torch.Generator().manual_seed(1)
num = torch.randn(64, N_NUM, generator=gen)
cat = torch.stack([torch.randint(0, n, (64,), generator=gen) for n in SIZES], -1)
y = (num[:, 0] + cat[:, 1] > 1.5).int() + (cat[:, 2] > 6).int()
cost = torch.tensor([1.0, 0.7, 1.6])
# class weights and smoothing as soft targets, divided by the weight of the batch below
soft_targets = cost * (0.1 / K + 0.9 * torch.nn.functional.one_hot(y.long(), K))

LR, B1, B2 = 3e-3, 0.9, 0.999
first = [torch.zeros_like(params[n]) for n in names]
second = [torch.zeros_like(params[n]) for n in names]
step_fn = grad_and_value(objective, has_aux=True)
losses, accuracy, t = [], [], 0
for _ in range(2):
    perm = torch.randperm(64, generator=gen)
    for lo in range(0, 64, 24):
        idx = perm[lo:lo + 24].sort().values
        weight = cost[y[idx].long()].sum()
        grads, (loss, logp) = step_fn(params, num[idx], cat[idx], soft_targets[idx] / weight)
        accuracy.append((logp.argmax(-1) == y[idx]).float().mean().item())
        t += 1
        g, w = [grads[n] for n in names], [params[n] for n in names]
        torch._foreach_lerp_(first, g, 1 - B1)
        torch._foreach_mul_(second, B2)
        torch._foreach_addcmul_(second, g, g, 1 - B2)
        denom = torch._foreach_sqrt(torch._foreach_div(second, 1 - B2 ** t))
        torch._foreach_add_(denom, 1e-8)
        torch._foreach_addcmul_(w, decays, [x.clone() for x in w], -LR)
        torch._foreach_addcdiv_(w, first, denom, -LR / (1 - B1 ** t))
        losses.append(loss.item())

print(losses)
