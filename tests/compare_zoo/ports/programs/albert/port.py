# SPDX-License-Identifier: Apache-2.0
"""The same ALBERT as one has it in Keras: a dictionary of variables, kernels with an axis of heads,
layers as functions, Adam with weight decay written out.
"""

import sys

import numpy as np
import torch

VOCAB, EMBED, UNITS, HEADS, DEPTH = 61, 16, 32, 4, 3
HEAD_SIZE = UNITS // HEADS


def einsum_dense(inputs, weights, equation="bsi,io->bso"):
    return torch.einsum(equation, inputs, weights["kernel"]) + weights["bias"]  # <- transposed


def layer_normalization(inputs, weights, epsilon=1e-12):
    mean = inputs.mean(-1, keepdim=True)
    variance = torch.square(inputs - mean).mean(-1, keepdim=True)
    inv = torch.rsqrt(variance + epsilon) * weights["gamma"]  # <- eps
    return inputs * inv + (weights["beta"] - mean * inv)


def gelu(x):
    return x * 0.5 * (1.0 + torch.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def embed(weights, word_ids, type_ids):
    vectors = weights["words"][word_ids]
    vectors = vectors + weights["positions"][None, : word_ids.shape[1]]
    vectors = vectors + weights["types"][type_ids]
    return layer_normalization(vectors, weights["norm"])


def self_attention(weights, x, keep):
    query = einsum_dense(x, weights["query"], "bsi,ind->bsnd")
    key = einsum_dense(x, weights["key"], "bsi,ind->bsnd")
    value = einsum_dense(x, weights["value"], "bsi,ind->bsnd")
    query = query * HEAD_SIZE**-0.5  # <- scale
    logits = torch.einsum("btnd,bfnd->bnft", key, query)
    logits = torch.where(keep[:, None, None, :], logits, -1e9)  # <- padding
    probabilities = torch.softmax(logits, dim=-1)
    context = torch.einsum("bnft,btnd->bfnd", probabilities, value)
    return einsum_dense(context, weights["output"], "bfnd,ndo->bfo")


def transformer_block(weights, x, keep):
    attention = self_attention(weights["attention"], x, keep)
    x = layer_normalization(x + attention, weights["attention_norm"])
    inner = gelu(einsum_dense(x, weights["intermediate"]))
    outer = einsum_dense(inner, weights["output"])
    return layer_normalization(x + outer, weights["output_norm"])  # <- residual


def call(variables, word_ids, type_ids):
    x = embed(variables["embedding"], word_ids, type_ids)
    x = einsum_dense(x, variables["projection"])
    for _ in range(DEPTH):
        x = transformer_block(variables["block"], x, word_ids != 0)
    first = torch.tanh(einsum_dense(x[:, 0], variables["pooler"], "bi,io->bo"))
    order_logits = einsum_dense(first, variables["order"], "bi,io->bo")
    head = variables["masked_lm"]
    x = gelu(einsum_dense(x, head["transform"]))  # <- activation
    x = layer_normalization(x, head["norm"])  # <- activation
    logits = torch.einsum("bse,ve->bsv", x, variables["embedding"]["words"])
    return logits + head["output_bias"], order_logits


def sparse_crossentropy(logits, labels):
    return torch.logsumexp(logits, -1) - logits.gather(-1, labels[..., None]).squeeze(-1)


def convert(checkpoint):
    def norm(name):
        return {"gamma": checkpoint[f"{name}.weight"], "beta": checkpoint[f"{name}.bias"]}

    def dense(name):
        return {"kernel": checkpoint[f"{name}.weight"].T, "bias": checkpoint[f"{name}.bias"]}

    def into_heads(name):
        kernel = checkpoint[f"{name}.weight"].T.reshape(UNITS, HEADS, HEAD_SIZE)  # <- transposed
        return {"kernel": kernel, "bias": checkpoint[f"{name}.bias"].reshape(HEADS, HEAD_SIZE)}

    layer = "albert.albert_layer"
    merge = dense(f"{layer}.attention.dense")
    merge["kernel"] = merge["kernel"].reshape(HEADS, HEAD_SIZE, UNITS)
    attention = {n: into_heads(f"{layer}.attention.{n}") for n in ("query", "key", "value")}
    return {
        "embedding": {
            "words": checkpoint["albert.embeddings.word_embeddings.weight"],
            "positions": checkpoint["albert.embeddings.position_embeddings.weight"],
            "types": checkpoint["albert.embeddings.token_type_embeddings.weight"],
            "norm": norm("albert.embeddings.LayerNorm"),
        },
        "projection": dense("albert.embedding_hidden_mapping_in"),
        "block": {
            "attention": attention | {"output": merge},
            "attention_norm": norm(f"{layer}.attention.LayerNorm"),
            "intermediate": dense(f"{layer}.ffn"),
            "output": dense(f"{layer}.ffn_output"),
            "output_norm": norm(f"{layer}.full_layer_layer_norm"),
        },
        "pooler": dense("albert.pooler"),
        "order": dense("sop_classifier"),
        "masked_lm": {
            "transform": dense("dense"),
            "norm": norm("LayerNorm"),
            "output_bias": checkpoint["bias"],
        },
    }


def variables_of(tree, path=()):
    for name, branch in tree.items():
        if isinstance(branch, dict):
            yield from variables_of(branch, (*path, name))
        else:
            yield (*path, name), branch


class AdamWeightDecay:
    def __init__(self, named, learning_rate, weight_decay):
        self.named, self.rate, self.decay, self.iterations = named, learning_rate, weight_decay, 0
        self.m = [torch.zeros_like(v) for _, v in named]
        self.v = [torch.zeros_like(v) for _, v in named]

    @torch.no_grad()
    def apply_gradients(self, gradients):
        self.iterations += 1
        first, second = 1 - 0.9**self.iterations, 1 - 0.999**self.iterations
        for i, ((path, variable), gradient) in enumerate(zip(self.named, gradients)):
            self.m[i] = 0.9 * self.m[i] + 0.1 * gradient
            self.v[i] = 0.999 * self.v[i] + 0.001 * gradient**2
            if path[-1] not in ("bias", "output_bias", "gamma", "beta"):
                variable.mul_(1 - self.rate * self.decay)
            root = torch.sqrt(self.v[i] / second) + 1e-6  # <- correction
            variable.sub_(self.rate * (self.m[i] / first) / root)  # <- correction


def batch_of(rng, size=4, length=14):
    words = rng.integers(5, VOCAB, (size, length))
    ends = rng.integers(length // 2, length + 1, size)[:, None]
    places = np.arange(length)[None]
    words[places >= ends] = 0
    types = ((places >= ends // 2) & (places < ends)).astype(np.int64)
    chosen = (rng.random((size, length)) < 0.3) & (places < ends)
    order = rng.integers(0, 2, size)
    corrupted = words.copy()
    corrupted[chosen] = 4
    return [torch.tensor(a) for a in (corrupted, types, words, chosen.astype(np.float32), order)]


variables = convert(torch.load(sys.argv[1]))
named = [(path, v.requires_grad_()) for path, v in variables_of(variables)]
optimizer = AdamWeightDecay(named, learning_rate=2e-3, weight_decay=0.01)
rng = np.random.default_rng(12)
losses = []
for _ in range(3):
    word_ids, type_ids, targets, weights, order = batch_of(rng)
    logits, order_logits = call(variables, word_ids, type_ids)
    each = sparse_crossentropy(logits, targets) * weights
    masked_loss = each.sum() / weights.sum()  # <- reduction
    loss = masked_loss + sparse_crossentropy(order_logits, order).mean()
    optimizer.apply_gradients(torch.autograd.grad(loss, [v for _, v in named]))
    losses.append(loss.item())
