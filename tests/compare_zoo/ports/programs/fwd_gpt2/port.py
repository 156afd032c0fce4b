# SPDX-License-Identifier: Apache-2.0
"""Small functional rewrite of the GPT checkpoint with separate projections and SDPA."""
import sys

import torch
import torch.nn.functional as F

n_head = 4


def convert(sd):
    """Conv1D checkpoints hold (in, out) matrices; F.linear wants (out, in)."""
    n_layer = 1 + max(int(k.split(".")[1]) for k in sd if k.startswith("h."))
    out = {"tok": sd["wte.weight"], "pos": sd["wpe.weight"]}
    out["norm"] = (sd["ln_f.weight"], sd["ln_f.bias"])
    out["layers"] = []
    for i in range(n_layer):
        p = {k[len(f"h.{i}."):]: v for k, v in sd.items() if k.startswith(f"h.{i}.")}
        wq, wk, wv = p["attn.c_attn.weight"].t().chunk(3, dim=0)  # <- qkv_order
        bq, bk, bv = p["attn.c_attn.bias"].chunk(3)  # <- qkv_order
        out["layers"].append({
            "norm1": (p["ln_1.weight"], p["ln_1.bias"]),
            "norm2": (p["ln_2.weight"], p["ln_2.bias"]),
            "q": (wq, bq),
            "k": (wk, bk),
            "v": (wv, bv),
            "o": (p["attn.c_proj.weight"].t(), p["attn.c_proj.bias"]),  # <- proj_layout
            "up": (p["mlp.c_fc.weight"].t(), p["mlp.c_fc.bias"]),
            "down": (p["mlp.c_proj.weight"].t(), p["mlp.c_proj.bias"]),
        })
    return out


def ln(x, wb):
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5) * wb[0] + wb[1]


def attend(x, layer):
    b, t, c = x.shape

    def heads(name):
        return F.linear(x, *layer[name]).reshape(b, t, n_head, c // n_head).transpose(1, 2)

    q, k, v = heads("q"), heads("k"), heads("v")  # <- qkv_order
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- causal qkv_order
    return F.linear(y.transpose(1, 2).reshape(b, t, c), *layer["o"])  # <- proj_layout


def gpt(params, tokens):
    t = tokens.shape[1]
    x = F.embedding(tokens, params["tok"]) + params["pos"][:t]  # <- positions
    for layer in params["layers"]:
        x = x + attend(ln(x, layer["norm1"]), layer)
        h = F.linear(ln(x, layer["norm2"]), *layer["up"])
        h = F.gelu(h, approximate="tanh")  # <- activation
        x = x + F.linear(h, *layer["down"])
    return ln(x, params["norm"]) @ params["tok"].T


def nll(logits, tokens):
    logp = torch.log_softmax(logits[:, :-1], dim=-1)
    return -logp.gather(-1, tokens[:, 1:, None]).mean()


params = convert(torch.load(sys.argv[1], weights_only=True))
vocab = params["tok"].shape[0]
g = torch.Generator().manual_seed(7)
losses = []
with torch.inference_mode():
    for step in range(3):
        tokens = torch.randint(0, vocab, (4, 20), generator=g)
        out = gpt(params, tokens)
        losses.append(float(nll(out, tokens)) + float(out.amax()))
print(losses)
