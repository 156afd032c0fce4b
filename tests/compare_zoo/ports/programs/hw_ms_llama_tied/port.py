# SPDX-License-Identifier: Apache-2.0
"""MindSpore port of the little Llama: fused projections, interleaved rotary pairs, scaled loss."""
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")

V, D, NQ, NKV, DEPTH, T, B = 48, 32, 4, 2, 2, 12, 8
HD, GROUP, HIDDEN = D // NQ, NQ // NKV, 64
SCALE, MAX_NORM = 1024.0, 0.5


class Norm(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gamma = Parameter(ops.ones(D, ms.float32))

    def construct(self, x):
        return x / ops.sqrt(ops.mean(ops.square(x), -1, True) + 1e-6) * self.gamma


class DecoderLayer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.wqkv = nn.Dense(D, (NQ + 2 * NKV) * HD, has_bias=False)
        self.wo = nn.Dense(NQ * HD, D, has_bias=False)
        self.w13 = nn.Dense(D, 2 * HIDDEN, has_bias=False)
        self.w2 = nn.Dense(HIDDEN, D, has_bias=False)

    def rotate(self, x, cos, sin):
        # x: (b, t, n, hd), neighbouring channels form one complex number
        pair = x.reshape(x.shape[:-1] + (HD // 2, 2))
        re, im = ops.unbind(pair, -1)
        return ops.stack((re * cos - im * sin, re * sin + im * cos), -1).reshape(x.shape)

    def construct(self, x, cos, sin, bias):
        b, t, _ = x.shape
        qk, v = ops.split(self.wqkv(self.norm1(x)), [(NQ + NKV) * HD, NKV * HD], -1)
        # queries and keys are rotated together
        q, k = ops.split(self.rotate(qk.reshape(b, t, NQ + NKV, HD), cos, sin), [NQ, NKV], 2)
        q = q.reshape(b, t, NKV, GROUP, HD).transpose(0, 2, 3, 1, 4)
        k = k.transpose(0, 2, 3, 1).expand_dims(2)
        v = v.reshape(b, t, NKV, 1, HD).transpose(0, 2, 3, 1, 4)
        prob = ops.softmax(ops.matmul(q, k) * HD ** -0.5 + bias, -1)
        y = ops.matmul(prob, v).transpose(0, 3, 1, 2, 4).reshape(b, t, NQ * HD)
        x = x + self.wo(y)
        gate, up = ops.split(self.w13(self.norm2(x)), HIDDEN, -1)
        return x + self.w2(gate * ops.sigmoid(gate) * up)


class LlamaLM(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(V, D)
        self.blocks = nn.CellList([DecoderLayer() for _ in range(DEPTH)])
        self.ln_f = Norm()
        freq = 10000.0 ** (-np.arange(0, HD, 2) / HD)
        angle = np.outer(np.arange(T), freq)[:, None, :]
        self.cos, self.sin = Tensor(np.cos(angle), ms.float32), Tensor(np.sin(angle), ms.float32)
        self.bias = Tensor(np.triu(np.full((T, T), -1e9), 1), ms.float32)

    def construct(self, ids):
        h = self.wte(ids)
        for block in self.blocks:
            h = block(h, self.cos, self.sin, self.bias)
        return ops.matmul(self.ln_f(h), self.wte.embedding_table.T)


def load(net, path):
    w = np.load(path)

    def interleave(m):
        return m.reshape(-1, 2, HD // 2, D).transpose(0, 2, 1, 3).reshape(-1, D)

    table = {"wte.embedding_table": w["embed_tokens.weight"], "ln_f.gamma": w["norm.weight"]}
    for i in range(DEPTH):
        src, dst = f"layers.{i}.", f"blocks.{i}."
        q, k, v = (w[f"{src}attn.{n}_proj.weight"] for n in "qkv")
        table[dst + "wqkv.weight"] = np.concatenate([interleave(q), interleave(k), v])
        table[dst + "w13.weight"] = np.concatenate([w[src + "mlp.gate_proj.weight"], w[src + "mlp.up_proj.weight"]])
        table[dst + "wo.weight"] = w[src + "attn.o_proj.weight"]
        table[dst + "w2.weight"] = w[src + "mlp.down_proj.weight"]
        table[dst + "norm1.gamma"] = w[src + "input_norm.weight"]
        table[dst + "norm2.gamma"] = w[src + "post_norm.weight"]
    for name, p in net.parameters_dict().items():
        p.set_data(Tensor(table.pop(name)))
    assert not table


net = LlamaLM()
load(net, sys.argv[1])
weights = list(net.trainable_params())
m = [ops.zeros_like(p) for p in weights]
v = [ops.zeros_like(p) for p in weights]


def forward(ids, labels):
    logits = net(ids).reshape(-1, V)
    return ops.cross_entropy(logits, labels.reshape(-1)) * SCALE


grad_fn = ms.value_and_grad(forward, None, weights)


def adamw(grads, t, lr=4e-3, b1=0.9, b2=0.95):
    for i, (p, g) in enumerate(zip(weights, grads)):
        m[i] = b1 * m[i] + (1 - b1) * g
        v[i] = b2 * v[i] + (1 - b2) * g * g
        update = (m[i] / (1 - b1 ** t)) / (ops.sqrt(v[i] / (1 - b2 ** t)) + 1e-8)
        if p.ndim > 1:
            update = update + 0.1 * p
        ops.assign(p, p - lr * update)


rng = np.random.RandomState(3)
losses = []
for step in range(1, 5):
    phrase = rng.randint(0, V, size=(B, T // 3))
    text = np.concatenate([phrase] * 4, axis=1)[:, :T + 1].astype(np.int32)
    scaled, grads = grad_fn(Tensor(text[:, :-1]), Tensor(text[:, 1:]))
    # unscaling and clipping in one factor; the norm is that of the scaled gradients
    norm = ops.sqrt(sum(ops.square(g).sum() for g in grads)) / SCALE
    factor = ops.minimum(MAX_NORM / norm, Tensor(1.0, ms.float32)) / SCALE
    adamw([g * factor for g in grads], step)
    losses.append(float(scaled.asnumpy()) / SCALE)
print(losses)
