# SPDX-License-Identifier: Apache-2.0
"""A BERT classifier fine-tuned with class weights, weight decay in groups and a linear warm-up."""

import math
import sys

import numpy as np
import torch
from torch import nn

VOCAB, HIDDEN, HEADS, LAYERS, MAX_LEN, LABELS, PAD = 40, 32, 4, 2, 12, 3, 0


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(MAX_LEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, input_ids, token_type_ids):
        position_ids = torch.arange(input_ids.size(1)).unsqueeze(0)
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)  # <- segments
        return self.LayerNorm(embeddings)


class BertSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_size = HIDDEN // HEADS
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)

    def transpose_for_scores(self, x):
        x = x.view(x.size(0), x.size(1), HEADS, self.head_size)
        return x.permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))
        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.head_size)
        attention_scores = attention_scores + attention_mask  # <- padding
        attention_probs = nn.functional.softmax(attention_scores, dim=-1)  # <- padding
        context_layer = torch.matmul(attention_probs, value_layer)
        return context_layer.permute(0, 2, 1, 3).reshape(hidden_states.shape)


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = BertSelfAttention()
        self.attention_output = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.intermediate = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.output = nn.Linear(4 * HIDDEN, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, hidden_states, attention_mask):
        attention = self.attention_output(self.attention(hidden_states, attention_mask))
        hidden_states = self.attention_norm(hidden_states + attention)
        intermediate = nn.functional.gelu(self.intermediate(hidden_states))
        return self.output_norm(hidden_states + self.output(intermediate))


class BertForSequenceClassification(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layers = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.classifier = nn.Linear(HIDDEN, LABELS)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.15)

    def forward(self, input_ids, token_type_ids):
        attention_mask = (input_ids != PAD).float()[:, None, None, :]
        attention_mask = (1.0 - attention_mask) * -10000.0
        hidden_states = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask)
        pooled = torch.tanh(self.pooler(hidden_states[:, 0]))  # <- pooled
        return self.classifier(pooled)


torch.manual_seed(21)
model = BertForSequenceClassification()
torch.save(model.state_dict(), sys.argv[1])

no_decay = ["bias", "norm.weight", "LayerNorm.weight"]
grouped = [
    {
        "params": [p for n, p in model.named_parameters() if not any(d in n for d in no_decay)],
        "weight_decay": 0.1,
    },
    {
        "params": [p for n, p in model.named_parameters() if any(d in n for d in no_decay)],
        "weight_decay": 0.0,
    },
]
optimizer = torch.optim.AdamW(grouped, lr=2e-3)
warmup, total_steps = 2, 8


def lr_lambda(step):
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return (total_steps - step) / (total_steps - warmup)


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]))
rng = np.random.default_rng(22)
losses = []
for step in range(4):
    input_ids = torch.from_numpy(rng.integers(1, VOCAB, (6, MAX_LEN)))
    lengths = torch.from_numpy(rng.integers(5, MAX_LEN + 1, 6))
    labels = torch.from_numpy(rng.integers(0, LABELS, 6))
    input_ids[torch.arange(MAX_LEN) >= lengths[:, None]] = PAD
    token_type_ids = (torch.arange(MAX_LEN) >= lengths[:, None] // 2).long()
    logits = model(input_ids, token_type_ids)
    loss = criterion(logits, labels)  # <- classes
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay warmup
    scheduler.step()  # <- warmup
    optimizer.zero_grad()
    losses.append(loss.item())
    accuracy = (logits.argmax(dim=-1) == labels).float().mean()
    confidence = torch.softmax(logits.detach(), dim=-1).amax(dim=-1).mean()
    rate = scheduler.get_last_lr()[0]
    print(f"{step} {loss.item():.3f} {accuracy:.2f} {confidence:.2f} {norm:.2f} {rate:.1e}")
