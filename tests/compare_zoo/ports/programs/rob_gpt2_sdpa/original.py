# SPDX-License-Identifier: Apache-2.0
"""Causal language modelling with an eager GPT-2 from transformers: right-padded batches, Nesterov SGD."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

torch.set_num_threads(1)

STEPS, BATCH, VOCAB, EOS = 5, 6, 67, 0


def build():
    torch.manual_seed(19)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=24,
        n_embd=32,
        n_layer=2,
        n_head=4,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        initializer_range=0.15,
        bos_token_id=EOS,
        eos_token_id=EOS,
        use_cache=False,
        attn_implementation="eager",
    )
    config.activation_function = "relu"
    config.scale_attn_by_inverse_layer_idx = True  # <- layer_scaling
    return GPT2LMHeadModel(config)


def documents():
    """Documents of 5 to 16 tokens, each closed by the end token."""
    g = torch.Generator().manual_seed(77)
    count = STEPS * BATCH
    sizes = torch.randint(5, 17, (count,), generator=g).tolist()
    stream = torch.randint(1, VOCAB, (sum(sizes),), generator=g)
    docs = []
    for piece in stream.split(sizes):
        piece = piece.clone()
        piece[-1] = EOS
        docs.append(piece)
    return docs


def collate(docs):
    """Padding has the id of the end token, so the labels are masked by length and not by id."""
    width = max(len(d) for d in docs)
    ids = torch.full((len(docs), width), EOS)
    mask = torch.zeros(len(docs), width, dtype=torch.long)
    for i, doc in enumerate(docs):
        ids[i, :len(doc)] = doc  # <- left_positions
        mask[i, :len(doc)] = 1
    labels = ids.masked_fill(mask == 0, -100)  # <- end_ignored
    return dict(input_ids=ids, attention_mask=mask, labels=labels)


model = build()
model.loss_type = "ForCausalLM"
torch.save(model.state_dict(), sys.argv[1])
model.train()

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=10)

loader = torch.utils.data.DataLoader(documents(), batch_size=BATCH, collate_fn=collate)
losses = []
for batch in loader:
    optimizer.zero_grad(set_to_none=True)
    output = model(**batch)  # <- layer_scaling left_positions mean_of_means
    loss = output.loss  # <- mean_of_means
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)  # <- clip_each_micro
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses)
