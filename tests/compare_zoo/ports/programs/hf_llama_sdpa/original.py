# SPDX-License-Identifier: Apache-2.0
"""Llama as the transformers package has it, of a tiny random configuration, attention eager."""

import sys

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=33,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
    initializer_range=0.2,
    rms_norm_eps=1e-5,
    attn_implementation="eager",
)
model = LlamaForCausalLM(config)  # <- theta
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = np.random.default_rng(3)
losses = []
for _ in range(2):
    ids = torch.from_numpy(rng.integers(0, 33, (3, 12)))
    loss = model(input_ids=ids, labels=ids).loss  # <- eps theta activation swapped mask
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate
    losses.append(loss.item())
