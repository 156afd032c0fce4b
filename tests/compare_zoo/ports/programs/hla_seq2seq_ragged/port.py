# SPDX-License-Identifier: Apache-2.0
"""Sentence-by-sentence rewrite without padding or masks on the source; two objectives
differentiated apart."""
import sys

import torch
from torch.func import grad

STATE = torch.load(sys.argv[1], weights_only=True)
D, H, V = 16, 2, 36


def attention_weights(prefix):
    w, b = STATE[prefix + "in_proj_weight"], STATE[prefix + "in_proj_bias"]
    per = lambda m: m.view(H, D // H, D).transpose(1, 2)
    # keys carry no bias here: it shifts every score of a query alike and softmax forgets it
    return {"q": per(w[:D]), "k": per(w[D:2 * D]), "v": per(w[2 * D:]),
            "qb": b[:D].view(H, 1, -1), "vb": b[2 * D:].view(H, 1, -1),
            "o": STATE[prefix + "out_proj.weight"].T.reshape(H, D // H, D),
            "ob": STATE[prefix + "out_proj.bias"]}


def dense(name):
    # bias as the last row
    return torch.cat([STATE[name + ".weight"].T, STATE[name + ".bias"][None]])


def norm(name):
    return torch.stack([STATE[name + ".weight"] - 1, STATE[name + ".bias"]])


tree = {
    "lang": dense("lang_head"), "gen": dense("generator"),
    "emb": torch.cat([STATE["src_emb.weight"][2:], STATE["tgt_emb.weight"][1:]]),
    "e.ln1": norm("encoder.norm1"), "e.ln2": norm("encoder.norm2"),
    "d.ln1": norm("decoder.norm1"), "d.ln2": norm("decoder.norm2"), "d.ln3": norm("decoder.norm3"),
    "e.up": dense("encoder.linear1"), "e.down": dense("encoder.linear2"),
    "d.up": dense("decoder.linear1"), "d.down": dense("decoder.linear2"),
}
for tag, prefix in (("e.att", "encoder.self_attn."), ("d.att", "decoder.self_attn."),
                    ("d.cross", "decoder.multihead_attn.")):
    tree.update({f"{tag}.{k}": v for k, v in attention_weights(prefix).items()})
tree = {k: v.clone() for k, v in tree.items()}

rate = torch.pow(10000.0, -torch.arange(0, D, 2) / D)
PE = torch.stack([torch.sin(torch.arange(16)[:, None] * rate),
                  torch.cos(torch.arange(16)[:, None] * rate)], -1).flatten(1)


def affine(w, x):
    return x @ w[:-1] + w[-1]


def layernorm(w, x):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + w[0]) + w[1]


def attend(w, tag, x, mem, causal=False):
    q = x @ w[tag + ".q"] + w[tag + ".qb"]
    v = mem @ w[tag + ".v"] + w[tag + ".vb"]
    s = q @ (mem @ w[tag + ".k"]).mT / (D // H) ** 0.5  # <- causal_shift
    if causal:
        s = s + torch.full_like(s[0], -1e30).triu(1)  # <- causal_shift
    return (torch.softmax(s, -1) @ v @ w[tag + ".o"]).sum(0) + w[tag + ".ob"]  # <- causal_shift


def encode(w, s):
    x = 4.0 * w["emb"][s - 2] + PE[:len(s)]
    x = layernorm(w["e.ln1"], x + attend(w, "e.att", x, x))
    return layernorm(w["e.ln2"], x + affine(w["e.down"], affine(w["e.up"], x).relu()))


def translation(w, pairs):
    total, count = 0.0, 0
    for s, t in pairs:
        mem = encode(w, s)
        y = 4.0 * w["emb"][33 + torch.cat([t.new_ones(1), t[:-1]])] + PE[:len(t)]
        y = layernorm(w["d.ln1"], y + attend(w, "d.att", y, y, causal=True))
        y = layernorm(w["d.ln2"], y + attend(w, "d.cross", y, mem))
        y = layernorm(w["d.ln3"], y + affine(w["d.down"], affine(w["d.up"], y).relu()))
        target = torch.nn.functional.one_hot(t, V) * 0.9 + 0.1 / V  # <- smooth_spread
        total = total - (target * affine(w["gen"], y).log_softmax(-1)).sum()  # <- smooth_spread
        count += len(t)
    return total / count, total.detach() / count


def language(w, pairs, lang):
    z = torch.stack([affine(w["lang"], encode(w, s).mean(0)) for s, _ in pairs])  # <- pool_count
    value = (z.logsumexp(1) - z.gather(1, lang[:, None])[:, 0]).mean()
    return value, value.detach()


mom = {k: torch.zeros_like(v) for k, v in tree.items()}
var = {k: torch.zeros_like(v) for k, v in tree.items()}
gen = torch.Generator().manual_seed(31)
losses = []
for n in range(1, 5):
    sl, tl = torch.randint(3, 10, (6,), generator=gen), torch.randint(2, 9, (6,), generator=gen)
    src, tgt = (torch.randint(2, V, (6, 9), generator=gen),
                torch.randint(2, V, (6, 9), generator=gen))
    lang = torch.randint(0, 3, (6,), generator=gen)
    pairs = [(s[:a], t[:b]) for s, t, a, b in zip(src, tgt, sl.tolist(), tl.tolist())]
    g_lang, l_lang = grad(language, has_aux=True)(tree, pairs, lang)
    g_seq, l_seq = grad(translation, has_aux=True)(tree, pairs)
    g = {k: g_seq[k] + 0.3 * g_lang[k] for k in tree}
    length = torch.cat([x.flatten() for x in g.values()]).norm().item()
    scale = 1.0 / max(1.0, length + 1e-6)
    lr = 0.05 * D ** -0.5 * (n ** -0.5 if n > 3 else n / 3 ** 1.5)  # <- warm_step
    fix = (1 - 0.98 ** n) ** 0.5
    for k in tree:
        mom[k] = torch.lerp(g[k] * scale, mom[k], 0.9)  # <- bias_correction
        var[k] = torch.lerp((g[k] * scale) ** 2, var[k], 0.98)
        tree[k] = (tree[k] - lr * fix / (1 - 0.9 ** n) * mom[k]  # <- warm_step bias_correction
                   / (var[k].sqrt() + 1e-6 * fix))  # <- bias_correction
    losses.append((l_seq + 0.3 * l_lang).item())
print(losses)
