# SPDX-License-Identifier: Apache-2.0
"""Gemma 2 as the transformers package has it, of a tiny random configuration, fine-tuned."""

import sys

import numpy as np
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

torch.manual_seed(5)
config = Gemma2Config(
    vocab_size=41,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    query_pre_attn_scalar=24,
    sliding_window=4,
    attn_logit_softcapping=4.0,
    final_logit_softcapping=6.0,
    max_position_embeddings=32,
    initializer_range=0.15,
    attn_implementation="eager",
)
model = Gemma2ForCausalLM(config)
with torch.no_grad():
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.normal_(0.0, 0.2)
torch.save(model.state_dict(), sys.argv[1])
decayed = [w for n, w in model.named_parameters() if "norm" not in n]
kept = [w for n, w in model.named_parameters() if "norm" in n]  # <- decay
groups = [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]  # <- decay
optimizer = torch.optim.AdamW(groups, lr=5e-3, weight_decay=0.1)
rng = np.random.default_rng(7)
losses = []
for _ in range(3):
    ids = torch.from_numpy(rng.integers(3, 41, (3, 11)))
    loss = model(input_ids=ids, labels=ids).loss  # <- offset window groups scale final
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay
    losses.append(loss.item())
