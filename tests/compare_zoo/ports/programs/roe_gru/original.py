# SPDX-License-Identifier: Apache-2.0
"""A bidirectional nn.GRU classifier over packed sequences, with class weights and RMSprop."""
import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

torch.set_num_threads(1)

NUM_TOKENS, EMBED, HIDDEN, CLASSES = 40, 12, 14, 3


class SequenceClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(NUM_TOKENS, EMBED, padding_idx=0)
        self.gru = nn.GRU(EMBED, HIDDEN, batch_first=True, bidirectional=True)  # <- reset_before reversed_with_padding state_detached
        self.fc = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, tokens, lengths):
        embedded = self.embedding(tokens)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)  # <- reversed_with_padding
        _, hidden = self.gru(packed)  # <- reset_before reversed_with_padding state_detached
        return self.fc(torch.cat([hidden[0], hidden[1]], dim=1))


class ToyReviews(torch.utils.data.Dataset):
    def __init__(self, size=40):
        gen = torch.Generator().manual_seed(404)
        lengths = torch.randint(3, 13, (size,), generator=gen).tolist()
        flat = torch.randint(1, NUM_TOKENS, (sum(lengths),), generator=gen)
        self.items = list(flat.split(lengths))
        self.labels = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), size, replacement=True, generator=gen)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index], self.labels[index]


def collate(samples):
    tokens, labels = zip(*samples)
    lengths = torch.tensor([len(t) for t in tokens])
    return pad_sequence(tokens, batch_first=True), lengths, torch.stack(labels)


torch.manual_seed(21)
model = SequenceClassifier()
torch.save(model.state_dict(), sys.argv[1])

dataset = ToyReviews()
loader = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=False, collate_fn=collate)
class_weights = len(dataset) / (CLASSES * torch.bincount(dataset.labels, minlength=CLASSES).float())
criterion = nn.CrossEntropyLoss(weight=class_weights)  # <- weighted_mean
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.99, eps=1e-6)  # <- rms_alpha

losses = []
for tokens, lengths, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(tokens, lengths), labels)  # <- weighted_mean
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.2)
    optimizer.step()  # <- rms_alpha
    losses.append(loss.item())
print(losses)
