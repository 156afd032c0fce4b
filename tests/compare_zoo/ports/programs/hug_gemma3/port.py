# SPDX-License-Identifier: Apache-2.0
"""The small Gemma 3 on Gemma3ForCausalLM of the transformers package (sdpa attention)."""

import sys

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

config = Gemma3TextConfig(
    vocab_size=40,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    query_pre_attn_scalar=12,
    sliding_window=4,
    layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    max_position_embeddings=32,
    attn_implementation="sdpa",
    use_cache=False,
    pad_token_id=None,
)  # <- scalar window padding

NORMS = {
    "pre_attn": "input_layernorm",
    "post_attn": "post_attention_layernorm",
    "pre_ffw": "pre_feedforward_layernorm",
    "post_ffw": "post_feedforward_layernorm",
    "attn.query_norm": "self_attn.q_norm",
    "attn.key_norm": "self_attn.k_norm",
    "attn.o_proj": "self_attn.o_proj",
    "down": "mlp.down_proj",
}


def convert(checkpoint):
    yield "model.embed_tokens.weight", checkpoint["embedder.weight"]
    yield "lm_head.weight", checkpoint["embedder.weight"]
    yield "model.norm.weight", checkpoint["norm.weight"]
    for n in range(config.num_hidden_layers):
        ours, theirs = f"model.layers.{n}", f"blocks.{n}"
        for a, b in NORMS.items():
            yield f"{ours}.{b}.weight", checkpoint[f"{theirs}.{a}.weight"]
        sizes = [config.head_dim * h for h in (4, 2, 2)]
        parts = checkpoint[f"{theirs}.attn.qkv_proj.weight"].split(sizes)
        for letter, part in zip("qkv", parts):
            yield f"{ours}.self_attn.{letter}_proj.weight", part
        gate, up = checkpoint[f"{theirs}.gate_up.weight"].chunk(2)  # <- gates
        yield f"{ours}.mlp.gate_proj.weight", gate  # <- gates
        yield f"{ours}.mlp.up_proj.weight", up  # <- gates


model = Gemma3ForCausalLM(config)
model.load_state_dict(dict(convert(torch.load(sys.argv[1]))))
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
rng = torch.Generator().manual_seed(321)
micro_batches = [torch.randint(40, (3, 12), generator=rng) for _ in range(6)]
losses = []
for n, input_ids in enumerate(micro_batches):
    output = model(input_ids=input_ids, labels=input_ids)  # <- scalar window padding gates
    scaled = output.loss / 2  # <- accumulated
    scaled.backward()  # <- accumulated
    if n % 2 == 1:
        optimizer.step()  # <- accumulated padding
        optimizer.zero_grad(set_to_none=True)
    losses.append(output.loss.item())
