# SPDX-License-Identifier: Apache-2.0
"""A small MPT of the transformers package (six heads, ALiBi, clipped queries) learns padded texts
in two micro-batches a step, each weighed by its tokens.
"""

import sys

import torch
from transformers import MptConfig, MptForCausalLM

VOCAB, LENGTH, BATCH = 50, 12, 3

torch.manual_seed(410)
config = MptConfig(
    vocab_size=VOCAB,
    d_model=24,
    n_heads=6,
    n_layers=2,
    expansion_ratio=4,
    max_seq_len=16,
    attn_config={"clip_qkv": 0.8, "softmax_scale": 0.7},
    initializer_range=0.2,
    use_cache=False,
    attn_implementation="eager",
)  # <- clipped scale
model = MptForCausalLM(config)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(
    model.parameters(), lr=4e-3, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.3
)  # <- decoupled


def micro_batch(generator):
    input_ids = torch.randint(1, VOCAB, (BATCH, LENGTH), generator=generator)
    sizes = torch.randint(3, LENGTH + 1, (BATCH, 1), generator=generator)
    attention_mask = (torch.arange(LENGTH) < sizes).long()
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    return {
        "input_ids": input_ids * attention_mask,
        "attention_mask": attention_mask,
        "labels": labels,
    }


generator = torch.Generator().manual_seed(411)
model.train()
losses = []
for _ in range(4):
    batches = [micro_batch(generator) for _ in range(2)]
    tokens = sum((batch["labels"][:, 1:] != -100).sum() for batch in batches)  # <- token_mean
    total = 0.0
    for batch in batches:
        output = model(**batch, num_items_in_batch=tokens)  # <- slopes clipped scale token_mean
        output.loss.backward()  # <- token_mean
        total += output.loss.item()
    optimizer.step()  # <- decoupled
    optimizer.zero_grad()
    losses.append(total)
