# SPDX-License-Identifier: Apache-2.0
"""A tiny Mixtral with the router's balancing loss, padded rows, trained on arithmetic progressions."""
import sys

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import MixtralConfig, MixtralForCausalLM, set_seed

torch.set_num_threads(1)
PAD = 0


class Progressions(Dataset):
    """Rows start, start + d, start + 2d … modulo 39, of unequal lengths, padded on the right."""

    def __init__(self, n, length):
        g = torch.Generator().manual_seed(4)
        self.rows = []
        for _ in range(n):
            start, d = torch.randint(0, 39, (2,), generator=g).tolist()
            size = torch.randint(5, length + 1, (1,), generator=g).item()
            row = [1 + (start + d * i) % 39 for i in range(size)]
            self.rows.append(row + [PAD] * (length - size))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = torch.tensor(self.rows[i])
        mask = (ids != PAD).long()  # <- aux_mask
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(ids == PAD, -100)}


def get_model():
    set_seed(99)
    config = MixtralConfig(  # <- aux_mask gate_up_order
        vocab_size=40,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,  # <- aux_mask
        router_aux_loss_coef=0.05,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        max_position_embeddings=32,
        initializer_range=0.2,
        pad_token_id=PAD,
        hidden_act="silu",  # <- gate_up_order
        use_cache=False,
    )
    return MixtralForCausalLM(config)  # <- no_renorm gate_detach gate_up_order


def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.95), eps=1e-7)  # <- bias_correction
    history = []
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        out = model(**batch)  # <- no_renorm gate_detach gate_up_order aux_mask
        out.loss.backward()  # <- gate_detach
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()  # <- bias_correction
        history.append(out.loss.item())
    return history


model = get_model()
torch.save(model.state_dict(), sys.argv[1])
losses = train(model, DataLoader(Progressions(20, 11), batch_size=4))
print(losses)
