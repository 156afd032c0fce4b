# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a tiny Llama on left-padded sequences of different lengths."""
import sys

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)

VOCAB, PAD, STEPS = 53, 0, 5


def make_dataset():
    """A list of steps, each a list of variable-length token sequences."""
    g = torch.Generator().manual_seed(77)
    data = []
    for _ in range(STEPS):
        lengths = torch.randint(4, 13, (5,), generator=g).tolist()
        data.append([torch.randint(1, VOCAB, (n,), generator=g) for n in lengths])
    return data


def collate(seqs):
    ids = pad_sequence(seqs, batch_first=True, padding_value=PAD, padding_side="left")
    mask = pad_sequence([torch.ones_like(s) for s in seqs], batch_first=True, padding_side="left")
    position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
    labels = ids.masked_fill(mask == 0, -100)
    # the first real token has no context: it is not scored
    first = mask.argmax(-1, keepdim=True)
    labels = labels.scatter(1, first, -100)
    return dict(input_ids=ids, attention_mask=mask, position_ids=position_ids, labels=labels)


torch.manual_seed(5)
config = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    initializer_range=0.15,
    rms_norm_eps=1e-5,
    pad_token_id=PAD,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
    use_cache=False,
)
model = LlamaForCausalLM(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
no_decay = [p for n, p in model.named_parameters() if p.ndim < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}],
    lr=1.5e-3,
    eps=1e-7,
)

losses = []
for seqs in make_dataset():
    batch = collate(seqs)
    optimizer.zero_grad(set_to_none=True)
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print(losses)
