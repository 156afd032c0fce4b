# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny BloomForCausalLM of transformers with gradient accumulation over unequal micro batches."""
import sys

import torch
from transformers import BloomConfig, BloomForCausalLM

torch.set_num_threads(1)

VOCAB, PAD, EOS = 58, 0, 2
UPDATES, ACCUMULATE, MICRO = 5, 3, 2

config = BloomConfig(
    vocab_size=VOCAB,
    hidden_size=48,
    n_layer=2,
    n_head=6,  # <- alibi_slopes
    layer_norm_epsilon=1e-5,
    initializer_range=0.15,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    pad_token_id=PAD,
    eos_token_id=EOS,
    apply_residual_connection_post_layernorm=False,  # <- post_ln_residual
    use_cache=False,
)


def fresh_model():
    torch.manual_seed(90)
    model = BloomForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
    return model


class Stories(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = torch.randint(4, 18, (1,), generator=g).item()
            self.rows.append(torch.randint(3, VOCAB, (length,), generator=g).tolist() + [EOS])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad(rows):
    width = max(map(len, rows))
    ids = torch.tensor([r + [PAD] * (width - len(r)) for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def micro_batches(loader, count):
    """Groups of micro batches, each with the number of tokens that bear a loss in the group."""
    it = iter(loader)
    for _ in range(count):
        group = [next(it) for _ in range(ACCUMULATE)]
        tokens = sum((b["labels"][:, 1:] != -100).sum() for b in group)  # <- token_norm
        yield group, tokens


model = fresh_model()
torch.save(model.state_dict(), sys.argv[1])
model.train()

no_decay = [p for n, p in model.named_parameters() if p.ndim < 2]
decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
optimizer = torch.optim.NAdam(  # <- nadam_lookahead
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
    lr=2e-3, betas=(0.9, 0.98), eps=1e-6, decoupled_weight_decay=True,
)
loader = torch.utils.data.DataLoader(Stories(UPDATES * ACCUMULATE * MICRO, seed=9), batch_size=MICRO, collate_fn=pad)

losses = []
for group, tokens in micro_batches(loader, UPDATES):
    optimizer.zero_grad()
    total = 0.0
    for batch in group:
        out = model(**batch, num_items_in_batch=tokens)  # <- alibi_slopes token_norm post_ln_residual
        out.loss.backward()
        total += out.loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_micro
    optimizer.step()  # <- nadam_lookahead
    losses.append(total)
print(losses)
