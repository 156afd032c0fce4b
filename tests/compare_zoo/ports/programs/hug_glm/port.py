# SPDX-License-Identifier: Apache-2.0
"""The small GLM on GlmForCausalLM of the transformers package (sdpa) with its schedule."""

import sys

import torch
from transformers import GlmConfig, GlmForCausalLM, get_cosine_schedule_with_warmup

HEADS, GROUPS, HEAD = 4, 2, 8
config = GlmConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    num_key_value_heads=GROUPS,
    head_dim=HEAD,
    partial_rotary_factor=0.25,
    rms_norm_eps=1e-6,
    max_position_embeddings=32,
    attention_bias=True,
    tie_word_embeddings=False,
    pad_token_id=None,
    use_cache=False,
    attn_implementation="sdpa",
)  # <- partial

# they tile the shared keys over the heads, here neighbouring heads share one
ORDER = [head for group in range(GROUPS) for head in range(group, HEADS, GROUPS)]  # <- tiled


def by_heads(tensor):
    return tensor.unflatten(0, (HEADS, HEAD))[ORDER].flatten(0, 1)  # <- tiled


def convert(old):
    new = {
        "model.embed_tokens.weight": old["embedding.weight"],
        "model.norm.weight": old["final_norm.weight"],
        "lm_head.weight": old["output_layer.weight"],
    }
    for n in range(config.num_hidden_layers):
        a, b = f"layers.{n}", f"model.layers.{n}"
        new[f"{b}.input_layernorm.weight"] = old[f"{a}.norm1.weight"]
        new[f"{b}.post_attention_layernorm.weight"] = old[f"{a}.norm2.weight"]
        for kind in ("weight", "bias"):
            fused = old[f"{a}.attention.query_key_value.{kind}"]
            q, k, v = fused.split([HEADS * HEAD, GROUPS * HEAD, GROUPS * HEAD])
            new[f"{b}.self_attn.q_proj.{kind}"] = by_heads(q)  # <- tiled
            new[f"{b}.self_attn.k_proj.{kind}"] = k
            new[f"{b}.self_attn.v_proj.{kind}"] = v
        dense = old[f"{a}.attention.dense.weight"]
        new[f"{b}.self_attn.o_proj.weight"] = by_heads(dense.t()).t()  # <- tiled
        value, gate = old[f"{a}.h_to_4h.weight"].chunk(2)
        new[f"{b}.mlp.gate_up_proj.weight"] = torch.cat((gate, value))  # <- halves
        new[f"{b}.mlp.down_proj.weight"] = old[f"{a}.to_h.weight"]
    return new


def collate(rows):
    input_ids = torch.stack([ids for ids, _ in rows])
    labels = input_ids.clone()
    for row, (_, asked) in zip(labels, rows):
        row[:asked] = -100  # <- prompt
    return {"input_ids": input_ids, "labels": labels}


rows = []
rng = torch.Generator().manual_seed(441)
for _ in range(5):
    tokens = torch.randint(50, (3, 12), generator=rng)
    rows += zip(tokens, torch.randint(2, 8, (3, 1), generator=rng)[:, 0].tolist())

model = GlmForCausalLM(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scheduler = get_cosine_schedule_with_warmup(optimizer, 2, num_training_steps=5)  # <- cosine
losses = []
for batch in torch.utils.data.DataLoader(rows, batch_size=3, collate_fn=collate):
    loss = model(**batch).loss  # <- partial tiled halves prompt
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- cosine
    scheduler.step()  # <- cosine
    losses.append(loss.item())
