# SPDX-License-Identifier: Apache-2.0
"""The generation with CodeGenForCausalLM of the transformers package: prompts padded at the left,
keys and values kept from token to token.
"""

import sys

import torch
from transformers import CodeGenConfig, CodeGenForCausalLM, DynamicCache

VOCAB, LAYERS, SHARDS, PAD, NEW = 50, 2, 4, 0, 3
RENAMED = {
    "embed.weight": "transformer.wte.weight",
    "norm.weight": "transformer.ln_f.weight",
    "norm.bias": "transformer.ln_f.bias",
    "head.weight": "lm_head.weight",
    "head.bias": "lm_head.bias",
}
PARTS = {"norm": "ln_1", "attention.wo": "attn.out_proj", "up": "mlp.fc_in", "down": "mlp.fc_out"}


def to_shards(q, k, v):
    """CodeGen was trained in four parts: each has its rows of queries, of values, of keys."""
    rows = [w.unflatten(0, (SHARDS, -1)) for w in (q, v, k)]
    return torch.cat(rows, dim=1).flatten(0, 1)  # <- shards


def convert(source):
    target = {}
    for name, weight in source.items():
        if name in RENAMED:
            target[RENAMED[name]] = weight
            continue
        _, n, rest = name.split(".", 2)
        part, kind = rest.rsplit(".", 1)
        if part in PARTS:
            target[f"transformer.h.{n}.{PARTS[part]}.{kind}"] = weight
    for n in range(LAYERS):
        q, k, v = (source[f"layers.{n}.attention.w{c}.weight"] for c in "qkv")
        target[f"transformer.h.{n}.attn.qkv_proj.weight"] = to_shards(q, k, v)  # <- shards
    return target


def left_padded(prompts):
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), PAD)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)  # <- mask
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        mask[row, width - len(prompt) :] = 1  # <- mask
    return ids, mask


config = CodeGenConfig(
    vocab_size=VOCAB,
    n_positions=32,
    n_embd=48,
    n_layer=LAYERS,
    n_head=8,
    rotary_dim=4,
    activation_function="gelu_new",  # <- gelu
    resid_pdrop=0.1,
    bos_token_id=1,
    eos_token_id=2,
)
model = CodeGenForCausalLM(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.requires_grad_(False).eval()  # <- eval


def generate(ids, mask):
    """The log-probabilities of what is chosen, [batch, NEW]."""
    cache = DynamicCache(config=config)
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)
    chosen = []
    for _ in range(NEW):
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )  # <- shards places mask gelu eval
        best = output.logits[:, -1].log_softmax(-1).max(-1)
        chosen.append(best.values)
        ids = best.indices[:, None]
        position_ids = mask.sum(1, keepdim=True)  # <- places
        mask = torch.cat((mask, mask.new_ones(len(mask), 1)), 1)
    return torch.stack(chosen, 1)


generator = torch.Generator().manual_seed(22)
losses = []
for _ in range(3):
    tokens = torch.randint(3, VOCAB, (2, 8), generator=generator)
    lengths = torch.randint(3, 9, (2,), generator=generator).tolist()
    ids, mask = left_padded([row[:length] for row, length in zip(tokens, lengths)])
    losses.append(-generate(ids, mask).mean().item())
