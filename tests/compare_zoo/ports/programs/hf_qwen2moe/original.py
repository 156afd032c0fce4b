# SPDX-License-Identifier: Apache-2.0
"""Qwen2-MoE as the transformers package has it, tiny and random, gradients of two batches a step."""

import sys

import numpy as np
import torch
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

torch.manual_seed(11)
config = Qwen2MoeConfig(
    vocab_size=37,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=28,
    num_experts=5,
    num_experts_per_tok=2,
    norm_topk_prob=False,
    output_router_logits=True,
    router_aux_loss_coef=0.02,
    max_position_embeddings=32,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    initializer_range=0.2,
    use_cache=False,
)
model = Qwen2MoeForCausalLM(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
rng = np.random.default_rng(13)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(2):
        ids = torch.from_numpy(rng.integers(0, 37, (2, 10)))
        out = model(input_ids=ids, labels=ids)  # <- renormed coefficient shared repeat theta
        loss = out.loss / 2  # <- accumulated
        loss.backward()  # <- accumulated
        total += loss.item()
    optimizer.step()  # <- accumulated
    losses.append(total)
