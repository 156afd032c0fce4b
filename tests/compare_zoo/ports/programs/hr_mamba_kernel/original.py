# SPDX-License-Identifier: Apache-2.0
"""Trains a two-layer transformers Mamba language model (sequential scan) with decay groups."""
import sys

import torch
from transformers import MambaConfig, MambaForCausalLM
from transformers.utils import logging

torch.set_num_threads(1)
logging.set_verbosity_error()

VOCAB, SEQ, BATCH, STEPS = 37, 10, 4, 5


def token_stream():
    """Noisy periodic sequences."""
    g = torch.Generator().manual_seed(404)
    while True:
        period = torch.randint(2, 5, (BATCH, 1), generator=g)
        base = torch.randint(0, VOCAB, (BATCH, SEQ), generator=g)
        yield base.gather(1, torch.arange(SEQ).expand(BATCH, SEQ) % period)


torch.manual_seed(13)
config = MambaConfig(
    vocab_size=VOCAB,
    hidden_size=16,
    state_size=4,
    num_hidden_layers=2,
    expand=2,
    conv_kernel=3,
    time_step_rank=3,
    initializer_range=0.2,
    use_cache=False,
    pad_token_id=0,
    bos_token_id=0,
    eos_token_id=0,
)
model = MambaForCausalLM(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

decay, no_decay = [], []
for name, p in model.named_parameters():
    flat = p.ndim < 2 or name.endswith("A_log")
    (no_decay if flat else decay).append(p)
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
    lr=2e-3,
    betas=(0.9, 0.98),
    eps=1e-6,
)

losses = []
for step, ids in zip(range(STEPS), token_stream()):
    out = model(input_ids=ids, labels=ids)
    optimizer.zero_grad()
    out.loss.backward()
    optimizer.step()
    losses.append(out.loss.item())

print(losses)
