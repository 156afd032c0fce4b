# SPDX-License-Identifier: Apache-2.0
"""Pre-trains a tiny GPT-NeoX with Hugging Face transformers, AdamW, clipping and warm-up."""
import sys

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

torch.set_num_threads(1)

VOCAB, SEQ, BATCH, STEPS, WARMUP = 61, 12, 4, 5, 2


def build_model():
    torch.manual_seed(11)
    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=32,
        rotary_pct=0.5,
        hidden_act="gelu",
        initializer_range=0.12,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        use_parallel_residual=True,
        tie_word_embeddings=False,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPTNeoXForCausalLM(config)


def batches():
    g = torch.Generator().manual_seed(2024)
    for _ in range(STEPS):
        ids = torch.randint(0, VOCAB, (BATCH, SEQ), generator=g)
        yield {"input_ids": ids, "labels": ids.clone()}


def warmup_then_linear(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return max(0.0, (STEPS + 2 - step) / (STEPS + 2 - WARMUP))


model = build_model()
torch.save(model.state_dict(), sys.argv[1])
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
scheduler = LambdaLR(optimizer, warmup_then_linear)

losses = []
for batch in batches():
    out = model(**batch)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    losses.append(out.loss.item())

print(losses)
