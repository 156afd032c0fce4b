# SPDX-License-Identifier: Apache-2.0
"""The translator on MarianMTModel of the transformers package, the loss smoothed as its Trainer
does it.
"""

import sys

import torch
from transformers import MarianConfig, MarianMTModel

EOS, PAD, SMOOTH, PEAK = 0, 39, 0.1, 4e-3
config = MarianConfig(
    vocab_size=40,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=16,
    activation_function="swish",
    dropout=0.0,
    scale_embedding=True,  # <- scale
    pad_token_id=PAD,
    eos_token_id=EOS,
    forced_eos_token_id=EOS,
    decoder_start_token_id=PAD,  # <- start
    attn_implementation="eager",
)
RENAMED = {
    "linear1": "fc1",
    "linear2": "fc2",
    "self_attn.out_proj": "self_attn.out_proj",
    "multihead_attn.out_proj": "encoder_attn.out_proj",
    "norm1": "self_attn_layer_norm",
}


def split(name, tensor):
    """The thirds of a packed projection under the names of the package."""
    module, kind = name.rsplit(".in_proj_", 1)
    module = module.replace("multihead_attn", "encoder_attn")
    if module == "encoder_attn":
        q, k, v = tensor.chunk(3)  # <- cross_kv
    else:
        q, k, v = tensor.split(config.d_model)
    return {f"{module}.{x}_proj.{kind}": t for x, t in (("q", q), ("k", k), ("v", v))}


def convert(old):
    new = {"final_logits_bias": old.pop("decoder_bias")[None]}
    words = old.pop("words.weight")
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        new[f"{name}.weight"] = words
    new["lm_head.weight"] = words
    for name, tensor in old.items():
        side, n, rest = name.split(".", 2)
        norms = {"encoder": ["norm2"], "decoder": ["norm3", "norm2"]}[side]
        renamed = RENAMED | dict(zip(norms, ["final_layer_norm", "encoder_attn_layer_norm"]))
        if "in_proj" in rest:
            parts = split(rest, tensor)
        else:
            module, kind = rest.rsplit(".", 1)
            parts = {f"{renamed[module]}.{kind}": tensor}
        new |= {f"model.{side}.layers.{n}.{key}": part for key, part in parts.items()}
    return new


def smoothed(logits, labels):
    logp = -torch.log_softmax(logits, dim=-1)
    ignored = labels.unsqueeze(-1) == -100
    nll = logp.gather(-1, labels.clamp(min=0).unsqueeze(-1)).masked_fill(ignored, 0.0)
    spread = logp.sum(-1, keepdim=True).masked_fill(ignored, 0.0)  # <- smoothing
    count = ignored.numel() - ignored.sum()
    spread = spread.sum() / (count * logits.shape[-1])  # <- smoothing
    return (1 - SMOOTH) * nll.sum() / count + SMOOTH * spread  # <- smoothing


def padded(rng, longest):
    ids = torch.randint(1, PAD, (3, longest), generator=rng)
    sizes = torch.randint(3, longest, (3, 1), generator=rng).flatten().tolist()
    texts = [torch.cat((row[:size], torch.tensor([EOS]))) for row, size in zip(ids, sizes)]
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PAD)


model = MarianMTModel(config)
missing, unexpected = model.load_state_dict(convert(torch.load(sys.argv[1])), strict=False)
assert not unexpected
assert all("embed_positions" in name for name in missing)
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.Adam(trained, lr=PEAK, betas=(0.9, 0.98), eps=1e-6)  # <- betas
rng = torch.Generator().manual_seed(101)
losses = []
for step in range(1, 6):
    input_ids, labels = padded(rng, 9), padded(rng, 7)
    labels = labels.masked_fill(labels == PAD, -100)
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels)  # <- start
    output = model(
        input_ids=input_ids,
        attention_mask=(input_ids != PAD).long(),
        decoder_input_ids=decoder_input_ids,
        use_cache=False,
    )  # <- scale start cross_kv
    loss = smoothed(output.logits, labels)  # <- smoothing
    for group in optimizer.param_groups:
        group["lr"] = PEAK * min(step / 2, (2 / step) ** 0.5)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())
