# SPDX-License-Identifier: Apache-2.0
"""The Transformer-XL on a dictionary of parameters: batch first, a table of distances by gather
instead of the shift, a memory of fixed size with a mask, scaled_dot_product_attention, explicit
gradients and an AdaGrad of its own.
"""

import sys

import torch
import torch.nn.functional as F

V, D, N, H, LAYERS, T, M, B = 32, 24, 3, 8, 2, 6, 8, 4


def load(path):
    old = torch.load(path)
    p = {"emb": old["word_emb.weight"], "out_b": old["out_bias"]}
    p["u"] = old["r_w_bias"].reshape(1, N, 1, H)
    p["v"] = old["r_r_bias"].reshape(1, N, 1, H)  # <- r_bias
    for i in range(LAYERS):
        a, f = f"attn.{i}.", f"ff.{i}."
        wq, wk, wv = old[a + "qkv_net.weight"].split(D)
        p[f"{i}.wq"], p[f"{i}.wkv"] = wq.t(), torch.cat((wk, wv)).t()
        p[f"{i}.wr"] = old[a + "r_net.weight"].view(N, H, D)
        p[f"{i}.wo"] = old[a + "o_net.weight"].t()
        p[f"{i}.g1"], p[f"{i}.b1"] = old[a + "layer_norm.weight"], old[a + "layer_norm.bias"]
        p[f"{i}.g2"], p[f"{i}.b2"] = old[f + "layer_norm.weight"], old[f + "layer_norm.bias"]
        for new, name in (("in", "CoreNet.0"), ("out", "CoreNet.2")):
            p[f"{i}.w_{new}"] = old[f + name + ".weight"].t()
            p[f"{i}.c_{new}"] = old[f + name + ".bias"]
    return {k: t.clone().contiguous().requires_grad_() for k, t in p.items()}


def sinusoids():
    freq = torch.exp2(torch.arange(0, D, 2) / D * -torch.log2(torch.tensor(10000.0)))
    angle = torch.arange(M + T).float()[:, None] * freq
    return torch.hstack((torch.sin(angle), torch.cos(angle)))


SINUSOIDS = sinusoids()
DISTANCE = torch.arange(T)[:, None] + M - torch.arange(M + T)[None]  # <- distance
VISIBLE_AHEAD = DISTANCE >= 0


def heads(x):
    return x.unflatten(-1, (N, H)).transpose(1, 2)


def attention(p, i, x, memory, allowed):
    every = torch.cat((memory, x), 1)
    q = heads(x @ p[f"{i}.wq"])
    k, v = (heads(part) for part in (every @ p[f"{i}.wkv"]).tensor_split(2, -1))
    table = torch.einsum("sd,nhd->nhs", SINUSOIDS, p[f"{i}.wr"])
    by_distance = (q + p["v"]) @ table  # <- r_bias
    index = DISTANCE.clamp(min=0).expand(B, N, T, M + T)  # <- distance
    bias = by_distance.gather(-1, index) / H**0.5  # <- r_bias distance
    bias = bias.masked_fill(~allowed, float("-inf"))
    y = F.scaled_dot_product_attention(q + p["u"], k, v, attn_mask=bias)
    return y.transpose(1, 2).flatten(2) @ p[f"{i}.wo"]


def forward(p, tokens, memory, filled):
    there = torch.arange(M + T) >= M - filled
    allowed = VISIBLE_AHEAD & there
    x = p["emb"][tokens] * D**0.5
    kept = []
    for i in range(LAYERS):
        before = x
        y = attention(p, i, x, memory[i], allowed)  # <- late_memory
        x = F.layer_norm(x + y, (D,), p[f"{i}.g1"], p[f"{i}.b1"])
        y = torch.relu(torch.addmm(p[f"{i}.c_in"], x.flatten(0, 1), p[f"{i}.w_in"]))
        y = torch.addmm(p[f"{i}.c_out"], y, p[f"{i}.w_out"]).view_as(x)
        x = F.layer_norm(x + y, (D,), p[f"{i}.g2"], p[f"{i}.b2"])
        kept.append(torch.cat((memory[i], before.detach()), 1)[:, -M:])  # <- late_memory
    return x @ p["emb"].t() + p["out_b"], torch.stack(kept)


def clipped(grads, most):
    total = torch.sqrt(sum(g.square().sum() for g in grads))
    return [g * torch.clamp(most / (total + 1e-6), max=1.0) for g in grads]  # <- clip


params = load(sys.argv[1])
sums = {k: torch.zeros_like(t) for k, t in params.items()}  # <- accumulator
rng = torch.Generator().manual_seed(12)
text = torch.randint(0, V, (4 * T + 1, B), generator=rng).t().contiguous()
memory, losses = torch.zeros(LAYERS, B, M, D), []
for step in range(4):
    inputs, labels = (text[:, step * T + o : (step + 1) * T + o] for o in (0, 1))
    logits, memory = forward(params, inputs, memory, min(M, step * T))
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    grads = clipped(torch.autograd.grad(loss, list(params.values())), 0.25)  # <- clip
    with torch.no_grad():
        for (name, value), g in zip(params.items(), grads):
            sums[name].addcmul_(g, g)  # <- accumulator
            value.sub_(0.02 * g / (sums[name].sqrt() + 1e-3))  # <- accumulator clip
    losses.append(loss.item())
