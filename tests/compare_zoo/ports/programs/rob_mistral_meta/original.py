# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning of a tiny Mistral with transformers: prompts masked out of the labels, cosine schedule."""
import sys

import torch
from transformers import MistralConfig, MistralForCausalLM, get_cosine_schedule_with_warmup

torch.set_num_threads(1)

STEPS, BATCH, LENGTH, VOCAB, PAD = 5, 4, 16, 61, 0


def build_model():
    torch.manual_seed(11)
    config = MistralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.15,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        attention_dropout=0.0,
        pad_token_id=PAD,
    )
    config.rope_parameters = {"rope_type": "default", "rope_theta": 100.0}  # <- rope_rows
    config.sliding_window = 5  # <- window_edge
    return MistralForCausalLM(config)


def collate(examples):
    """Right-pad (prompt, answer) pairs; only the answer is a target."""
    ids = torch.full((len(examples), LENGTH), PAD)
    labels = torch.full((len(examples), LENGTH), -100)
    mask = torch.zeros(len(examples), LENGTH, dtype=torch.long)
    for row, (prompt, answer) in enumerate(examples):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.cat([prompt, answer])
        labels[row, len(prompt):end] = answer
        mask[row, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def make_examples():
    g = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, VOCAB, (STEPS * BATCH, LENGTH), generator=g)
    prompts = torch.randint(2, 6, (STEPS * BATCH,), generator=g).tolist()
    totals = torch.randint(8, LENGTH + 1, (STEPS * BATCH,), generator=g).tolist()
    return [(row[:p], row[p:n]) for row, p, n in zip(tokens, prompts, totals)]


def parameter_groups(model, decay):
    with_decay, without = [], []
    for name, param in model.named_parameters():
        (without if "norm" in name else with_decay).append(param)  # <- decay_norms
    return [{"params": with_decay, "weight_decay": decay}, {"params": without, "weight_decay": 0.0}]  # <- decay_norms


model = build_model()
torch.save(model.state_dict(), sys.argv[1])
model.train()
optimizer = torch.optim.AdamW(parameter_groups(model, 0.5), lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=8)  # <- warmup_late

examples = make_examples()
losses = []
for step in range(STEPS):
    batch = collate(examples[step * BATCH:(step + 1) * BATCH])
    out = model(**batch)  # <- rope_rows window_edge mean_per_row
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay_norms
    scheduler.step()  # <- warmup_late
    optimizer.zero_grad()
    losses.append(out.loss.item())
print(losses)
