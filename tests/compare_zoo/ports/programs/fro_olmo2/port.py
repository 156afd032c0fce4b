# SPDX-License-Identifier: Apache-2.0
"""The model on Olmo2ForCausalLM of the transformers package, each document in a row of its own,
padded at the right; sdpa.
"""

import sys

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Olmo2Config, Olmo2ForCausalLM

config = Olmo2Config(
    vocab_size=44,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=16,
    rms_norm_eps=1e-6,  # <- eps
    rope_parameters={"rope_type": "default", "rope_theta": 5000.0},  # <- theta
    pad_token_id=None,
    eos_token_id=None,
    use_cache=False,
    attn_implementation="sdpa",
)


def convert(olmo):
    state = {
        "model.embed_tokens.weight": olmo["wte.weight"],
        "model.norm.weight": olmo["ln_f.weight"],
        "lm_head.weight": olmo["ff_out.weight"],
    }
    for i in range(config.num_hidden_layers):
        old, new = f"blocks.{i}", f"model.layers.{i}"
        q, k, v = olmo[f"{old}.att_proj.weight"].split(config.hidden_size)
        up, gate = olmo[f"{old}.ff_proj.weight"].split(config.intermediate_size)  # <- gate
        state |= {
            f"{new}.self_attn.q_proj.weight": q,
            f"{new}.self_attn.k_proj.weight": k,
            f"{new}.self_attn.v_proj.weight": v,
            f"{new}.self_attn.o_proj.weight": olmo[f"{old}.attn_out.weight"],
            f"{new}.self_attn.q_norm.weight": olmo[f"{old}.q_norm.weight"],
            f"{new}.self_attn.k_norm.weight": olmo[f"{old}.k_norm.weight"],
            f"{new}.mlp.gate_proj.weight": gate,  # <- gate
            f"{new}.mlp.up_proj.weight": up,  # <- gate
            f"{new}.mlp.down_proj.weight": olmo[f"{old}.ff_out.weight"],
            f"{new}.post_attention_layernorm.weight": olmo[f"{old}.attn_norm.weight"],
            f"{new}.post_feedforward_layernorm.weight": olmo[f"{old}.ff_norm.weight"],
        }
    return state


class Documents(torch.utils.data.Dataset):
    def __init__(self, steps):
        rng = torch.Generator().manual_seed(82)
        self.steps = []
        for _ in range(steps):
            lengths = torch.randint(4, 11, (4,), generator=rng).tolist()
            stream = torch.randint(0, config.vocab_size, (40,), generator=rng)
            self.steps.append(stream[: sum(lengths)].split(lengths))

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, n):
        rows = self.steps[n]
        return {
            "input_ids": pad_sequence(rows, batch_first=True),
            "attention_mask": pad_sequence([torch.ones_like(r) for r in rows], batch_first=True),
            "labels": pad_sequence(rows, batch_first=True, padding_value=-100),
        }


model = Olmo2ForCausalLM(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), eps=1e-4)  # <- betas
losses = []
for batch in torch.utils.data.DataLoader(Documents(5), batch_size=None):
    output = model(**batch)  # <- gate theta eps
    counted = batch["labels"][:, 1:] != -100
    z = output.logits[:, :-1].logsumexp(-1).square()[counted].mean()  # <- z_loss
    loss = output.loss + 1e-2 * z  # <- z_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())
