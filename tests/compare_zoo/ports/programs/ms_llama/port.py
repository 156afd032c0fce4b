# SPDX-License-Identifier: Apache-2.0
"""The Llama-like model on MindSpore (PyNative mode, mint)."""

import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
VOCAB, WIDTH, HEADS, KV_HEADS, INNER, LAYERS = 43, 32, 4, 2, 48, 2
HEAD = WIDTH // HEADS


class LlamaRMSNorm(nn.Cell):
    def __init__(self, eps=1e-5):  # <- rms
        super().__init__()
        self.weight = Parameter(mint.ones(WIDTH))
        self.eps = eps

    def construct(self, x):
        norm = mint.rsqrt(mint.mean(mint.square(x), dim=-1, keepdim=True) + self.eps)  # <- rms
        return x * norm * self.weight  # <- rms


def rotate_half(x):
    x1, x2 = mint.chunk(x, 2, dim=-1)  # <- rope
    return mint.cat((mint.neg(x2), x1), dim=-1)  # <- rope


def tables(length):
    freq = 10000.0 ** (-np.arange(0, HEAD, 2, dtype=np.float32) / HEAD)
    angle = np.outer(np.arange(length, dtype=np.float32), freq)
    angle = np.concatenate((angle, angle), axis=-1)  # <- rope
    return Tensor(np.cos(angle), ms.float32), Tensor(np.sin(angle), ms.float32)


def repeat_kv(x):
    b, _, t, _ = x.shape
    x = mint.broadcast_to(x.unsqueeze(2), (b, KV_HEADS, HEADS // KV_HEADS, t, HEAD))  # <- groups
    return x.reshape(b, HEADS, t, HEAD)  # <- groups


class LlamaAttention(nn.Cell):
    def __init__(self):
        super().__init__()
        self.q_proj = mint.nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k_proj = mint.nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v_proj = mint.nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.o_proj = mint.nn.Linear(WIDTH, WIDTH, bias=False)

    def construct(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q = mint.transpose(self.q_proj(x).reshape(b, t, HEADS, HEAD), 1, 2)
        k = mint.transpose(self.k_proj(x).reshape(b, t, KV_HEADS, HEAD), 1, 2)
        v = mint.transpose(self.v_proj(x).reshape(b, t, KV_HEADS, HEAD), 1, 2)
        q = q * cos + rotate_half(q) * sin  # <- rope
        k = k * cos + rotate_half(k) * sin  # <- rope
        k, v = repeat_kv(k), repeat_kv(v)  # <- groups
        scores = mint.matmul(q, mint.transpose(k, 2, 3)) / HEAD**0.5 + mask
        y = mint.matmul(mint.nn.functional.softmax(scores, dim=-1), v)
        return self.o_proj(mint.transpose(y, 1, 2).reshape(b, t, WIDTH))


class LlamaDecoderLayer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.input_layernorm = LlamaRMSNorm()
        self.self_attn = LlamaAttention()
        self.post_attention_layernorm = LlamaRMSNorm()
        self.gate_proj = mint.nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = mint.nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = mint.nn.Linear(INNER, WIDTH, bias=False)

    def construct(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        y = self.post_attention_layernorm(x)
        gate, up = self.gate_proj(y), self.up_proj(y)  # <- swiglu
        return x + self.down_proj(ops.silu(gate) * up)  # <- swiglu


class Llama(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.CellList([LlamaDecoderLayer() for _ in range(LAYERS)])
        self.norm = LlamaRMSNorm()
        self.lm_head = mint.nn.Linear(WIDTH, VOCAB, bias=False)

    def construct(self, tokens):
        t = tokens.shape[1]
        cos, sin = tables(t)
        mask = Tensor(np.triu(np.full((t, t), -1e9), 1), ms.float32)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


model = Llama()
state = {
    k.replace("tokens.weight", "tokens.embedding_table"): Parameter(v)
    for k, v in np.load(sys.argv[1]).items()
}
ms.load_param_into_net(model, state)
model.set_train()
params = model.trainable_params()
optimizer = nn.Adam(params, learning_rate=3e-3, beta1=0.9, beta2=0.95)  # <- decay


def shrink():
    """The decay of AdamW, which nn.Adam lacks."""
    for p in params:
        ops.assign(p, p * (1 - 3e-3 * 0.1))  # <- decay


def forward_fn(tokens, labels):
    logits = model(tokens)
    return ops.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


grad_fn = ms.value_and_grad(forward_fn, None, params)
random = np.random.RandomState(11)
losses = []
for _ in range(4):
    text = Tensor(random.randint(0, VOCAB, (4, 11)), ms.int32)
    loss, grads = grad_fn(text[:, :-1], text[:, 1:])
    shrink()  # <- decay
    optimizer(grads)  # <- decay
    losses.append(float(loss.asnumpy()))
print(losses)
