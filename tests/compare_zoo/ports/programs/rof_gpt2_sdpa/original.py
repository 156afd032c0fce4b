# SPDX-License-Identifier: Apache-2.0
"""Train a tiny GPT-2 (eager attention) on left-padded batches with gradient accumulation."""
import sys

import torch
from torch.optim import AdamW
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

torch.set_num_threads(1)

UPDATES = 5
ACCUMULATE = 2
MICRO_BATCH = 3
VOCAB = 53
MAX_NORM = 1.0


def read_documents(seed):
    """Ragged token lists, the stand-in for a tokenised file."""
    generator = torch.Generator().manual_seed(seed)
    documents = []
    for _ in range(UPDATES * ACCUMULATE * MICRO_BATCH):
        length = int(torch.randint(4, 17, (1,), generator=generator))
        documents.append(torch.randint(0, VOCAB, (length,), generator=generator).tolist())
    return documents


def left_pad(documents, pad_id=0):
    width = max(map(len, documents))
    input_ids = torch.tensor([[pad_id] * (width - len(d)) + d for d in documents])
    attention_mask = torch.tensor([[0] * (width - len(d)) + [1] * len(d) for d in documents])
    position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)  # <- positions
    # the first word of a document has only padding before it: nothing to predict it from
    labels = torch.where(position_ids > 0, input_ids, -100)  # <- pad_predicts
    return dict(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, labels=labels)


def micro_batches(documents):
    for start in range(0, len(documents), MICRO_BATCH):
        yield left_pad(documents[start : start + MICRO_BATCH])


torch.manual_seed(50)
config = GPT2Config(
    vocab_size=VOCAB,
    bos_token_id=None,
    eos_token_id=None,
    n_positions=24,
    n_embd=32,
    n_layer=2,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    initializer_range=0.1,
    attn_implementation="eager",
)
model = GPT2LMHeadModel(config)
torch.save(model.transformer.state_dict(), sys.argv[1])

weights = [p for p in model.parameters() if p.dim() >= 2]  # <- decay_names
others = [p for p in model.parameters() if p.dim() < 2]  # <- decay_names
optimizer = AdamW([{"params": weights}, {"params": others, "weight_decay": 0.0}], lr=1e-2, weight_decay=0.1)  # <- decay_names
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=10)

model.train()
losses = []
stream = micro_batches(read_documents(51))
for update in range(UPDATES):
    window = [next(stream) for _ in range(ACCUMULATE)]
    # every token of the window weighs the same, whichever micro batch it is in
    tokens = sum((batch["labels"][:, 1:] != -100).sum() for batch in window)  # <- token_mean
    total = 0.0
    for batch in window:
        loss = model(**batch, use_cache=False, num_items_in_batch=tokens).loss  # <- token_mean positions pad_predicts
        loss.backward()  # <- zero_grad_place
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()  # <- decay_names
    scheduler.step()
    optimizer.zero_grad()  # <- zero_grad_place
    losses.append(total)

print(losses)
