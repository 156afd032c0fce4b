# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V2 as the transformers package has it, tiny, random and without experts: it reads."""

import sys

import numpy as np
import torch
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

torch.manual_seed(23)
config = DeepseekV2Config(
    vocab_size=39,
    hidden_size=32,
    intermediate_size=44,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=20,
    kv_lora_rank=16,
    qk_nope_head_dim=8,
    qk_rope_head_dim=4,
    v_head_dim=8,
    first_k_dense_replace=2,
    rms_norm_eps=1e-4,
    max_position_embeddings=32,
    initializer_range=0.2,
)
model = DeepseekV2ForCausalLM(config).eval()
with torch.no_grad():
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.uniform_(0.5, 1.5)
torch.save(model.state_dict(), sys.argv[1])
rng = np.random.default_rng(29)
losses = []
for _ in range(3):
    ids = torch.from_numpy(rng.integers(0, 39, (2, 11)))
    with torch.no_grad():
        logits = model(ids).logits  # <- pairs scale latentnorm kvsplit latenteps gateup
    losses.append(logits.square().mean().item())
