# SPDX-License-Identifier: Apache-2.0
"""Fine tuning of Qwen3ForCausalLM of the transformers package over padded texts, with two
micro-batches a step, decay groups, a warm-up and clipping.
"""

import sys

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB, PAD, MICRO, LENGTH, STEPS = 48, 0, 2, 10, 4
torch.manual_seed(70)
config = Qwen3Config(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=12,
    max_position_embeddings=32,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},  # <- theta
    tie_word_embeddings=True,
    initializer_range=0.15,
    pad_token_id=PAD,
    use_cache=False,
    attn_implementation="sdpa",
)
model = Qwen3ForCausalLM(config)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.add_(0.3 * torch.randn(parameter.shape))
torch.save(model.state_dict(), sys.argv[1])


def micro_batch(generator):
    ids = torch.randint(1, VOCAB, (3, LENGTH), generator=generator)
    lengths = torch.randint(4, LENGTH + 1, (3, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    ids = ids * mask
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
    }


decayed = [p for n, p in model.named_parameters() if "norm" not in n]
spared = [p for n, p in model.named_parameters() if "norm" in n]
optimizer = torch.optim.AdamW(
    [
        {"params": decayed, "weight_decay": 0.1},
        {"params": spared, "weight_decay": 0.0},  # <- decay
    ],
    lr=4e-3,
    betas=(0.9, 0.95),
    eps=1e-6,
)
scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
generator = torch.Generator().manual_seed(71)
model.train()
losses = []
for _ in range(STEPS):
    batches = [micro_batch(generator) for _ in range(MICRO)]
    items = sum((batch["labels"][:, 1:] != -100).sum() for batch in batches)  # <- tokens
    total = 0.0
    for batch in batches:
        output = model(**batch, num_items_in_batch=items)  # <- groups norm_order theta tokens
        output.loss.backward()
        total += output.loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay
    scheduler.step()
    optimizer.zero_grad()
    losses.append(total)
