# SPDX-License-Identifier: Apache-2.0
"""The GPT on MindSpore in graph mode, trained by TrainOneStepCell."""

import math
import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
VOCAB, WIDTH, HEADS, LAYERS, CONTEXT, STEPS = 41, 24, 3, 2, 12, 4


class CausalAttention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Dense(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Dense(WIDTH, WIDTH)
        self.tril = ms.Tensor(np.tril(np.ones((1, 1, CONTEXT, CONTEXT))), ms.bool_)
        self.scale = (WIDTH // HEADS) ** -0.5  # <- scale

    def construct(self, x):
        b, t, _ = x.shape
        qkv = self.c_attn(x).reshape(b, t, 3, HEADS, WIDTH // HEADS).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = ops.matmul(q, k.swapaxes(-1, -2)) * self.scale  # <- scale
        scores = ops.masked_fill(scores, ops.logical_not(self.tril[:, :, :t, :t]), -1e9)
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        y = y.transpose(0, 2, 1, 3).reshape(b, t, WIDTH)
        return self.c_proj(y)  # <- c_proj


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.attn = CausalAttention()
        self.ln_2 = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.c_fc = nn.Dense(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU()
        self.c_proj = nn.Dense(4 * WIDTH, WIDTH)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.CellList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.lm_head = nn.Dense(WIDTH, VOCAB, has_bias=False)
        self.lm_head.weight = self.wte.embedding_table  # <- tied

    def construct(self, tokens):
        positions = ops.arange(tokens.shape[1])
        x = self.wte(tokens) + self.wpe(positions)  # <- tied
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))  # <- tied


class NetWithLoss(nn.Cell):
    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net = net
        self.loss = nn.CrossEntropyLoss(ignore_index=-100)  # <- ignore

    def construct(self, tokens, labels):
        logits = self.net(tokens)[:, :-1].reshape(-1, VOCAB)
        return self.loss(logits, labels[:, 1:].reshape(-1))  # <- ignore


def load(net, weights):
    params = {}
    for name, value in weights.items():
        if ".c_" in name and value.ndim == 2:
            value = value.T  # <- c_proj
        if name.startswith("w"):
            name = name.replace(".weight", ".embedding_table")
        elif "ln_" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        params[name] = ms.Parameter(ms.Tensor(np.ascontiguousarray(value)), name=name)
    params["lm_head.weight"] = ms.Parameter(ms.Tensor(weights["wte.weight"]))  # <- tied
    ms.load_param_into_net(net, params)  # <- c_proj


net = GPT()
load(net, np.load(sys.argv[1]))
warmup = [4e-3 * (n + 1) / 2 for n in range(2)]  # <- schedule
cosine = [
    2e-3 * (1 + math.cos(math.pi * n / (STEPS - 1))) for n in range(1, STEPS - 1)
]  # <- schedule
optimizer = nn.Adam(
    net.trainable_params(), learning_rate=warmup + cosine, beta1=0.9, beta2=0.95
)  # <- tied schedule
train_step = nn.TrainOneStepCell(NetWithLoss(net), optimizer)
train_step.set_train()
random = np.random.RandomState(8)
losses = []
for _ in range(STEPS):
    tokens = random.randint(1, VOCAB, (4, 10))
    length = random.randint(5, 11, (4, 1))
    labels = np.where(np.arange(10) < length, tokens, -100)  # <- ignore
    tokens = np.where(np.arange(10) < length, tokens, 0)
    loss = train_step(ms.Tensor(tokens, ms.int32), ms.Tensor(labels, ms.int32))  # <- tied schedule
    losses.append(float(loss.asnumpy()))
print(losses)
