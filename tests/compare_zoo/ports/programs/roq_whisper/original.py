# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a tiny Whisper of transformers on mel features with padded transcripts."""
import sys
from dataclasses import dataclass

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration, get_linear_schedule_with_warmup

torch.set_num_threads(1)
torch.manual_seed(19)

EOT, SOT, VOCAB, MELS, FRAMES = 50, 51, 52, 10, 32
MAX_STEPS = 5

config = WhisperConfig(
    vocab_size=VOCAB, num_mel_bins=MELS, d_model=24,
    encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
    encoder_ffn_dim=48, decoder_ffn_dim=48,
    max_source_positions=FRAMES // 2,
    max_target_positions=20,
    dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
    activation_function="gelu",
    decoder_start_token_id=SOT,  # <- start_token
    pad_token_id=EOT, bos_token_id=EOT, eos_token_id=EOT,
    init_std=0.2, use_cache=False,
)


def make_model():
    model = WhisperForConditionalGeneration(config)  # <- sinusoid_step positions_trained
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(0.0, 0.1)
    return model


@dataclass
class Collator:
    """Pads the transcripts to the longest and hides the padding from the loss."""

    eot: int

    def __call__(self, samples):
        width = max(len(s["text"]) for s in samples)
        labels = torch.full((len(samples), width), -100)  # <- pads_counted
        for row, s in enumerate(samples):
            labels[row, : len(s["text"])] = torch.tensor(s["text"])
        return {"input_features": torch.stack([s["mel"] for s in samples]), "labels": labels}


def make_samples(n, seed):
    g = torch.Generator().manual_seed(seed)
    samples = []
    for _ in range(n):
        mel = torch.randn(MELS, FRAMES, generator=g)
        length = int(torch.randint(4, 12, (1,), generator=g))
        text = torch.randint(0, EOT, (length,), generator=g).tolist() + [EOT]
        samples.append({"mel": mel, "text": text})
    return samples


def grouped(model):
    """All but the biases and layer norms decay, as in Trainer."""
    decay, free = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:  # <- positions_trained
            continue
        (free if "bias" in name or "layer_norm" in name else decay).append(p)
    return [{"params": decay, "weight_decay": 0.05}, {"params": free, "weight_decay": 0.0}]


model = make_model()
torch.save(model.state_dict(), sys.argv[1])
model.train()
optimizer = torch.optim.AdamW(grouped(model), lr=3e-3, betas=(0.9, 0.98), eps=1e-6)  # <- second_moment
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=MAX_STEPS + 1)
loader = torch.utils.data.DataLoader(make_samples(MAX_STEPS * 4, seed=190), batch_size=4, collate_fn=Collator(EOT))
scheduler.step()

losses = []
for batch in loader:  # <- pads_counted
    outputs = model(**batch)  # <- sinusoid_step start_token pads_counted
    optimizer.zero_grad()
    outputs.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- positions_trained second_moment
    scheduler.step()
    losses.append(outputs.loss.item())
print(losses)
