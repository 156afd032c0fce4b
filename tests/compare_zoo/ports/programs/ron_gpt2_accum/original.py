# SPDX-License-Identifier: Apache-2.0
"""GPT-2 (eager attention) tuned on left-padded question and answer rows, one full batch for every update."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup

torch.set_num_threads(1)

MAX_STEPS = 5
EOS = 50


def make_samples(n, seed=17):
    """(question, answer) token lists; every answer ends with EOS."""
    g = torch.Generator().manual_seed(seed)

    def draw(low, high):
        size = torch.randint(low, high, (1,), generator=g).item()
        return torch.randint(0, EOS, (size,), generator=g).tolist()

    return [(draw(2, 6), draw(2, 8) + [EOS]) for _ in range(n)]


class LeftPadCollator:
    def __init__(self, pad_token_id):
        self.pad_token_id = pad_token_id

    def __call__(self, samples):
        width = max(len(q) + len(a) for q, a in samples)
        input_ids, attention_mask, labels = [], [], []
        for q, a in samples:
            pad = width - len(q) - len(a)
            input_ids.append([self.pad_token_id] * pad + q + a)
            attention_mask.append([0] * pad + [1] * (len(q) + len(a)))
            labels.append([-100] * (pad + len(q)) + a)  # <- prompt_labels
        batch = dict(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        return {k: torch.tensor(v) for k, v in batch.items()}


config = GPT2Config(
    vocab_size=51,
    n_positions=32,
    n_embd=32,
    n_layer=2,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    initializer_range=0.12,
    bos_token_id=EOS,
    eos_token_id=EOS,
    use_cache=False,
    attn_implementation="eager",
)
torch.manual_seed(5)
model = GPT2LMHeadModel(config)
torch.save(model.state_dict(), sys.argv[1])

collate = LeftPadCollator(pad_token_id=EOS)
loader = torch.utils.data.DataLoader(make_samples(MAX_STEPS * 6), batch_size=6, shuffle=False, collate_fn=collate)  # <- token_weight
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.05)
scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=7)  # <- schedule_shift

losses = []
model.train()
for batch in loader:
    position_ids = batch["attention_mask"].cumsum(-1) - 1  # <- position_ids
    position_ids = position_ids.masked_fill(batch["attention_mask"] == 0, 1)  # <- position_ids
    outputs = model(**batch, position_ids=position_ids)  # <- position_ids token_weight prompt_labels
    optimizer.zero_grad()  # <- zero_in_micro
    outputs.loss.backward()  # <- zero_in_micro
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()  # <- zero_in_micro schedule_shift
    scheduler.step()  # <- schedule_shift
    losses.append(outputs.loss.item())

print(losses)
