# SPDX-License-Identifier: Apache-2.0
"""T5 1.1 written after its first code: kernels of (in, out), logical names of axes in einsums, a
decode loop that keeps keys and values in lists.
"""

import math
import sys

import torch
import torch.nn.functional as F

VOCAB, EMB, HEADS, KV, MLP, LAYERS = 37, 32, 4, 8, 40, 2
BUCKETS, DISTANCE, EPS, START, STEPS = 8, 12, 1e-6, 0, 7


def init_params(generator):
    def normal(*shape, scale=0.35):
        return scale * torch.randn(shape, generator=generator)

    def scale_of():
        return 1 + 0.3 * torch.randn(EMB, generator=generator)

    def attention():
        return {
            "query": normal(EMB, HEADS, KV),
            "key": normal(EMB, HEADS, KV),
            "value": normal(EMB, HEADS, KV),
            "out": normal(HEADS, KV, EMB),
        }

    def mlp():
        return {"wi_0": normal(EMB, MLP), "wi_1": normal(EMB, MLP), "wo": normal(MLP, EMB)}

    params = {"token_embedder": normal(VOCAB, EMB, scale=1.0)}
    for side in ("encoder", "decoder"):
        tree = {"relpos_bias": normal(HEADS, BUCKETS, scale=1.0)}
        for i in range(LAYERS):
            tree[f"layers_{i}"] = {
                "attention": attention(),
                "pre_attention_layer_norm": scale_of(),
                "mlp": mlp(),
                "pre_mlp_layer_norm": scale_of(),
            }
            if side == "decoder":
                tree[f"layers_{i}"]["cross"] = attention()
                tree[f"layers_{i}"]["pre_cross_attention_layer_norm"] = scale_of()
        tree["final_norm"] = scale_of()
        params[side] = tree
    return params


def layer_norm(x, scale):
    return x * torch.rsqrt(torch.mean(torch.square(x), -1, keepdim=True) + EPS) * scale


def relative_bucket(n, bidirectional):
    """Bucket of key position minus query position."""
    count, offset = BUCKETS, torch.zeros_like(n)
    if bidirectional:
        count //= 2
        offset = (n > 0).long() * count
        n = n.abs()
    else:
        n = (-n).clamp(min=0)
    exact = count // 2
    far = torch.log(n.float() / exact + 1e-9) / math.log(DISTANCE / exact)  # <- distance
    far = (exact + (far * (count - exact)).long()).clamp(max=count - 1)
    return offset + torch.where(n < exact, n, far)


def bias_of(table, queries, keys, bidirectional):
    bucket = relative_bucket(keys[None] - queries[:, None], bidirectional)  # <- distance
    return table[:, bucket][None]  # <- biases


def attend(p, q, k, v, bias):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) + bias
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("bqhd,hde->bqe", torch.einsum("bhqk,bkhd->bqhd", weights, v), p["out"])


def project(x, kernel):
    return torch.einsum("bte,ehd->bthd", x, kernel)  # <- transposed


def mlp(p, x):
    gate = F.gelu(x @ p["wi_0"], approximate="tanh")  # <- gate
    return (gate * (x @ p["wi_1"])) @ p["wo"]  # <- gate


def encode(params, ids, mask):
    p = params["encoder"]
    x = params["token_embedder"][ids]
    at = torch.arange(ids.shape[1])
    bias = bias_of(p["relpos_bias"], at, at, bidirectional=True)
    bias = bias + torch.where(mask, 0.0, -1e10)[:, None, None, :]  # <- padding
    for i in range(LAYERS):
        layer = p[f"layers_{i}"]
        h, a = layer_norm(x, layer["pre_attention_layer_norm"]), layer["attention"]
        q, k, v = project(h, a["query"]), project(h, a["key"]), project(h, a["value"])
        x = x + attend(a, q, k, v, bias)
        x = x + mlp(layer["mlp"], layer_norm(x, layer["pre_mlp_layer_norm"]))
    return layer_norm(x, p["final_norm"])


def decode_step(params, token, at, state, memory_bias):
    p = params["decoder"]
    x = params["token_embedder"][token][:, None]
    bias = bias_of(p["relpos_bias"], torch.tensor([at]), torch.arange(at + 1), bidirectional=False)
    for i in range(LAYERS):
        layer, kept = p[f"layers_{i}"], state[i]
        h, a = layer_norm(x, layer["pre_attention_layer_norm"]), layer["attention"]
        kept["k"].append(project(h, a["key"]))
        kept["v"].append(project(h, a["value"]))
        keys, values = torch.cat(kept["k"], 1), torch.cat(kept["v"], 1)
        x = x + attend(a, project(h, a["query"]), keys, values, bias)
        h, a = layer_norm(x, layer["pre_cross_attention_layer_norm"]), layer["cross"]
        x = x + attend(a, project(h, a["query"]), kept["mk"], kept["mv"], memory_bias)
        x = x + mlp(layer["mlp"], layer_norm(x, layer["pre_mlp_layer_norm"]))
    x = layer_norm(x, p["final_norm"])[:, 0] / math.sqrt(EMB)  # <- scaled
    return x @ params["token_embedder"].T  # <- scaled


params = init_params(torch.Generator().manual_seed(14))
torch.save(params, sys.argv[1])
ids = torch.tensor([[5, 9, 33, 12, 7, 21, 30, 8, 1], [14, 3, 25, 6, 1, 0, 0, 0, 0]])
mask = ids > 0  # <- padding
losses = []
with torch.no_grad():
    memory = encode(params, ids, mask)
    memory_bias = torch.where(mask, 0.0, -1e10)[:, None, None, :]  # <- padding
    state = []
    for i in range(LAYERS):
        cross = params["decoder"][f"layers_{i}"]["cross"]
        mk, mv = project(memory, cross["key"]), project(memory, cross["value"])
        state.append({"k": [], "v": [], "mk": mk, "mv": mv})
    token = torch.full((2,), START)
    for at in range(STEPS):
        logits = decode_step(params, token, at, state, memory_bias)
        token = logits.argmax(-1)
        losses += [logits.square().mean().item(), logits.amax().item()]
