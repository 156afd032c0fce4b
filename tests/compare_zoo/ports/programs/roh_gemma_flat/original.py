# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a tiny Gemma on right-padded synthetic sequences with AdamW and a warm-up cosine schedule."""
import math
import sys

import torch
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from transformers import GemmaConfig, GemmaForCausalLM

torch.set_num_threads(1)

STEPS = 5
WARMUP = 2
BATCH = 4
MAX_LEN = 14


class ArithmeticText(Dataset):
    """Sequences in which every token follows from the previous one, with some noise."""

    def __init__(self, count, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            length = int(torch.randint(7, MAX_LEN + 1, (1,), generator=g))
            start = int(torch.randint(1, vocab, (1,), generator=g))
            stride = int(torch.randint(1, 5, (1,), generator=g))
            noise = torch.randint(0, 2, (length,), generator=g)
            ids = (start + stride * torch.arange(length) + noise) % (vocab - 1) + 1
            self.rows.append(ids)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    input_ids = torch.zeros(len(rows), MAX_LEN, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    labels = torch.full_like(input_ids, -100)
    for i, ids in enumerate(rows):
        input_ids[i, : len(ids)] = ids
        attention_mask[i, : len(ids)] = 1
        labels[i, : len(ids)] = ids
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def build_model():
    torch.manual_seed(11)
    config = GemmaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,  # <- kv_tiled
        head_dim=8,
        hidden_act="gelu_pytorch_tanh",  # <- gelu_exact
        max_position_embeddings=64,
        initializer_range=0.4,
        pad_token_id=0,
        use_cache=False,
        attn_implementation="eager",
    )
    return GemmaForCausalLM(config)


def lr_factor(step):
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


model = build_model()
torch.save(model.state_dict(), sys.argv[1])
model.train()

matrices = [p for p in model.parameters() if p.dim() >= 2]
vectors = [p for p in model.parameters() if p.dim() < 2]
optimizer = AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=6e-3, betas=(0.9, 0.95), eps=1e-6)  # <- no_bias_correction
scheduler = LambdaLR(optimizer, lr_factor)
loader = DataLoader(ArithmeticText(BATCH * STEPS, 61, seed=5), batch_size=BATCH, collate_fn=collate)

losses = []
for batch in loader:
    loss = model(**batch).loss  # <- gelu_exact kv_tiled embed_unscaled
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_each_tensor
    optimizer.step()  # <- no_bias_correction
    scheduler.step()
    optimizer.zero_grad()
    losses.append(loss.item())

print(losses)
