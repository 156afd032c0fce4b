# SPDX-License-Identifier: Apache-2.0
"""The scores of GPT-J on GPTJForCausalLM of the transformers package: prompts in one batch, padded
before their first word, answers read word by word from the cache.
"""

import sys

import torch
from transformers import GPTJConfig, GPTJForCausalLM

V, D, LAYERS, INNER, PAD = 46, 32, 2, 64, 0
config = GPTJConfig(
    vocab_size=V,
    n_positions=32,
    n_embd=D,
    n_layer=LAYERS,
    n_head=4,
    n_inner=INNER,
    rotary_dim=4,  # <- rotary_dim
    activation_function="gelu_new",  # <- gelu
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    layer_norm_epsilon=1e-5,
    bos_token_id=None,
    eos_token_id=None,
    attn_implementation="eager",
)


def convert(old):
    new = {
        "transformer.wte.weight": old["embed"],
        "transformer.ln_f.weight": old["norm.weight"],
        "transformer.ln_f.bias": old["norm.bias"],
        "lm_head.weight": old["proj"].t(),
        "lm_head.bias": old["proj_b"],  # <- head_bias
    }
    for n in range(LAYERS):
        src, dst = f"blocks.{n}.", f"transformer.h.{n}."
        new[dst + "ln_1.weight"] = old[src + "norm.weight"]
        new[dst + "ln_1.bias"] = old[src + "norm.bias"]
        v, q, k, fc_in = old[src + "w_in"].t().split([D, D, D, INNER])
        for name, part in (("q", q), ("k", k), ("v", v)):
            new[f"{dst}attn.{name}_proj.weight"] = part
        new[dst + "mlp.fc_in.weight"] = fc_in
        new[dst + "mlp.fc_in.bias"] = old[src + "b_in"]
        out, fc_out = old[src + "w_out"].t().split([D, INNER], dim=1)
        new[dst + "attn.out_proj.weight"] = out
        new[dst + "mlp.fc_out.weight"] = fc_out
        new[dst + "mlp.fc_out.bias"] = old[src + "b_out"]
    return new


def pad_left(texts):
    longest = max(map(len, texts))
    ids = torch.full((len(texts), longest), PAD)
    mask = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, longest - len(text) :] = text
        mask[row, longest - len(text) :] = 1
    return ids, mask


@torch.inference_mode()
def scores(model, prompts, answers):
    ids, mask = pad_left(prompts)
    place = (mask.cumsum(1) - 1).clamp(min=0)
    total, cache = torch.zeros(len(prompts)), None
    for column in answers.unbind(1):
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=place,
            past_key_values=cache,
            use_cache=True,
        )  # <- pad_mask positions gelu head_bias rotary_dim
        cache = output.past_key_values
        logp = output.logits[:, -1].log_softmax(-1)
        total += logp.gather(1, column[:, None])[:, 0]
        ids = column[:, None]
        mask = torch.cat((mask, torch.ones_like(ids)), dim=1)
        place = place[:, -1:] + 1  # <- positions
    return total


model = GPTJForCausalLM(config).eval()
result = model.load_state_dict(convert(torch.load(sys.argv[1])), strict=False)  # <- head_bias
assert not result.unexpected_keys
rng = torch.Generator().manual_seed(121)
losses = []
for _ in range(4):
    prompts = torch.randint(1, V, (4, 7), generator=rng)
    sizes = torch.randint(2, 8, (4,), generator=rng)
    answers = torch.randint(1, V, (4, 3), generator=rng)
    cut = [prompt[:n] for prompt, n in zip(prompts, sizes)]
    losses.append(-scores(model, cut, answers).mean().item())
