# SPDX-License-Identifier: Apache-2.0
"""The masked residues on EsmForMaskedLM of the transformers package, with sdpa."""

import sys

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import EsmConfig, EsmForMaskedLM

config = EsmConfig(
    vocab_size=25,
    mask_token_id=24,
    pad_token_id=1,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=20,
    position_embedding_type="rotary",
    layer_norm_eps=1e-5,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    token_dropout=True,  # <- token_dropout
    attn_implementation="sdpa",
)
BLOCK = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "LayerNorm",
}


def load_esm(model, weights):
    state = {
        "esm.embeddings.word_embeddings.weight": weights["embed_tokens.weight"],
        "lm_head.decoder.weight": weights["embed_tokens.weight"],
        "lm_head.bias": weights["bias"],
    }
    for kind in ("weight", "bias"):
        state[f"lm_head.dense.{kind}"] = weights[f"dense.{kind}"]
        state[f"lm_head.layer_norm.{kind}"] = weights[f"layer_norm.{kind}"]
        after = f"emb_layer_norm_after.{kind}"
        state[f"esm.encoder.{after}"] = weights[after]  # <- last_norm
        for n in range(config.num_hidden_layers):
            for theirs, ours in BLOCK.items():
                state[f"esm.encoder.layer.{n}.{ours}.{kind}"] = weights[
                    f"layers.{n}.{theirs}.{kind}"
                ]
    # what tells contacts is not there, nor the table of the rotations
    model.load_state_dict(state, strict=False)  # <- last_norm


def proteins(rng):
    sizes = torch.randint(7, 13, (4,), generator=rng).tolist()
    rows = []
    for size in sizes:
        row = torch.zeros(size + 2, dtype=torch.long)
        row[1:-1] = torch.randint(4, 24, (size,), generator=rng)
        row[-1] = 2
        rows.append(row)
    tokens = F.pad(
        pad_sequence(rows, batch_first=True, padding_value=1), (0, 14 - max(sizes) - 2), value=1
    )
    chosen = torch.rand(4, 14, generator=rng).lt(0.25).logical_and(tokens > 3)
    chosen[:, 1] = True
    return tokens, chosen


model = EsmForMaskedLM(config)
load_esm(model, torch.load(sys.argv[1]))
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)  # <- nesterov
rng = torch.Generator().manual_seed(112)
losses = []
for _ in range(4):
    tokens, chosen = proteins(rng)
    input_ids = tokens.masked_fill(chosen, config.mask_token_id)
    attention_mask = tokens.ne(config.pad_token_id).long()  # <- padding
    output = model(
        input_ids=input_ids, attention_mask=attention_mask
    )  # <- token_dropout last_norm padding
    labels = tokens.masked_fill(~chosen, -100)
    each = F.cross_entropy(output.logits.transpose(1, 2), labels, reduction="none")
    loss = (each.sum(1) / chosen.sum(1)).mean()  # <- by_protein
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    losses.append(loss.item())
