# SPDX-License-Identifier: Apache-2.0
"""CTC fine-tuning of a tiny Wav2Vec2 with transformers: frozen feature encoder, padded clips, Adam."""
import sys

import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

torch.set_num_threads(1)

STEPS, BATCH, SAMPLES, LETTERS = 5, 3, 240, 11


def make_model():
    torch.manual_seed(8)
    config = Wav2Vec2Config(
        vocab_size=LETTERS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        conv_dim=(12, 16, 16),
        conv_kernel=(8, 3, 2),
        conv_stride=(4, 2, 2),
        num_feat_extract_layers=3,
        feat_extract_norm="group",
        num_conv_pos_embedding_groups=4,
        initializer_range=0.15,
        pad_token_id=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        apply_spec_augment=False,
    )
    config.num_conv_pos_embeddings = 6  # <- same_pad
    config.ctc_loss_reduction = "mean"  # <- ctc_by_clip
    return Wav2Vec2ForCTC(config)


class Clips(torch.utils.data.Dataset):
    """Noise with a tone, of several lengths, and a transcript of 3 to 5 letters."""

    def __init__(self, seed=40):
        g = torch.Generator().manual_seed(seed)
        n = STEPS * BATCH
        noise = torch.randn(n, SAMPLES, generator=g)
        pitch = torch.rand(n, 1, generator=g) * 0.4 + 0.05
        self.audio = 0.3 * noise + torch.sin(pitch * torch.arange(SAMPLES)) + 0.2
        self.sizes = torch.randint(150, SAMPLES + 1, (n,), generator=g)
        self.letters = torch.randint(1, LETTERS, (n, 5), generator=g)
        self.counts = torch.randint(3, 6, (n,), generator=g)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        return self.audio[i, :self.sizes[i]], self.letters[i, :self.counts[i]]


def collate(items):
    """Each clip to zero mean and unit variance over its own samples, then zeros up to the longest."""
    clips, texts = zip(*items)
    normed = [(c - c.mean()) / torch.sqrt(c.var(correction=0) + 1e-7) for c in clips]  # <- norm_padded
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "input_values": pad(normed, batch_first=True),  # <- norm_padded
        "attention_mask": pad([torch.ones(len(c), dtype=torch.long) for c in clips], batch_first=True),
        "labels": pad(list(texts), batch_first=True, padding_value=-100),
    }


model = make_model()
torch.save(model.state_dict(), sys.argv[1])
model.train()
model.freeze_feature_encoder()  # <- thawed
trainable = [p for p in model.parameters() if p.requires_grad]  # <- thawed
optimizer = torch.optim.Adam(trainable, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)

losses = []
for batch in torch.utils.data.DataLoader(Clips(), batch_size=BATCH, collate_fn=collate):
    loss = model(**batch).loss  # <- same_pad ctc_by_clip thawed
    loss.backward()
    optimizer.step()  # <- no_correction
    optimizer.zero_grad()
    losses.append(loss.item())
print(losses)
