# SPDX-License-Identifier: Apache-2.0
"""A Cohere language model of the transformers package (eager attention, normed queries and keys)
on sentences padded at the right.
"""

import sys

import torch
from transformers import CohereConfig, CohereForCausalLM

torch.manual_seed(11)
config = CohereConfig(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
    logit_scale=0.25,  # <- logit_scale
    rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
    use_qk_norm=True,
    initializer_range=0.2,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    attn_implementation="eager",
)
model = CohereForCausalLM(config)
with torch.no_grad():
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.add_(0.3 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, eps=1e-5, weight_decay=0.3)  # <- coupled
generator = torch.Generator().manual_seed(12)
losses = []
model.train()
for _ in range(4):
    input_ids = torch.randint(3, 48, (4, 12), generator=generator)
    lengths = torch.randint(6, 13, (4, 1), generator=generator)
    attention_mask = (torch.arange(12) < lengths).long()
    input_ids = input_ids * attention_mask
    labels = input_ids.masked_fill(attention_mask == 0, -100)  # <- ignored
    output = model(
        input_ids=input_ids, attention_mask=attention_mask, labels=labels
    )  # <- norm_rows parallel ignored logit_scale
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- coupled
    losses.append(output.loss.item())
