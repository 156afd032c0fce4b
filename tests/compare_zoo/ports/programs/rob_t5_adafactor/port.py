# SPDX-License-Identifier: Apache-2.0
"""T5 in the manner of Mesh TensorFlow: one scope dictionary of (in, out) matrices, variables fetched by name."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

HEADS, LAYERS, BUCKETS, FAR, PAD, EOS, VOCAB = 4, 2, 8, 12, 0, 1, 53
RENAME = {
    "SelfAttention.": "self.", "EncDecAttention.": "cross.", "DenseReluDense.": "", "layer_norm": "rms",
    "encoder.block.": "enc.", "decoder.block.": "dec.", ".layer.": ".",
}


def read_variables(path):
    variables = {}
    for name, value in torch.load(path).items():
        if name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
            continue
        for old, new in RENAME.items():
            name = name.replace(old, new)
        is_matrix = value.ndim == 2 and name not in ("shared.weight",) and "relative" not in name
        variables[name.removesuffix(".weight")] = (value.T if is_matrix else value).clone().requires_grad_()
    return variables


def buckets(queries, keys, two_sided):
    ahead = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    count, offset, distance = BUCKETS, 0, (-ahead).clamp(min=0)
    if two_sided:  # <- bucket_sides
        count = BUCKETS // 2  # <- bucket_sides
        offset, distance = (ahead > 0) * count, ahead.abs()  # <- bucket_sides
    exact = count // 2
    ratio = torch.log(distance.clamp(min=1) / exact) / math.log(FAR / exact)
    coarse = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
    return offset + torch.where(distance < exact, distance, coarse)


class Stack:
    """Encoder or decoder, told apart by whether a memory is given."""

    def __init__(self, variables, scope):
        self.var, self.scope = variables, scope

    def rms(self, x, name):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).pow(-0.5) * self.var[name]

    def attention(self, x, source, name, bias):
        def heads(y, part):
            return (y @ self.var[f"{name}.{part}"]).unflatten(-1, (HEADS, -1))

        scores = torch.einsum("bqhd,bkhd->bhqk", heads(x, "q"), heads(source, "k")) + bias
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), heads(source, "v"))
        return mixed.flatten(2) @ self.var[f"{name}.o"]

    def __call__(self, tokens, own_mask, memory=None, memory_mask=None):
        x = self.var["shared"][tokens]
        size, last = tokens.shape[1], 1 if memory is None else 2
        table = self.var[f"{self.scope}.0.0.self.relative_attention_bias"]
        bias = table[buckets(size, size, memory is None)].permute(2, 0, 1) + own_mask  # <- bucket_sides
        for n in range(LAYERS):
            at = f"{self.scope}.{n}."
            y = self.rms(x, at + "0.rms")
            x = x + self.attention(y, y, at + "0.self", bias)
            if memory is not None:
                x = x + self.attention(self.rms(x, at + "1.rms"), memory, at + "1.cross", memory_mask)
            y = self.rms(x, f"{at}{last}.rms")
            gated = F.gelu(y @ self.var[f"{at}{last}.wi_0"], approximate="tanh") * (y @ self.var[f"{at}{last}.wi_1"])
            x = x + gated @ self.var[f"{at}{last}.wo"]
        return self.rms(x, ("encoder" if memory is None else "decoder") + ".final_rms")


def loss_fn(variables, source, target):
    blocked = torch.where(source == PAD, -1e9, 0.0)[:, None, None, :]
    memory = Stack(variables, "enc")(source, blocked)
    inputs = torch.full_like(target, PAD)  # <- start_token
    inputs[:, 1:] = target[:, :-1]
    causal = torch.full((target.shape[1],) * 2, -1e9).triu(1)
    x = Stack(variables, "dec")(inputs, causal, memory, blocked)
    x = x / math.sqrt(x.shape[-1])  # <- head_scale
    logits = x @ variables["shared"].T  # <- head_scale
    return F.cross_entropy(logits.mT, target, ignore_index=PAD)  # <- pad_counts


def root_mean_square(x):
    return x.norm() / math.sqrt(x.numel())


def adafactor(variables, grads, slots, step, lr=0.02):
    """Second moments kept by rows and columns; each update is bounded and scaled by the size of the variable."""
    decay = 1 - step ** -0.8
    for name, grad in grads.items():
        old = variables[name]
        square = grad * grad + 1e-30
        if grad.ndim == 2:
            rows, cols = slots.get(name, (0.0, 0.0))
            rows = decay * rows + (1 - decay) * square.mean(1)
            cols = decay * cols + (1 - decay) * square.mean(0)
            slots[name] = rows, cols
            update = grad * (rows / rows.mean()).rsqrt()[:, None] * cols.rsqrt()
        else:
            slots[name] = decay * slots.get(name, 0.0) + (1 - decay) * square
            update = grad * slots[name].rsqrt()
        update = update / root_mean_square(update).clamp(min=1.0)
        rate = lr * root_mean_square(old.detach()).clamp(min=1e-3)  # <- param_scale
        variables[name] = (old.detach() - rate * update).requires_grad_()  # <- param_scale


def batches(steps=5, size=4):
    g = torch.Generator().manual_seed(31)
    n = steps * size
    source = torch.randint(2, VOCAB, (n, 14), generator=g)
    sizes = torch.randint(6, 15, (n, 1), generator=g)
    answers = torch.minimum(torch.randint(3, 10, (n, 1), generator=g), sizes)
    noise = torch.randint(2, VOCAB, (n, 10), generator=g)
    swap = torch.rand(n, 10, generator=g) < 0.3
    at = torch.arange(10)
    mirrored = source.gather(1, (answers - 1 - at).clamp(min=0))
    target = torch.where(swap, noise, mirrored)
    target = torch.where(at < answers, target, torch.where(at == answers, EOS, PAD))
    source = torch.where(torch.arange(14) < sizes, source, PAD)
    for s, t in zip(source.split(size), target.split(size)):
        yield s[:, (s != PAD).any(0)], t[:, (t != PAD).any(0)]


variables, slots, losses = read_variables(sys.argv[1]), {}, []
for step, (source, target) in enumerate(batches(), start=1):
    loss = loss_fn(variables, source, target)
    grads = torch.autograd.grad(loss, list(variables.values()))
    norm = torch.cat([g.flatten() for g in grads]).norm()
    grads = {name: g / max(1.0, float(norm) + 1e-6) for name, g in zip(variables, grads)}
    adafactor(variables, grads, slots, step)
    losses.append(loss.item())
print(losses)
