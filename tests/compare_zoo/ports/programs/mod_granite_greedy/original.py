# SPDX-License-Identifier: Apache-2.0
"""Granite of the transformers package continues two prompts of unequal length greedily."""

import sys

import torch
from transformers import GraniteConfig, GraniteForCausalLM

torch.manual_seed(3)
config = GraniteConfig(
    vocab_size=53,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    embedding_multiplier=6.0,
    logits_scaling=4.0,
    residual_multiplier=0.3,
    attention_multiplier=0.2,
    initializer_range=0.25,
    tie_word_embeddings=True,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
model = GraniteForCausalLM(config).eval()
torch.save(model.state_dict(), sys.argv[1])

prompts = [[1, 17, 42, 8, 30, 9, 26], [1, 5, 44, 12]]
longest = max(map(len, prompts))
input_ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
attention_mask = (input_ids != 0).long()
with torch.no_grad():
    generated = model.generate(  # <- positions residual scale slot groups pads
        input_ids=input_ids,
        attention_mask=attention_mask,
        max_new_tokens=6,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
losses = []
for logits in generated.logits:
    losses.append(logits.logsumexp(-1).mean().item())
    losses.append(logits.max(-1).values.sum().item())
losses.append(float(generated.sequences[:, longest:].sum()))
