# SPDX-License-Identifier: Apache-2.0
"""Pseudo-perplexity of sentences under a masked language model, one masked position at a time."""
import math
import sys
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class BertConfig:
    vocab_size: int = 60
    hidden_size: int = 32
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    intermediate_size: int = 64
    max_position_embeddings: int = 24
    layer_norm_eps: float = 1e-12
    cls_token_id: int = 1
    sep_token_id: int = 2
    mask_token_id: int = 3


class BertEmbeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(2, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.size(1)).unsqueeze(0)
        token_types = torch.zeros_like(input_ids)
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        embeddings = embeddings + self.token_type_embeddings(token_types)  # <- segment
        return self.LayerNorm(embeddings)


class BertAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.num_heads = c.num_attention_heads
        self.head_dim = c.hidden_size // c.num_attention_heads
        self.query = nn.Linear(c.hidden_size, c.hidden_size)
        self.key = nn.Linear(c.hidden_size, c.hidden_size)
        self.value = nn.Linear(c.hidden_size, c.hidden_size)
        self.output = nn.Linear(c.hidden_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).permute(0, 2, 1, 3)

    def forward(self, hidden):
        q, k, v = (self.split(f(hidden)) for f in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)  # <- padmask
        probs = nn.functional.softmax(scores, dim=-1)  # <- padmask
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).flatten(2)
        return self.LayerNorm(self.output(context) + hidden)


class BertLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = BertAttention(c)
        self.intermediate = nn.Linear(c.hidden_size, c.intermediate_size)
        self.output = nn.Linear(c.intermediate_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)

    def forward(self, hidden):
        hidden = self.attention(hidden)
        inner = nn.functional.gelu(self.intermediate(hidden))
        return self.LayerNorm(self.output(inner) + hidden)


class BertForMaskedLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.embeddings = BertEmbeddings(c)
        self.layer = nn.ModuleList(BertLayer(c) for _ in range(c.num_hidden_layers))
        self.transform = nn.Linear(c.hidden_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(c.vocab_size))

    def forward(self, input_ids):
        hidden = self.embeddings(input_ids)
        for layer in self.layer:
            hidden = layer(hidden)
        hidden = self.LayerNorm(nn.functional.gelu(self.transform(hidden)))  # <- headact
        return hidden @ self.embeddings.word_embeddings.weight.t() + self.bias


torch.manual_seed(0)
config = BertConfig()
model = BertForMaskedLM(config).eval()
for name, p in model.named_parameters():
    if "LayerNorm.weight" in name:
        nn.init.normal_(p, 1.0, 0.3)
    else:
        nn.init.normal_(p, 0.0, 0.3 if p.dim() == 2 else 0.5)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(7)
losses = []
with torch.no_grad():
    for _ in range(4):
        nll, count = 0.0, 0
        for length in torch.randint(4, 12, (3,), generator=gen).tolist():
            words = torch.randint(4, config.vocab_size, (length,), generator=gen).tolist()
            ids = torch.tensor([[config.cls_token_id, *words, config.sep_token_id]])
            for i in range(1, ids.size(1) - 1):  # <- specials
                masked = ids.clone()
                masked[0, i] = config.mask_token_id
                logp = torch.log_softmax(model(masked)[0, i], dim=-1)  # <- specials
                nll, count = nll - logp[ids[0, i]].item(), count + 1  # <- persentence specials
        losses.append(math.exp(nll / count))  # <- persentence
print(losses)
