# SPDX-License-Identifier: Apache-2.0
"""T5 on nested dicts of input-major matrices, bias buckets tabulated once, all cross keys in one product."""
import math
import sys

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_flatten, tree_map

torch.set_num_threads(1)

D, DK, H, NL, V, NB, FAR, S, T = 24, 6, 3, 2, 43, 8, 10, 11, 8


def bucket(distance, two_sided):
    """Bucket number of (key position - query position), plain python."""
    n = NB // 2 if two_sided else NB
    base = n if two_sided and distance > 0 else 0
    distance = abs(distance) if two_sided else max(-distance, 0)
    exact = n // 2
    far = exact + int(math.log(max(distance, exact) / exact) / math.log(FAR / exact) * (n - exact))
    return base + (distance if distance < exact else min(n - 1, far))


ENC_BUCKETS = torch.tensor([[bucket(k - q, True) for k in range(S)] for q in range(S)])
DEC_BUCKETS = torch.tensor([[bucket(k - q, False) for k in range(T)] for q in range(T)])
FUTURE = torch.full((T, T), -1e9).triu(1)


def read(path):
    sd = torch.load(path)

    def half(side, n):  # n sublayers per block
        def mats(i, j, part, names):
            return {m[-1]: sd[f"{side}.block.{i}.layer.{j}.{part}.{m}.weight"].t() for m in names}

        layers = []
        for i in range(NL):
            lay = {"self": mats(i, 0, "SelfAttention", "qkvo"),
                   "ff": [*mats(i, n - 1, "DenseReluDense", ("wi_0", "wi_1", "wo")).values()],
                   "scales": [sd[f"{side}.block.{i}.layer.{j}.layer_norm.weight"] for j in range(n)]}
            layers.append(lay | ({"cross": mats(i, 1, "EncDecAttention", "qkvo")} if n == 3 else {}))
        rel = sd[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"].t()
        return {"layers": layers, "rel": rel, "final": sd[side + ".final_layer_norm.weight"]}

    # the vocabulary is D, V: output matrix as it is, looked up by column
    tree = {"decoder": half("decoder", 3), "encoder": half("encoder", 2), "vocab": sd["shared.weight"].t()}
    return tree_map(lambda t: t.clone().contiguous().requires_grad_(), tree)


def rms(x, w):
    return F.rms_norm(x, (D,), w, 1e-6)


def attend(q, k, v, bias, o):
    q, k, v = (x.unflatten(-1, (H, DK)).transpose(-2, -3) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
    return y.transpose(1, 2).flatten(2) @ o


def feed(x, gate, value, down):
    return (F.gelu(x @ gate, approximate="tanh") * (x @ value)) @ down


def nll(tree, src, tgt):
    enc, dec, table = tree["encoder"], tree["decoder"], tree["vocab"]
    hide = (src == 0).float()[:, None, None] * -1e9
    self_bias = enc["rel"][:, ENC_BUCKETS] + hide
    x = table[:, src].movedim(0, -1)
    for lay in enc["layers"]:
        x = x + attend(*(rms(x, lay["scales"][0]) @ lay["self"][n] for n in "qkv"), self_bias, lay["self"]["o"])
        x = x + feed(rms(x, lay["scales"][1]), *lay["ff"])
    memory = rms(x, enc["final"])
    both = torch.cat([lay["cross"][n] for lay in dec["layers"] for n in "kv"], 1)
    cross_kv = (memory @ both).chunk(2 * NL, -1)
    dec_bias = dec["rel"][:, DEC_BUCKETS] + FUTURE
    shifted = F.pad(tgt.clamp(min=0)[:, :-1], (1, 0))
    x = table[:, shifted].movedim(0, -1)
    for i, lay in enumerate(dec["layers"]):
        x = x + attend(*(rms(x, lay["scales"][0]) @ lay["self"][n] for n in "qkv"), dec_bias, lay["self"]["o"])
        q = rms(x, lay["scales"][1]) @ lay["cross"]["q"]
        x = x + attend(q, *cross_kv[2 * i:2 * i + 2], hide, lay["cross"]["o"])
        x = x + feed(rms(x, lay["scales"][2]), *lay["ff"])
    logits = (rms(x, dec["final"]) * D ** -0.5) @ table
    return F.cross_entropy(logits[tgt >= 0], tgt[tgt >= 0])


class RowColumnOptimizer:
    """Adafactor without first moment: factored second moment for matrices, update clipped to RMS 1."""

    def __init__(self, leaves, lr):
        self.leaves, self.lr, self.t = leaves, lr, 0
        self.mem = [[torch.zeros(n) for n in p.shape] for p in leaves]

    def step(self, grads):
        self.t += 1
        keep = 1.0 - self.t ** -0.8
        for p, g, mem in zip(self.leaves, grads, self.mem):
            sq = g.square() + 1e-30
            for axis, acc in enumerate(mem):
                rest = [d for d in range(g.ndim) if d != axis]
                acc.lerp_(sq.mean(rest) if rest else sq, 1 - keep)
            u = g * mem[-1].rsqrt()
            if g.ndim == 2:
                u = u * (mem[0] / mem[0].mean()).rsqrt()[:, None]
            p.data.sub_(u / u.square().mean().sqrt().clamp(min=1.0), alpha=self.lr)


def examples(seed, steps=5, rows=4):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        src, tgt = torch.zeros(rows, S, dtype=torch.long), torch.full((rows, T), -100)
        for r in range(rows):
            n = torch.randint(4, 11, (1,), generator=g).item()
            body = torch.randint(2, V - 1, (n,), generator=g)
            answer = (body.flip(0) + 1)[:T - 1]
            src[r, :n + 1], tgt[r, :len(answer) + 1] = F.pad(body, (0, 1), value=1), F.pad(answer, (0, 1), value=1)
        yield src, tgt


tree = read(sys.argv[1])
leaves, _ = tree_flatten(tree)
opt = RowColumnOptimizer(leaves, 2e-3)
losses = []
for src, tgt in examples(8):
    value = nll(tree, src, tgt)
    opt.step(torch.autograd.grad(value, leaves))
    losses.append(value.item())

print(losses)
