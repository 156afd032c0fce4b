# SPDX-License-Identifier: Apache-2.0
"""Instruction tuning of a tiny Llama with hand-written LoRA layers on q_proj and v_proj."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

torch.set_num_threads(1)
logging.set_verbosity_error()

VOCAB, PAD, LENGTH = 53, 0, 12
RANK, ALPHA = 4, 12


class LoRALinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, base.in_features) * 0.2)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, RANK))
        self.scaling = ALPHA / RANK  # <- rank_scaling

    def forward(self, x):
        update = F.linear(F.linear(x, self.lora_a), self.lora_b)
        return self.base(x) + self.scaling * update  # <- rank_scaling


def inject(model):
    model.requires_grad_(False)
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_proj = LoRALinear(attention.q_proj)
        attention.v_proj = LoRALinear(attention.v_proj)
    return model


def instructions(steps=5, size=4):
    """Left-padded prompt and answer; only the answer is learnt."""
    gen = torch.Generator().manual_seed(2024)
    for _ in range(steps):
        ids = torch.full((size, LENGTH), PAD)
        labels = torch.full((size, LENGTH), -100)
        for row in range(size):
            prompt = int(torch.randint(2, 6, (1,), generator=gen))
            answer = int(torch.randint(2, 7, (1,), generator=gen))
            n = prompt + answer
            ids[row, -n:] = torch.randint(1, VOCAB, (n,), generator=gen)
            labels[row, -answer:] = ids[row, -answer:]  # <- prompt_learnt
        yield ids, (ids != PAD).long(), labels


config = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=32,
    initializer_range=0.2,
    pad_token_id=PAD,
    use_cache=False,
)
torch.manual_seed(29)
model = inject(LlamaForCausalLM(config))
torch.save(model.state_dict(), sys.argv[1])

a_side = [p for n, p in model.named_parameters() if n.endswith("lora_a")]
b_side = [p for n, p in model.named_parameters() if n.endswith("lora_b")]
# LoRA+: the B matrices learn faster
optimizer = torch.optim.AdamW(
    [{"params": a_side, "lr": 1e-2}, {"params": b_side, "lr": 3e-2}],  # <- a_rate_unscaled
    weight_decay=0.05,
)

losses = []
model.train()
for ids, mask, labels in instructions():
    out = model(input_ids=ids, attention_mask=mask, labels=labels)  # <- pad_attended
    optimizer.zero_grad()
    out.loss.backward()
    nn.utils.clip_grad_norm_(a_side + b_side, max_norm=0.5)  # <- norm_of_merged
    optimizer.step()  # <- a_rate_unscaled
    losses.append(out.loss.item())
print(losses)
