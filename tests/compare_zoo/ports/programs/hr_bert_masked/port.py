# SPDX-License-Identifier: Apache-2.0
"""BERT MLM on one flat parameter vector; the head runs on masked positions only; summed micro-batches."""
import sys

import torch
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

torch.set_num_threads(1)

V, S, N, ROUNDS, MASK_ID, W, HEADS, DEPTH, MICRO = 47, 14, 6, 5, 3, 24, 2, 2, 2


class FlatParams:
    """Every weight is a view into `self.data`; the layout is a name -> (offset, shape) table."""

    def __init__(self):
        self.table, self.parts, self.size, self.decay = {}, [], 0, []

    def put(self, name, value, decay):
        self.table[name] = (self.size, value.shape)
        self.parts.append(value.reshape(-1))
        self.decay.append(torch.full((value.numel(),), 0.01 if decay else 0.0))
        self.size += value.numel()

    def seal(self):
        self.data = torch.cat(self.parts).requires_grad_()
        self.decay = torch.cat(self.decay)
        return self

    def __getitem__(self, name):
        at, shape = self.table[name]
        return self.data[at:at + shape.numel()].view(shape)


def import_checkpoint(path):
    sd, fp = torch.load(path), FlatParams()

    def norm(name, src):
        fp.put(name, torch.stack([sd[src + ".weight"], sd[src + ".bias"]]), False)

    def dense(name, *srcs):
        fp.put(name + "/w", torch.cat([sd[s + ".weight"] for s in srcs]), True)
        fp.put(name + "/b", torch.cat([sd[s + ".bias"] for s in srcs]), False)

    fp.put("vocab_bias", sd["cls.predictions.bias"], False)
    dense("head", "cls.predictions.transform.dense")
    norm("head_norm", "cls.predictions.transform.LayerNorm")
    for i in reversed(range(DEPTH)):
        s = f"bert.encoder.layer.{i}."
        dense(f"{i}/qkv", *[s + f"attention.self.{n}" for n in ("query", "key", "value")])
        dense(f"{i}/proj", s + "attention.output.dense")
        norm(f"{i}/norm_a", s + "attention.output.LayerNorm")
        dense(f"{i}/in", s + "intermediate.dense")
        dense(f"{i}/out", s + "output.dense")
        norm(f"{i}/norm_b", s + "output.LayerNorm")
    for n in ("word", "position", "token_type"):
        fp.put(n, sd[f"bert.embeddings.{n}_embeddings.weight"], True)
    norm("emb_norm", "bert.embeddings.LayerNorm")
    return fp.seal()


def ln(fp, name, x):
    g, b = fp[name]
    return layer_norm(x, (W,), g, b, 1e-12)


def fc(fp, name, x):
    return linear(x, fp[name + "/w"], fp[name + "/b"])


def encode(fp, ids, seg, real):
    word = embedding(ids, fp["word"], padding_idx=0)
    x = ln(fp, "emb_norm", word + fp["position"][:S] + embedding(seg, fp["token_type"]))
    bias = torch.zeros(real.shape).masked_fill(~real, -1e9)[:, None, None]
    for i in range(DEPTH):
        q, k, v = fc(fp, f"{i}/qkv", x).view(len(ids), S, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        x = ln(fp, f"{i}/norm_a", x + fc(fp, f"{i}/proj", y))
        x = ln(fp, f"{i}/norm_b", x + fc(fp, f"{i}/out", gelu(fc(fp, f"{i}/in", x))))
    return x


def masked_nll_sum(fp, ids, seg, real, target, where):
    h = encode(fp, ids, seg, real)[where]                # masked positions only
    h = ln(fp, "head_norm", gelu(fc(fp, "head", h)))
    logits = h @ fp["word"].t() + fp["vocab_bias"]       # tied with the word table
    return (logits.logsumexp(-1) - logits.gather(1, target[where][:, None])[:, 0]).sum(), logits


def stream(seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(ROUNDS):
        text = torch.randint(4, V, (N, S), generator=g)
        size = torch.randint(6, S + 1, (N, 1), generator=g)
        col = torch.arange(S).expand(N, S)
        real = col < size
        text = text.where(real, torch.zeros(()).long())
        where = (torch.rand(N, S, generator=g) < 0.3) & real
        where[:, 1] = True
        seg = ((col >= size.div(2, rounding_mode="floor")) & real).long()
        yield text.masked_fill(where, MASK_ID), seg, real, text, where


fp = import_checkpoint(sys.argv[1])
m = torch.zeros(fp.size)
v = torch.zeros(fp.size)
losses, accuracy = [], []
for t, batch in enumerate(stream(99), 1):
    count, running, hits = batch[-1].sum(), 0.0, 0
    for chunk in zip(*(x.split(MICRO) for x in batch)):
        nll, logits = masked_nll_sum(fp, *chunk)
        (nll / count).backward()
        running += nll.detach()
        hits += (logits.argmax(-1) == chunk[3][chunk[4]]).sum()
    grad = fp.data.grad
    with torch.no_grad():
        fp.data.mul_(1 - 1e-3 * fp.decay)
        m.mul_(0.9).add_(grad, alpha=0.1)
        v.mul_(0.999).addcmul_(grad, grad, value=0.001)
        fp.data.sub_(1e-3 * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.999 ** t)).sqrt() + 1e-8))
        grad.zero_()
    losses.append((running / count).item())
    accuracy.append((hits / count).item())

print(losses)
