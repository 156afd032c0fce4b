# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a tiny Qwen2 causal language model on right-padded sequences."""
import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, get_cosine_schedule_with_warmup

torch.set_num_threads(1)

SEED = 1234
STEPS = 5
BATCH = 4
MAX_LEN = 14
VOCAB = 61
PAD = 0
LEARNING_RATE = 1e-2
WEIGHT_DECAY = 0.1
MAX_GRAD_NORM = 0.3


def build_model():
    torch.manual_seed(SEED)
    sizes = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    heads = dict(num_attention_heads=4, num_key_value_heads=2)  # <- kv_repeat
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = Qwen2Config(**sizes, **heads, rms_norm_eps=1e-5, rope_parameters=rope)  # <- norm_eps
    config.initializer_range = 0.03
    config.tie_word_embeddings = True
    config.max_position_embeddings = 64
    return Qwen2ForCausalLM(config)


def tokenise(generator):
    """Stand-in for the tokeniser: ragged documents of random ids (never PAD)."""
    documents = []
    for _ in range(STEPS * BATCH):
        length = int(torch.randint(5, MAX_LEN + 1, (1,), generator=generator))
        documents.append(torch.randint(1, VOCAB, (length,), generator=generator))
    return documents


def collate(documents):
    width = max(len(d) for d in documents)
    input_ids = torch.full((len(documents), width), PAD)
    attention_mask = torch.zeros_like(input_ids)
    for row, document in enumerate(documents):
        input_ids[row, : len(document)] = document
        attention_mask[row, : len(document)] = 1
    labels = input_ids.clone()
    labels[attention_mask == 0] = -100  # <- pad_labels
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def parameter_groups(model):
    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        (no_decay if parameter.ndim < 2 else decay).append(parameter)  # <- decay_norms
    return [
        {"params": decay, "weight_decay": WEIGHT_DECAY},
        {"params": no_decay, "weight_decay": 0.0},
    ]


model = build_model()
torch.save(model.state_dict(), sys.argv[1])

documents = tokenise(torch.Generator().manual_seed(SEED + 1))
loader = torch.utils.data.DataLoader(documents, batch_size=BATCH, shuffle=False, collate_fn=collate)

optimizer = torch.optim.AdamW(parameter_groups(model), lr=LEARNING_RATE, betas=(0.9, 0.95))  # <- decay_norms
scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=8)

losses = []
model.train()
for batch in loader:
    output = model(**batch)  # <- norm_eps kv_repeat pad_labels
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)  # <- clip_scope
    optimizer.step()  # <- decay_norms
    scheduler.step()
    optimizer.zero_grad()
    losses.append(output.loss.item())

print(losses)
