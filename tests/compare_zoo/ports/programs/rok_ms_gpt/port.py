# SPDX-License-Identifier: Apache-2.0
"""MindSpore version of the character GPT: separate q/k/v cells, hand-written AdamW."""
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")

cfg = dict(vocab=47, seq=16, hidden=32, heads=4, layers=2)


class Attention(nn.Cell):
    def __init__(self, hidden, heads, seq):
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query = nn.Dense(hidden, hidden)
        self.key = nn.Dense(hidden, hidden)
        self.value = nn.Dense(hidden, hidden)
        self.out = nn.Dense(hidden, hidden)
        self.future = Tensor(np.triu(np.ones((1, 1, seq, seq), np.float32), k=1))  # <- mask_hides_self

    def heads_first(self, t):
        b, s, _ = t.shape
        return t.reshape(b, s, self.heads, self.size).transpose(0, 2, 1, 3)

    def construct(self, x):
        b, s, h = x.shape
        q, k, v = (self.heads_first(f(x)) for f in (self.query, self.key, self.value))  # <- qkv_order
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) * self.size ** -0.5
        scores = scores + self.future * -1e9  # <- mask_hides_self
        mixed = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(b, s, h))


class Layer(nn.Cell):
    def __init__(self, hidden, heads, seq):
        super().__init__()
        self.norm1 = nn.LayerNorm((hidden,), epsilon=1e-5)  # <- layer_norm_eps
        self.attention = Attention(hidden, heads, seq)
        self.norm2 = nn.LayerNorm((hidden,), epsilon=1e-05)
        self.mlp = nn.SequentialCell(nn.Dense(hidden, 4 * hidden), nn.GELU(approximate=False),
                                     nn.Dense(4 * hidden, hidden))

    def construct(self, x):
        x = x + self.attention(self.norm1(x))  # <- layer_norm_eps
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Cell):
    def __init__(self, vocab, seq, hidden, heads, layers):
        super().__init__()
        self.word = nn.Embedding(vocab, hidden)
        self.place = nn.Embedding(seq, hidden)
        self.layers = nn.CellList([Layer(hidden, heads, seq) for _ in range(layers)])
        self.final = nn.LayerNorm((hidden,), epsilon=1e-05)
        self.head = nn.Dense(hidden, vocab, has_bias=False)

    def construct(self, ids):
        x = self.word(ids) + self.place(ops.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final(x))


def load(net, path):
    src = np.load(path)
    dst = {"word.embedding_table": src["wte.weight"], "place.embedding_table": src["wpe.weight"],
           "final.gamma": src["ln_f.weight"], "final.beta": src["ln_f.bias"],
           "head.weight": src["lm_head.weight"]}
    for i in range(cfg["layers"]):
        a, b = f"h.{i}.", f"layers.{i}."
        for kind in ("weight", "bias"):
            fused = src[a + "attn.c_attn." + kind]
            for name, part in zip(("query", "key", "value"), np.split(fused, 3)):  # <- qkv_order
                dst[f"{b}attention.{name}.{kind}"] = part
            dst[f"{b}attention.out.{kind}"] = src[a + "attn.c_proj." + kind]
            dst[f"{b}mlp.0.{kind}"] = src[a + "c_fc." + kind]
            dst[f"{b}mlp.2.{kind}"] = src[a + "mlp_proj." + kind]
        for n in "12":
            dst[f"{b}norm{n}.gamma"] = src[f"{a}ln_{n}.weight"]
            dst[f"{b}norm{n}.beta"] = src[f"{a}ln_{n}.bias"]
    left = ms.load_param_into_net(net, {k: Parameter(Tensor(v), name=k) for k, v in dst.items()})
    assert not left[0], left


class AdamW:
    def __init__(self, params, b1=0.9, b2=0.95, eps=1e-8, wd=0.1):
        self.params, self.b1, self.b2, self.eps, self.wd = params, b1, b2, eps, wd
        self.m = [ops.zeros_like(p) for p in params]
        self.v = [ops.zeros_like(p) for p in params]
        self.t = 0

    def apply(self, grads, lr):
        self.t += 1
        c1, c2 = 1 - self.b1 ** self.t, 1 - self.b2 ** self.t  # <- no_bias_correction
        for i, (p, g) in enumerate(zip(self.params, grads)):
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * g
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * g * g
            update = (self.m[i] / c1) / (ops.sqrt(self.v[i] / c2) + self.eps)  # <- no_bias_correction
            wd = self.wd if p.ndim > 1 else 0.0
            p.set_data(p * (1 - lr * wd) - lr * update)


net = LanguageModel(**cfg)
load(net, sys.argv[1])
net.set_train()
opt = AdamW(net.trainable_params())


def forward(ids, labels):
    logits = net(ids)
    return ops.cross_entropy(logits.reshape(-1, cfg["vocab"]), labels.reshape(-1))


grad_fn = ms.value_and_grad(forward, None, opt.params)
rng = np.random.RandomState(5)
stream = np.cumsum(rng.randint(0, 4, size=400)) % cfg["vocab"]
losses = []
for it in range(4):
    at = rng.randint(0, 400 - cfg["seq"] - 1, size=6)
    window = stream[at[:, None] + np.arange(cfg["seq"] + 1)].astype(np.int32)
    loss, grads = grad_fn(Tensor(window[:, :-1]), Tensor(window[:, 1:]))
    grads = ops.clip_by_global_norm(grads, 0.25)
    rate = 3e-3 * min(1.0, (it + 1) / 3)  # <- warmup_off_by_one
    opt.apply(grads, rate)  # <- no_bias_correction warmup_off_by_one
    losses.append(float(loss.asnumpy()))
print(losses)
