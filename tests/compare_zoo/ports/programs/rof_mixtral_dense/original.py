# SPDX-License-Identifier: Apache-2.0
"""Pretrain a tiny Mixtral with sliding-window attention and the router's balancing loss."""
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import MixtralConfig, MixtralForCausalLM

torch.set_num_threads(1)

STEPS, BATCH, LENGTH, VOCAB = 5, 4, 16, 59
SEED = 70


def make_dataset():
    """Blocks of a first-order Markov chain, so that there is something to learn."""
    generator = torch.Generator().manual_seed(SEED + 1)
    successors = torch.randint(0, VOCAB, (VOCAB, 3), generator=generator)
    blocks = torch.zeros(STEPS * BATCH, LENGTH, dtype=torch.long)
    blocks[:, 0] = torch.randint(0, VOCAB, (len(blocks),), generator=generator)
    for t in range(1, LENGTH):
        choice = torch.randint(0, 3, (len(blocks),), generator=generator)
        blocks[:, t] = successors[blocks[:, t - 1], choice]
    return TensorDataset(blocks)


def make_model():
    torch.manual_seed(SEED)
    config = MixtralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.12,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    config.hidden_act = "silu"
    config.sliding_window = 4  # <- window
    config.num_local_experts, config.num_experts_per_tok = 4, 2
    config.output_router_logits = True
    config.router_aux_loss_coef = 0.1
    return MixtralForCausalLM(config)


def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)  # <- decoupled
    model.train()
    for (input_ids,) in loader:
        outputs = model(input_ids=input_ids, labels=input_ids)  # <- window gate_and_up renormalised aux_over_layers
        optimizer.zero_grad()
        outputs.loss.backward()
        optimizer.step()  # <- decoupled
        yield outputs.loss.item()


model = make_model()
torch.save(model.state_dict(), sys.argv[1])
losses = list(train(model, DataLoader(make_dataset(), batch_size=BATCH)))
print(losses)
