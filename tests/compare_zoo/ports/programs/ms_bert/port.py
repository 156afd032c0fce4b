# SPDX-License-Identifier: Apache-2.0
"""The BERT-like classifier on MindSpore (PyNative mode)."""

import math
import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
ms.set_seed(1)
VOCAB, HIDDEN, HEADS, INNER, LAYERS, MAX_LEN, CLASSES = 50, 32, 4, 64, 2, 12, 4


class BertEmbeddings(nn.Cell):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.position_embeddings = nn.Embedding(MAX_LEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.norm = nn.LayerNorm((HIDDEN,), epsilon=1e-5)  # <- norm_eps

    def construct(self, ids, types):
        positions = ops.arange(ids.shape[1])
        x = self.word_embeddings(ids) + self.position_embeddings(positions)  # <- types
        x = x + self.token_type_embeddings(types)  # <- types
        return self.norm(x)  # <- norm_eps


class BertSelfAttention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.query = nn.Dense(HIDDEN, HIDDEN)
        self.key = nn.Dense(HIDDEN, HIDDEN)
        self.value = nn.Dense(HIDDEN, HIDDEN)
        self.output = nn.Dense(HIDDEN, HIDDEN)
        self.matmul_t = ops.BatchMatMul(transpose_b=True)
        self.matmul = ops.BatchMatMul()
        self.softmax = nn.Softmax(axis=-1)

    def heads(self, x):
        return x.reshape(x.shape[0], x.shape[1], HEADS, HIDDEN // HEADS).transpose(0, 2, 1, 3)

    def construct(self, x, mask):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = self.matmul_t(q, k) / math.sqrt(HIDDEN // HEADS)
        scores = scores + mask  # <- mask
        mixed = self.matmul(self.softmax(scores), v).transpose(0, 2, 1, 3)
        return self.output(mixed.reshape(x.shape))


class BertLayer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.attention = BertSelfAttention()
        self.attention_norm = nn.LayerNorm((HIDDEN,), epsilon=1e-5)
        self.intermediate = nn.Dense(HIDDEN, INNER)
        self.activation = nn.GELU(approximate=False)  # <- gelu
        self.dense = nn.Dense(INNER, HIDDEN)
        self.output_norm = nn.LayerNorm((HIDDEN,), epsilon=1e-5)

    def construct(self, x, mask):
        x = self.attention_norm(x + self.attention(x, mask))
        inner = self.activation(self.intermediate(x))  # <- gelu
        return self.output_norm(x + self.dense(inner))


class BertClassifier(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.encoder = nn.CellList([BertLayer() for _ in range(LAYERS)])
        self.pooler = nn.Dense(HIDDEN, HIDDEN, activation="tanh")
        self.classifier = nn.Dense(HIDDEN, CLASSES)

    def construct(self, ids, types, attention_mask):
        mask = (1.0 - attention_mask.expand_dims(1).expand_dims(1)) * -10000.0  # <- mask
        x = self.embeddings(ids, types)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.classifier(self.pooler(x[:, 0]))


def convert(weights):
    new = {}
    for name, value in weights.items():
        if "_embeddings." in name:
            name = name.replace(".weight", ".embedding_table")  # <- types
        name = name.replace("LayerNorm.", "norm.")
        if "norm." in name:
            name = name.replace("norm.weight", "norm.gamma").replace("norm.bias", "norm.beta")
        for part in ("query", "key", "value", "output"):
            name = name.replace(f".{part}.", f".attention.{part}.")
        new[name] = ms.Parameter(ms.Tensor(value), name=name)
    return new


net = BertClassifier()
ms.load_param_into_net(net, convert(np.load(sys.argv[1])))  # <- types
net.set_train()
params = net.trainable_params()
plain = [p for p in params if p.ndim == 1]
groups = [
    {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.01},
    {"params": plain, "weight_decay": 0.0},
    {"order_params": params},
]
optimizer = nn.AdamWeightDecay(groups, learning_rate=3e-3)  # <- adam
loss_fn = nn.CrossEntropyLoss()


def forward_fn(ids, types, mask, target):
    return loss_fn(net(ids, types, mask), target)


grad_fn = ms.value_and_grad(forward_fn, None, params)
random = np.random.RandomState(7)
losses = []
for _ in range(4):
    ids = ms.Tensor(random.randint(1, VOCAB, (6, 10)), ms.int32)
    length = random.randint(4, 11, (6, 1))
    attention_mask = ms.Tensor((np.arange(10) < length).astype(np.float32))  # <- mask
    types = ms.Tensor((np.arange(10) >= length // 2).astype(np.int32))
    target = ms.Tensor(random.randint(0, CLASSES, 6), ms.int32)
    loss, grads = grad_fn(ids, types, attention_mask, target)
    optimizer(grads)  # <- adam
    losses.append(float(loss.asnumpy()))
print(losses)
