# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning of a tiny Qwen3 on left-padded chat turns, eager attention, one batch per step."""
import math
import sys

import torch
import torch.nn.functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.set_num_threads(1)

VOCAB, PAD, SEQ, ROWS, STEPS = 67, 0, 14, 4, 5

config = Qwen3Config(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    rms_norm_eps=1e-6,
    rope_parameters={"rope_type": "default", "rope_theta": 1000.0},  # <- rope_base
    initializer_range=0.12,
    tie_word_embeddings=True,
    attention_dropout=0.0,
    pad_token_id=PAD,
    bos_token_id=None,
    eos_token_id=None,
    attn_implementation="eager",
)


def make_batch(generator):
    """Rows of prompt and answer, padded on the left; labels only on the answer."""
    ids = torch.full((ROWS, SEQ), PAD)
    mask = torch.zeros(ROWS, SEQ, dtype=torch.long)
    labels = torch.full((ROWS, SEQ), -100)
    for row in range(ROWS):
        prompt = int(torch.randint(2, 6, (1,), generator=generator))
        answer = int(torch.randint(2, 9, (1,), generator=generator))
        text = torch.randint(1, VOCAB, (prompt + answer,), generator=generator)
        ids[row, SEQ - prompt - answer:] = text
        mask[row, SEQ - prompt - answer:] = 1
        labels[row, SEQ - answer:] = text[prompt:]
    return ids, mask, labels


def lr_factor(update):
    """Linear warm-up over two updates, then cosine over eight."""
    if update < 2:
        return (update + 1) / 2
    return 0.5 * (1.0 + math.cos(math.pi * (update - 2) / 8))


torch.manual_seed(611)
model = Qwen3ForCausalLM(config)
model.train()
torch.save({k: v.clone() for k, v in model.state_dict().items()}, sys.argv[1])

optimizer = torch.optim.AdamW(  # <- bias_correction_2
    model.parameters(), lr=6e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)

generator = torch.Generator().manual_seed(1234)
losses = []
for _ in range(STEPS):
    ids, mask, labels = make_batch(generator)
    out = model(input_ids=ids, attention_mask=mask, use_cache=False)  # <- mask_dropped rope_base
    logits = out.logits[:, :-1].reshape(-1, VOCAB)
    loss = F.cross_entropy(logits, labels[:, 1:].reshape(-1), ignore_index=-100)  # <- mean_of_means
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- bias_correction_2
    scheduler.step()  # <- sched_per_micro
    losses.append(loss.item())

print(losses)
