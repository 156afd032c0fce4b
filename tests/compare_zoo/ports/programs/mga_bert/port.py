# SPDX-License-Identifier: Apache-2.0
"""The BERT pre-training step on top of torch.nn.TransformerEncoder."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

D_MODEL, N_HEAD, N_LAYER, N_VOCAB, MAX_LEN = 32, 4, 2, 80, 16
NAMES = {
    "output.weight": "self_attn.out_proj.weight", "output.bias": "self_attn.out_proj.bias",
    "intermediate.weight": "linear1.weight", "intermediate.bias": "linear1.bias",
    "output_dense.weight": "linear2.weight", "output_dense.bias": "linear2.bias",
    "attention_norm.weight": "norm1.weight", "attention_norm.bias": "norm1.bias",
    "output_norm.weight": "norm2.weight", "output_norm.bias": "norm2.bias",
}


class Pretrainer(nn.Module):
    def __init__(self):
        super().__init__()
        # words, positions and segments live in one table, one after the other
        self.table = nn.Parameter(torch.zeros(N_VOCAB + MAX_LEN + 2, D_MODEL))
        self.embed_norm = nn.LayerNorm(D_MODEL, eps=1e-12)  # <- norm_eps
        layer = nn.TransformerEncoderLayer(
            D_MODEL, N_HEAD, dim_feedforward=2 * D_MODEL, dropout=0.0, activation="gelu",
            layer_norm_eps=1e-12, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, N_LAYER, enable_nested_tensor=False)
        self.pool = nn.Sequential(nn.Linear(D_MODEL, D_MODEL), nn.Tanh(),  # <- pool_act
                                  nn.Linear(D_MODEL, 2))
        self.mlm = nn.Sequential(nn.Linear(D_MODEL, D_MODEL), nn.GELU(),
                                 nn.LayerNorm(D_MODEL, eps=1e-12))
        self.mlm_bias = nn.Parameter(torch.zeros(N_VOCAB))

    def load_original(self, old):
        e = "embeddings."
        new = {"table": torch.cat([old[e + "word_embeddings.weight"],
                                   old[e + "position_embeddings.weight"],
                                   old[e + "token_type_embeddings.weight"]]),
               "mlm_bias": old["decoder_bias"]}
        for end in ("weight", "bias"):
            new["embed_norm." + end] = old[e + "LayerNorm." + end]
            new["pool.0." + end] = old["pooler." + end]
            new["pool.2." + end] = old["seq_relationship." + end]
            new["mlm.0." + end] = old["transform." + end]
            new["mlm.2." + end] = old["transform_norm." + end]
            for i in range(N_LAYER):
                qkv = [old[f"layer.{i}.{part}.{end}"] for part in ("query", "key", "value")]
                new[f"encoder.layers.{i}.self_attn.in_proj_{end}"] = torch.cat(qkv)
        for i in range(N_LAYER):
            for theirs, ours in NAMES.items():
                new[f"encoder.layers.{i}.{ours}"] = old[f"layer.{i}.{theirs}"]
        self.load_state_dict(new)

    def forward(self, tokens, segments):
        padding = tokens.eq(0)  # <- pad_mask
        places = torch.arange(tokens.size(1)) + N_VOCAB
        rows = torch.stack([tokens, places.expand_as(tokens), segments + N_VOCAB + MAX_LEN])
        x = self.embed_norm(F.embedding(rows, self.table).sum(0))  # <- norm_eps
        memory = self.encoder(x, src_key_padding_mask=padding)  # <- pad_mask
        return memory, self.pool(memory.select(1, 0))  # <- pool_act

    def words(self, memory):
        return F.linear(self.mlm(memory), self.table[:N_VOCAB], self.mlm_bias)


@torch.no_grad()
def adam_update(params, first, second, lr, b1=0.9, b2=0.999, eps=1e-6):
    grads = [p.grad for p in params]
    torch._foreach_mul_(first, b1)
    torch._foreach_add_(first, grads, alpha=1 - b1)
    torch._foreach_mul_(second, b2)
    torch._foreach_addcmul_(second, grads, grads, value=1 - b2)
    for p, m, v in zip(params, first, second):
        p.addcdiv_(m, v.sqrt().add_(eps), value=-lr)  # <- bias_corr


saved = torch.load(sys.argv[1], weights_only=True)
net = Pretrainer()
net.load_original(saved["model"])
params = list(net.parameters())
first = [torch.zeros_like(p) for p in params]
second = [torch.zeros_like(p) for p in params]
losses = []
for count, (tokens, _, segments, labels, is_next) in enumerate(saved["batches"], start=1):
    for p in params:
        p.grad = None
    memory, relation = net(tokens, segments)
    wanted = labels.ge(0)
    scores, gold = net.words(memory[wanted]), labels[wanted]
    word_loss = F.cross_entropy(scores, gold, reduction="sum") / gold.numel()  # <- mlm_mean
    pair_loss = F.nll_loss(F.log_softmax(relation, dim=-1), is_next)  # <- pool_act
    total = word_loss + pair_loss  # <- mlm_mean
    total.backward()
    adam_update(params, first, second, lr=3e-3)  # <- bias_corr
    losses.append(total.item())
print(losses)
