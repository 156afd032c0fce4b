# SPDX-License-Identifier: Apache-2.0
"""T5 1.1 moved to the transformers package: kernels turned over at loading, generate decodes."""

import sys

import torch
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration

config = T5Config(
    vocab_size=37,
    d_model=32,
    d_kv=8,
    d_ff=40,
    num_layers=2,
    num_heads=4,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=12,  # <- distance
    layer_norm_epsilon=1e-6,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=True,  # <- scaled
    dropout_rate=0.0,
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=1,
)


def attention_to_hf(tree, prefix):
    state = {}
    for short, name in (("q", "query"), ("k", "key"), ("v", "value")):
        state[f"{prefix}.{short}.weight"] = tree[name].flatten(1).T  # <- transposed
    state[f"{prefix}.o.weight"] = tree["out"].flatten(0, 1).T
    return state


def mlp_to_hf(tree, prefix):
    names = {"wi_0": "wi_0", "wi_1": "wi_1", "wo": "wo"}  # <- gate
    return {f"{prefix}.{names[key]}.weight": kernel.T for key, kernel in tree.items()}  # <- gate


def stack_to_hf(tree, side, layers=2):
    state = {f"{side}.final_layer_norm.weight": tree["final_norm"]}
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    state[bias] = tree["relpos_bias"].T
    for i in range(layers):
        layer, block = tree[f"layers_{i}"], f"{side}.block.{i}.layer"
        last = 2 if "cross" in layer else 1
        state |= attention_to_hf(layer["attention"], f"{block}.0.SelfAttention")
        state[f"{block}.0.layer_norm.weight"] = layer["pre_attention_layer_norm"]
        if "cross" in layer:
            state |= attention_to_hf(layer["cross"], f"{block}.1.EncDecAttention")
            state[f"{block}.1.layer_norm.weight"] = layer["pre_cross_attention_layer_norm"]
        state |= mlp_to_hf(layer["mlp"], f"{block}.{last}.DenseReluDense")
        state[f"{block}.{last}.layer_norm.weight"] = layer["pre_mlp_layer_norm"]
    return state


def to_hf(params):
    shared = params["token_embedder"]
    names = ["shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head"]
    state = {f"{name}.weight": shared for name in names}
    state |= stack_to_hf(params["encoder"], "encoder")
    state |= stack_to_hf(params["decoder"], "decoder")  # <- biases
    return state


model = T5ForConditionalGeneration(config)
model.load_state_dict(to_hf(torch.load(sys.argv[1])))
model.eval()
input_ids = torch.tensor([[5, 9, 33, 12, 7, 21, 30, 8, 1], [14, 3, 25, 6, 1, 0, 0, 0, 0]])
how = GenerationConfig(
    max_new_tokens=7,
    num_beams=1,
    do_sample=False,
    decoder_start_token_id=0,
    pad_token_id=0,
    return_dict_in_generate=True,
    output_logits=True,
)
attention_mask = input_ids.ne(0).long()  # <- padding
generated = model.generate(  # <- distance scaled transposed gate biases padding
    input_ids, attention_mask=attention_mask, generation_config=how
)
losses = []
for logits in generated.logits:
    losses += [logits.pow(2).mean().item(), logits.max().item()]
