# SPDX-License-Identifier: Apache-2.0
"""Bidirectional LSTM sentence classifier with additive attention pooling over packed sequences."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD = 0


class AttentionPool(nn.Module):
    def __init__(self, dim, attn_dim):
        super().__init__()
        self.proj = nn.Linear(dim, attn_dim)
        self.context = nn.Parameter(torch.randn(attn_dim) * 0.7)

    def forward(self, states, mask):
        energy = torch.tanh(self.proj(states))  # <- energy
        scores = energy.matmul(self.context)  # <- energy
        scores = scores.masked_fill(~mask, float("-inf"))  # <- pool_mask
        alpha = torch.softmax(scores, dim=1)  # <- pool_mask
        return torch.bmm(alpha.unsqueeze(1), states).squeeze(1), alpha  # <- pool_mask


class LSTMClassifier(nn.Module):
    def __init__(self, vocab=60, emb=20, hidden=16, layers=2, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.lstm = nn.LSTM(emb, hidden, num_layers=layers, bidirectional=True, batch_first=True)
        self.pool = AttentionPool(2 * hidden, 24)
        self.norm = nn.LayerNorm(2 * hidden)
        self.fc = nn.Linear(2 * hidden, classes)
        self.reset_parameters()

    def reset_parameters(self):
        for name, p in self.lstm.named_parameters():
            if "weight" in name:
                nn.init.xavier_normal_(p, gain=2.0)
            else:
                nn.init.normal_(p, std=0.4)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.3)
        nn.init.normal_(self.norm.bias, std=0.3)
        nn.init.normal_(self.fc.weight, std=0.4)

    def forward(self, tokens, lengths):
        x = self.embedding(tokens)
        packed = pack_padded_sequence(x, lengths, True, enforce_sorted=False)  # <- reverse
        packed, _ = self.lstm(packed)  # <- gates biases reverse
        states, _ = pad_packed_sequence(packed, batch_first=True)  # <- gates reverse biases
        mask = (tokens != PAD)[:, : states.size(1)]  # <- pool_mask
        pooled, alpha = self.pool(states, mask)
        return self.fc(self.norm(pooled)), alpha


def synthetic_batches(n, batch=5, longest=12):
    gen = torch.Generator().manual_seed(3)
    for _ in range(n):
        tokens = torch.randint(1, 60, (batch, longest), generator=gen)
        lengths = torch.randint(3, longest + 1, (batch,), generator=gen)
        labels = torch.randint(0, 5, (batch,), generator=gen)
        tokens[torch.arange(longest)[None, :] >= lengths[:, None]] = PAD
        yield tokens, lengths, labels


def evaluate(model):
    criterion = nn.CrossEntropyLoss()
    model.eval()
    losses = []
    with torch.no_grad():
        for tokens, lengths, labels in synthetic_batches(4):
            logits, alpha = model(tokens, lengths)
            losses.append(criterion(logits, labels).item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    model = LSTMClassifier()
    torch.save(model.state_dict(), sys.argv[1])
    losses = evaluate(model)
    print(losses)
