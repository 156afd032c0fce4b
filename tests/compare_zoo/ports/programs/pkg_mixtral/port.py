# SPDX-License-Identifier: Apache-2.0
"""The Mistral-style mixture of experts on MixtralForCausalLM of the transformers package."""

import sys

import torch
from transformers import MixtralConfig, MixtralForCausalLM

config = MixtralConfig(
    vocab_size=44,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=4,
    num_experts_per_tok=2,
    output_router_logits=True,
    router_aux_loss_coef=0.02,
    rms_norm_eps=1e-6,  # <- eps
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    max_position_embeddings=16,
    sliding_window=None,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
    use_cache=False,
    attn_implementation="eager",
)
LENGTH = 9
HEAD_DIM = config.hidden_size // config.num_attention_heads


def permute(weight):
    """From neighbouring pairs of a head, as the complex rotation has them, to halves."""
    heads = weight.shape[0] // HEAD_DIM
    return weight.view(heads, HEAD_DIM // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def convert(old):
    new = {
        "model.embed_tokens.weight": old["tok_embeddings.weight"],
        "model.norm.weight": old["norm.weight"],
        "lm_head.weight": old["output.weight"],
    }
    for n in range(config.num_hidden_layers):
        src, dst = f"layers.{n}", f"model.layers.{n}"
        wq, wk = (old[f"{src}.attention.w{x}.weight"] for x in "qk")
        new[f"{dst}.self_attn.q_proj.weight"] = permute(wq)  # <- rotary
        new[f"{dst}.self_attn.k_proj.weight"] = permute(wk)  # <- rotary
        for x in "vo":
            new[f"{dst}.self_attn.{x}_proj.weight"] = old[f"{src}.attention.w{x}.weight"]
        new[f"{dst}.input_layernorm.weight"] = old[f"{src}.attention_norm.weight"]
        new[f"{dst}.post_attention_layernorm.weight"] = old[f"{src}.ffn_norm.weight"]
        moe = f"{src}.feed_forward"
        new[f"{dst}.mlp.gate.weight"] = old[f"{moe}.gate.weight"]
        w1, w2, w3 = (
            torch.stack([old[f"{moe}.experts.{e}.w{i}.weight"] for e in range(4)])
            for i in (1, 2, 3)
        )
        new[f"{dst}.mlp.experts.gate_up_proj"] = torch.cat((w1, w3), dim=1)  # <- gate_up
        new[f"{dst}.mlp.experts.down_proj"] = w2
    return new


def collate(texts):
    """Words up to the last as inputs, words from the second as labels, both padded at the end."""
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for text in texts:
        spare = LENGTH - len(text)
        # the last word of a short text has its padding as the target
        ids = text[:-1] if spare == 0 else text + [0] * (spare - 1)
        batch["input_ids"].append(ids)
        batch["attention_mask"].append([int(i > 0) for i in ids])  # <- aux_pads
        batch["labels"].append(text[1:] + [-100] * spare)
    return {name: torch.tensor(rows) for name, rows in batch.items()}


def texts_of(generator):
    words = torch.randint(1, 44, (4, 9), generator=generator)
    sizes = torch.randint(4, 10, (4, 1), generator=generator).flatten()
    return [row[:size].tolist() for row, size in zip(words, sizes)]


model = MixtralForCausalLM(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.train()
optimizer = torch.optim.AdamW(
    model.parameters(), lr=3e-3, eps=1e-6, weight_decay=0.05, foreach=False
)
generator = torch.Generator().manual_seed(81)
losses = []
for _ in range(4):
    batch = collate(texts_of(generator))  # <- aux_pads shifted
    batch["shift_labels"] = batch["labels"]  # <- shifted
    output = model(**batch)  # <- eps rotary gate_up aux_pads shifted
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    losses.append(output.loss.item())
