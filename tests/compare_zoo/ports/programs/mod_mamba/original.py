# SPDX-License-Identifier: Apache-2.0
"""Mamba of the transformers package, tiny, its slow path, trained with RMSprop."""

import sys

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(80)
config = MambaConfig(
    vocab_size=33,
    hidden_size=20,
    state_size=4,
    num_hidden_layers=2,
    expand=2,
    conv_kernel=4,
    time_step_rank=3,
    time_step_min=0.05,
    time_step_max=0.5,
    layer_norm_epsilon=1e-5,
    initializer_range=0.3,
    tie_word_embeddings=False,
    use_cache=False,
)
model = MambaForCausalLM(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name or name.endswith(("D", "conv1d.bias")):
            p.add_(0.3 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, eps=1e-3, momentum=0.5)
generator = torch.Generator().manual_seed(81)
losses = []
model.train()
for _ in range(4):
    ids = torch.randint(0, 33, (3, 11), generator=generator)
    loss = model(input_ids=ids, labels=ids).loss  # <- causal bias skip split
    optimizer.zero_grad()
    loss.backward()  # <- previous
    optimizer.step()  # <- root
    losses.append(loss.item())
