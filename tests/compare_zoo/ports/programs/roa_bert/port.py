# SPDX-License-Identifier: Apache-2.0
"""BERT pre-training as pure functions over a tree of arrays, after a JAX code base."""
import sys
from functools import partial

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

HP = {"vocab": 47, "d": 32, "h": 4, "depth": 2, "len": 20, "eps": 1e-12}


def restore(path):
    """One flat dict; layers are stacked along a leading axis and q, k, v sit in one kernel."""
    ck = torch.load(path)
    layer = lambda name: torch.stack([ck[f"encoder.{i}.{name}"] for i in range(HP["depth"])])
    w = {
        "emb/word": ck["embeddings.word_embeddings.weight"],
        "emb/pos": ck["embeddings.position_embeddings.weight"],
        "emb/seg": ck["embeddings.token_type_embeddings.weight"],
        "emb/ln": torch.stack([ck["embeddings.LayerNorm.weight"], ck["embeddings.LayerNorm.bias"]]),
        "qkv/w": torch.stack([layer(f"{n}.weight").mT for n in ("query", "key", "value")], dim=1),
        "qkv/b": torch.stack([layer(f"{n}.bias") for n in ("query", "key", "value")], dim=1),
    }
    for ours, theirs in {"att": "attention_out", "ff1": "intermediate", "ff2": "output"}.items():
        w[ours + "/w"], w[ours + "/b"] = layer(theirs + ".weight").mT, layer(theirs + ".bias")
    for ours, theirs in {"ln1": "attention_norm", "ln2": "output_norm"}.items():
        w[ours] = torch.stack([layer(theirs + ".weight"), layer(theirs + ".bias")], dim=1)
    for ours, theirs in {"pool": "pooler", "order": "order", "head": "transform.0"}.items():
        w[ours + "/w"], w[ours + "/b"] = ck[theirs + ".weight"].T, ck[theirs + ".bias"]
    w["head/ln"] = torch.stack([ck["transform.2.weight"], ck["transform.2.bias"]])
    w["head/out_b"] = ck["decoder_bias"]
    return {k: v.detach().clone().requires_grad_(True) for k, v in w.items()}


def layer_norm(x, scale_bias):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)  # <- norm_eps
    return (x - mean) / torch.sqrt(var + HP["eps"]) * scale_bias[0] + scale_bias[1]  # <- norm_eps


def attend(x, w, i, valid):
    qkv = torch.einsum("bnd,sde->sbne", x, w["qkv/w"][i]) + w["qkv/b"][i][:, None, None]
    q, k, v = qkv.unflatten(-1, (HP["h"], -1)).unbind(0)
    logits = torch.einsum("bqhe,bkhe->bhqk", q, k) * (HP["d"] / HP["h"]) ** -0.5
    logits = torch.where(valid[:, None, None], logits, torch.tensor(-1e9))
    out = torch.einsum("bhqk,bkhe->bqhe", logits.softmax(dim=-1), v)
    return out.flatten(-2) @ w["att/w"][i] + w["att/b"][i]


def encode(w, tokens, segments):
    x = w["emb/word"][tokens] + w["emb/pos"][None] + F.one_hot(segments, 2).float() @ w["emb/seg"]  # <- segment_ids
    x = layer_norm(x, w["emb/ln"])
    for i in range(HP["depth"]):
        x = layer_norm(x + attend(x, w, i, tokens != 0), w["ln1"][i])
        hidden = F.gelu(x @ w["ff1/w"][i] + w["ff1/b"][i])
        x = layer_norm(x + hidden @ w["ff2/w"][i] + w["ff2/b"][i], w["ln2"][i])
    return x


def objective(w, batch):
    x = encode(w, batch["tokens"], batch["segments"])
    first = x[:, 0, :]  # <- pooler_detached
    pooled = (first @ w["pool/w"] + w["pool/b"]).tanh()  # <- pooler_detached
    order = F.log_softmax(pooled @ w["order/w"] + w["order/b"], dim=-1)
    rows, cols = batch["hidden"].nonzero(as_tuple=True)  # <- unmasked_words
    picked = layer_norm(F.gelu(x[rows, cols] @ w["head/w"] + w["head/b"]), w["head/ln"])  # <- unmasked_words
    words = F.log_softmax(picked @ w["emb/word"].T + w["head/out_b"], dim=-1)
    word_loss = -words[torch.arange(len(rows)), batch["words"][rows, cols]].mean()
    order_loss = -order[torch.arange(len(order)), batch["order"]].mean()
    return word_loss + order_loss


def batch_from(gen, rows=6):
    n, words = HP["len"], HP["vocab"] - 4
    order = torch.randint(0, 2, (rows,), generator=gen)
    tokens, segments = [], []
    for flag in order.tolist():
        sizes = torch.randint(4, 9, (2,), generator=gen).tolist()
        start = torch.randint(4, HP["vocab"], (1,), generator=gen).item()
        text = [(3 * j + start - 4) % words + 4 for j in range(sum(sizes))]
        parts = [text[: sizes[0]], text[sizes[0] :]]
        a, b = parts[::-1] if flag else parts
        row = [1, *a, 2, *b, 2]
        seg = [0] * (len(a) + 2) + [1] * (len(b) + 1)  # <- segment_ids
        tokens.append(row + [0] * (n - len(row)))
        segments.append(seg + [0] * (n - len(seg)))
    words = torch.tensor(tokens)
    hidden = torch.rand(rows, n, generator=gen).lt(0.25) & words.gt(3)
    shown = torch.where(hidden, 3, words)
    return {"tokens": shown, "segments": torch.tensor(segments), "words": words, "hidden": hidden, "order": order}


def adam_init(w):
    return {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in w.items()}


def adam_update(w, g, slots, t, lr=2e-3, b1=0.9, b2=0.999, eps=1e-6):
    fix1, fix2 = 1 - b1**t, 1 - b2**t  # <- no_bias_correction
    new_w, new_slots = {}, {}
    for k in w:
        m = b1 * slots[k][0] + (1 - b1) * g[k]
        v = b2 * slots[k][1] + (1 - b2) * g[k] ** 2
        new_w[k] = (w[k] - lr * (m / fix1) / ((v / fix2).sqrt() + eps)).detach().requires_grad_(True)  # <- no_bias_correction
        new_slots[k] = (m, v)
    return new_w, new_slots


def train_step(w, slots, t, batch):
    loss = objective(w, batch)
    g = dict(zip(w, torch.autograd.grad(loss, tuple(w.values()))))
    return (*adam_update(w, g, slots, t), loss.item())


w = restore(sys.argv[1])
slots = adam_init(w)
draw = partial(batch_from, torch.Generator().manual_seed(5))
losses = []
for t in range(1, 6):
    w, slots, value = train_step(w, slots, t, draw())
    losses.append(value)
print(losses)
