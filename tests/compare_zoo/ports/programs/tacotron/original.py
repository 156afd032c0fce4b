# SPDX-License-Identifier: Apache-2.0
"""The spectrogram predictor of Tacotron 2 (Shen et al., 2018): characters through a convolution and
a bidirectional LSTM, a decoder of two cells with location-sensitive attention, teacher forced.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SYMBOLS, EMBED, MELS, PRENET, RNN, ATTENTION, FILTERS, KERNEL = 23, 12, 6, 8, 14, 8, 4, 5
BATCH, TEXT, FRAMES = 3, 9, 10


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, EMBED)
        self.conv = nn.Conv1d(EMBED, EMBED, 5, padding=2, bias=False)
        self.norm = nn.BatchNorm1d(EMBED)
        self.lstm = nn.LSTM(EMBED, EMBED // 2, batch_first=True, bidirectional=True)

    def forward(self, text):
        x = self.embedding(text).transpose(1, 2)
        x = F.relu(self.norm(self.conv(x))).transpose(1, 2)  # <- centred
        return self.lstm(x)[0]  # <- backwards gates


class Prenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(MELS, PRENET, bias=False)
        self.fc2 = nn.Linear(PRENET, PRENET, bias=False)

    def forward(self, x):
        return F.relu(self.fc2(F.relu(self.fc1(x))))  # <- prenet


class LocationSensitiveAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_layer = nn.Linear(RNN, ATTENTION, bias=False)
        self.memory_layer = nn.Linear(EMBED, ATTENTION, bias=False)
        self.v = nn.Linear(ATTENTION, 1, bias=False)
        self.location_conv = nn.Conv1d(2, FILTERS, KERNEL, padding=KERNEL // 2, bias=False)
        self.location_dense = nn.Linear(FILTERS, ATTENTION, bias=False)

    def forward(self, query, memory, processed_memory, weights_cat, mask):
        location = self.location_conv(weights_cat)  # <- centred
        location = self.location_dense(location.transpose(1, 2))
        processed_query = self.query_layer(query).unsqueeze(1)
        energies = self.v(torch.tanh(processed_query + location + processed_memory)).squeeze(-1)
        energies = energies.masked_fill(mask, -float("inf"))  # <- mask
        weights = F.softmax(energies, dim=1)  # <- mask
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.prenet = Prenet()
        self.attention_rnn = nn.LSTMCell(PRENET + EMBED, RNN)
        self.attention = LocationSensitiveAttention()
        self.decoder_rnn = nn.LSTMCell(RNN + EMBED, RNN)
        self.linear_projection = nn.Linear(RNN + EMBED, MELS)
        self.gate_layer = nn.Linear(RNN + EMBED, 1)

    def forward(self, memory, mels, mask):
        batch = memory.size(0)
        go_frame = memory.new_zeros(batch, 1, MELS)
        decoder_inputs = torch.cat([go_frame, mels[:, :-1]], dim=1)  # <- teacher
        decoder_inputs = self.prenet(decoder_inputs)
        attention_hidden = attention_cell = memory.new_zeros(batch, RNN)
        decoder_hidden = decoder_cell = memory.new_zeros(batch, RNN)
        weights = weights_cum = memory.new_zeros(batch, memory.size(1))
        context = memory.new_zeros(batch, EMBED)
        processed_memory = self.attention.memory_layer(memory)
        outputs, gates = [], []
        for step in range(decoder_inputs.size(1)):
            cell_input = torch.cat([decoder_inputs[:, step], context], dim=-1)
            attention_hidden, attention_cell = self.attention_rnn(  # <- prenet
                cell_input, (attention_hidden, attention_cell)
            )
            weights_cat = torch.stack([weights, weights_cum], dim=1)  # <- cumulative
            context, weights = self.attention(
                attention_hidden, memory, processed_memory, weights_cat, mask
            )
            weights_cum = weights_cum + weights  # <- cumulative
            decoder_input = torch.cat([attention_hidden, context], dim=-1)
            decoder_hidden, decoder_cell = self.decoder_rnn(
                decoder_input, (decoder_hidden, decoder_cell)
            )
            both = torch.cat([decoder_hidden, context], dim=-1)
            outputs.append(self.linear_projection(both))
            gates.append(self.gate_layer(both).squeeze(-1))
        return torch.stack(outputs, 1), torch.stack(gates, 1)


class Tacotron2(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, text, text_lengths, mels):
        mask = torch.arange(text.size(1)) >= text_lengths.unsqueeze(1)
        return self.decoder(self.encoder(text), mels, mask)


torch.manual_seed(101)
model = Tacotron2()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
rng = np.random.default_rng(103)
losses = []
for _ in range(3):
    text = torch.from_numpy(rng.integers(1, SYMBOLS, (BATCH, TEXT)))
    mels = torch.from_numpy(rng.normal(size=(BATCH, FRAMES, MELS)).astype(np.float32))
    text_lengths = torch.from_numpy(rng.integers(5, TEXT + 1, BATCH))
    mel_lengths = torch.from_numpy(rng.integers(6, FRAMES + 1, BATCH))
    frames = torch.arange(FRAMES)
    valid = frames < mel_lengths.unsqueeze(1)
    gate_target = (frames >= mel_lengths.unsqueeze(1) - 1).float()  # <- last
    outputs, gates = model(text, text_lengths, mels)
    outputs = outputs.masked_fill(~valid.unsqueeze(-1), 0.0)
    mel_loss = F.mse_loss(outputs, mels * valid.unsqueeze(-1))
    gate_loss = F.binary_cross_entropy_with_logits(gates, gate_target)
    loss = mel_loss + gate_loss
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # <- clipped
    optimizer.step()
    losses.append(loss.item())
