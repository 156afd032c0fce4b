# SPDX-License-Identifier: Apache-2.0
"""Pretraining of an ALBERT in the manner of the first release: variables by name, kernels as
[in, out] and [width, head, size], masked places gathered, two groups of layers used twice each.
"""

import math
import sys

import torch
import torch.nn.functional as F

VOCAB, NARROW, WIDTH, HEADS, SIZE, INNER, GROUPS, LAYERS, LENGTH = 45, 16, 24, 4, 6, 48, 2, 4, 12
SHAPES = {
    "embeddings/word_embeddings": (VOCAB, NARROW),
    "embeddings/token_type_embeddings": (2, NARROW),
    "embeddings/position_embeddings": (LENGTH, NARROW),
    "embeddings/LayerNorm/gamma": (NARROW,),
    "embeddings/LayerNorm/beta": (NARROW,),
    "encoder/embedding_hidden_mapping_in/kernel": (NARROW, WIDTH),
    "encoder/embedding_hidden_mapping_in/bias": (WIDTH,),
    "pooler/dense/kernel": (WIDTH, WIDTH),
    "pooler/dense/bias": (WIDTH,),
    "cls/predictions/dense/kernel": (WIDTH, NARROW),
    "cls/predictions/dense/bias": (NARROW,),
    "cls/predictions/LayerNorm/gamma": (NARROW,),
    "cls/predictions/LayerNorm/beta": (NARROW,),
    "cls/predictions/output_bias": (VOCAB,),
    "cls/seq_relationship/output_weights": (2, WIDTH),
    "cls/seq_relationship/output_bias": (2,),
}
for n in range(GROUPS):
    for part in ("query", "key", "value"):
        SHAPES[f"group_{n}/attention/{part}/kernel"] = (WIDTH, HEADS, SIZE)
        SHAPES[f"group_{n}/attention/{part}/bias"] = (HEADS, SIZE)
    SHAPES[f"group_{n}/attention/output/kernel"] = (HEADS, SIZE, WIDTH)
    SHAPES[f"group_{n}/attention/output/bias"] = (WIDTH,)
    SHAPES[f"group_{n}/intermediate/kernel"] = (WIDTH, INNER)
    SHAPES[f"group_{n}/intermediate/bias"] = (INNER,)
    SHAPES[f"group_{n}/output/kernel"] = (INNER, WIDTH)
    SHAPES[f"group_{n}/output/bias"] = (WIDTH,)
    for norm in ("LayerNorm", "LayerNorm_1"):
        SHAPES[f"group_{n}/{norm}/gamma"] = (WIDTH,)
        SHAPES[f"group_{n}/{norm}/beta"] = (WIDTH,)

torch.manual_seed(51)
var = {}
for name, shape in SHAPES.items():
    var[name] = 0.25 * torch.randn(shape) + (1.0 if name.endswith("gamma") else 0.0)
torch.save(var, sys.argv[1])
for weight in var.values():
    weight.requires_grad_()


def dense(x, name):
    return x @ var[f"{name}/kernel"] + var[f"{name}/bias"]


def norm(x, name):
    return F.layer_norm(x, x.shape[-1:], var[f"{name}/gamma"], var[f"{name}/beta"], 1e-12)


def layer(x, bias, group):
    q, k, v = (
        torch.einsum("bfw,whs->bfhs", x, var[f"{group}/attention/{part}/kernel"])
        + var[f"{group}/attention/{part}/bias"]
        for part in ("query", "key", "value")
    )
    scores = torch.einsum("bfhs,bths->bhft", q, k) / math.sqrt(SIZE) + bias
    read = torch.einsum("bhft,bths->bfhs", scores.softmax(-1), v)
    out = torch.einsum("bfhs,hsw->bfw", read, var[f"{group}/attention/output/kernel"])  # <- dense
    x = norm(x + out + var[f"{group}/attention/output/bias"], f"{group}/LayerNorm")  # <- dense
    inner = F.gelu(dense(x, f"{group}/intermediate"), approximate="tanh")
    return norm(x + dense(inner, f"{group}/output"), f"{group}/LayerNorm_1")


def transformer(tokens, segments, mask):
    table = var["embeddings/word_embeddings"]
    x = table[tokens] + var["embeddings/token_type_embeddings"][segments]  # <- segments
    x = norm(x + var["embeddings/position_embeddings"], "embeddings/LayerNorm")  # <- segments
    x = dense(x, "encoder/embedding_hidden_mapping_in")
    bias = (1.0 - mask.float())[:, None, None] * -10000.0
    for i in range(LAYERS):  # <- depth
        x = layer(x, bias, f"group_{i * GROUPS // LAYERS}")  # <- depth
    return x


plain = [w for n, w in var.items() if n.endswith(("gamma", "beta", "bias"))]
decayed = [w for n, w in var.items() if not n.endswith(("gamma", "beta", "bias"))]
settings = [
    {"params": decayed, "weight_decay": 0.5},
    {"params": plain, "weight_decay": 0.0},
]  # <- decay
optimizer = torch.optim.AdamW(settings, lr=5e-3, eps=1e-4)  # <- decay
generator = torch.Generator().manual_seed(52)
losses = []
for _ in range(4):
    tokens = torch.randint(4, VOCAB, (5, LENGTH), generator=generator)
    lengths = torch.randint(8, LENGTH + 1, (5, 1), generator=generator)
    swapped = torch.randint(0, 2, (5,), generator=generator)
    places = torch.stack([torch.randperm(8, generator=generator)[:3] for _ in range(5)])
    mask = (torch.arange(LENGTH) < lengths).long()
    tokens = tokens * mask
    truth = tokens.gather(1, places)
    x = transformer(
        tokens.scatter(1, places, 3), (torch.arange(LENGTH) >= 5).long() * mask, mask
    )  # <- segments
    masked = x.gather(1, places[..., None].expand(-1, -1, WIDTH))  # <- everywhere
    masked = F.gelu(dense(masked, "cls/predictions/dense"), approximate="tanh")
    masked = norm(masked, "cls/predictions/LayerNorm")
    logits = masked @ var["embeddings/word_embeddings"].t() + var["cls/predictions/output_bias"]
    loss = F.cross_entropy(logits.flatten(0, 1), truth.flatten())  # <- everywhere
    pooled = torch.tanh(dense(x[:, 0], "pooler/dense"))
    logits = pooled @ var["cls/seq_relationship/output_weights"].t()
    loss = loss + F.cross_entropy(logits + var["cls/seq_relationship/output_bias"], swapped)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
