# SPDX-License-Identifier: Apache-2.0
"""Instruction tuning of a tiny Mistral (sliding window, grouped keys) with transformers and a plain loop."""
import sys

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import MistralConfig, MistralForCausalLM

torch.set_num_threads(1)
torch.manual_seed(11)

STEPS, WARMUP, BATCH, SEQ = 5, 3, 4, 14

config = MistralConfig(  # <- window
    vocab_size=61,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    sliding_window=5,  # <- window
    rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
    initializer_range=0.15,
    attention_dropout=0.0,
    use_cache=False,
    attn_implementation="eager",
)
model = MistralForCausalLM(config)  # <- qk_layout
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.add_(0.1 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])


def get_batch(step):
    """Prompt and answer of random lengths in one row; the prompt does not count in the loss."""
    g = torch.Generator().manual_seed(500 + step)
    ids = torch.randint(3, config.vocab_size, (BATCH, SEQ), generator=g)
    prompt_len = torch.randint(2, 7, (BATCH,), generator=g)
    labels = ids.clone()
    for row, n in enumerate(prompt_len.tolist()):
        labels[row, :n] = -100  # <- prompt_labels
    return ids, labels


no_decay = ["norm.weight", "layernorm.weight"]  # <- decay_norms
groups = [  # <- decay_norms
    {
        "params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
        "weight_decay": 0.1,
    },
    {
        "params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)],
        "weight_decay": 0.0,  # <- decay_norms
    },
]
optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95), eps=1e-7)
scheduler = LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / WARMUP))  # <- warmup

losses = []
model.train()
for step in range(STEPS):
    input_ids, labels = get_batch(step)
    out = model(input_ids=input_ids, labels=labels)  # <- window qk_layout prompt_labels
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay_norms warmup
    scheduler.step()  # <- warmup
    optimizer.zero_grad()
    losses.append(out.loss.item())

print(losses)
