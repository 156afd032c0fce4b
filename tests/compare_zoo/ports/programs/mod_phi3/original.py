# SPDX-License-Identifier: Apache-2.0
"""Phi-3 of the transformers package, tiny, finetuned on padded sequences with a warmed-up AdamW."""

import sys

import torch
from transformers import Phi3Config, Phi3ForCausalLM, get_cosine_schedule_with_warmup

torch.manual_seed(7)
config = Phi3Config(
    vocab_size=41,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    original_max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5},
    sliding_window=5,
    initializer_range=0.15,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    use_cache=False,
)
model = Phi3ForCausalLM(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.copy_(1 + 0.2 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for p in model.parameters() if p.ndim < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.98), eps=1e-6)  # <- decay
scheduler = get_cosine_schedule_with_warmup(optimizer, 2, 8)  # <- warmup

g = torch.Generator().manual_seed(8)
losses = []
model.train()
for _ in range(4):
    input_ids = torch.randint(3, 41, (3, 12), generator=g)
    lengths = torch.randint(6, 13, (3,), generator=g)
    labels = input_ids.masked_fill(torch.arange(12) >= lengths[:, None], -100)
    output = model(input_ids=input_ids, labels=labels)  # <- rotary gate window ignored
    output.loss.backward()
    optimizer.step()  # <- decay warmup
    scheduler.step()  # <- warmup
    optimizer.zero_grad()
    losses.append(output.loss.item())
