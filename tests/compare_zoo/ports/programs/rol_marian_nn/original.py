# SPDX-License-Identifier: Apache-2.0
"""Translation with a tiny MarianMTModel, teacher forcing by hand, Adam with the Noam schedule."""
import sys

import torch
import torch.nn.functional as F
from transformers import MarianConfig, MarianMTModel

torch.set_num_threads(1)

VOCAB, EOS, PAD = 73, 0, 72
STEPS, PAIRS, WIDTH, WARMUP = 5, 4, 32, 4


def make_config():
    return MarianConfig(
        vocab_size=VOCAB,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        activation_function="swish",
        max_position_embeddings=32,  # <- sinusoid_interleaved
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,  # <- tie_detached
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,  # <- start_with_eos
        forced_eos_token_id=None,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )


def pad(rows, value):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def draw_sentence(generator):
    size = int(torch.randint(3, 10, (1,), generator=generator))
    words = torch.randint(1, VOCAB - 1, (size,), generator=generator)
    return torch.cat([words, torch.tensor([EOS])])


def draw_batch(generator):
    pairs = [(draw_sentence(generator), draw_sentence(generator)) for _ in range(PAIRS)]
    source = pad([s for s, _ in pairs], PAD)
    return {"input_ids": source, "attention_mask": source.ne(PAD).long(), "labels": pad([t for _, t in pairs], -100)}


def shift_right(labels, start):
    """What the decoder reads: the start token, then the labels but the last."""
    out = labels.roll(1, dims=1)
    out[:, 0] = start
    return out.masked_fill(out == -100, PAD)


torch.manual_seed(77)
config = make_config()
model = MarianMTModel(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue  # the sinusoids
        if "layer_norm" in name:
            p.add_(0.2 * torch.randn_like(p))
        else:
            p.normal_(0.0, 0.12)
    model.final_logits_bias.normal_(0.0, 0.3)
model.train()
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1, betas=(0.9, 0.98), eps=1e-9)
noam = torch.optim.lr_scheduler.LambdaLR(  # <- noam_shift
    optimizer, lambda k: WIDTH ** -0.5 * min((k + 1) ** -0.5, (k + 1) * WARMUP ** -1.5))  # <- noam_shift

generator = torch.Generator().manual_seed(5)
losses = []
for _ in range(STEPS):
    batch = draw_batch(generator)
    decoder_input_ids = shift_right(batch["labels"], config.decoder_start_token_id)  # <- start_with_eos
    logits = model(  # <- sinusoid_interleaved tie_detached
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        decoder_input_ids=decoder_input_ids,
        use_cache=False,
    ).logits
    loss = F.cross_entropy(logits.view(-1, VOCAB), batch["labels"].view(-1),  # <- mean_over_padding
                           ignore_index=-100, label_smoothing=0.1)  # <- mean_over_padding
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- noam_shift
    noam.step()  # <- noam_shift
    losses.append(loss.item())

print(losses)
