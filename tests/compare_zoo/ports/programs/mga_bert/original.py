# SPDX-License-Identifier: Apache-2.0
"""BERT pre-training in small: masked words and next sentence, padded batches."""
import math
import sys

import torch
from torch import nn

VOCAB, WIDTH, HEADS, LAYERS, SEQ, BATCH = 80, 32, 4, 2, 16, 6
PAD, CLS, SEP, MASK = 0, 1, 2, 3


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(SEQ, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)  # <- norm_eps

    def forward(self, input_ids, token_type_ids):
        position_ids = torch.arange(input_ids.shape[1])
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x + self.position_embeddings(position_ids))  # <- norm_eps


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.intermediate = nn.Linear(WIDTH, 2 * WIDTH)
        self.output_dense = nn.Linear(2 * WIDTH, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def forward(self, x, extended_mask):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        probs = torch.softmax(scores + extended_mask, dim=-1)  # <- pad_mask
        ctx = (probs @ v).permute(0, 2, 1, 3).reshape(x.shape)
        x = self.attention_norm(x + self.output(ctx))
        return self.output_norm(x + self.output_dense(nn.functional.gelu(self.intermediate(x))))


class BertForPreTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList(BertLayer() for _ in range(LAYERS))
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.transform = nn.Linear(WIDTH, WIDTH)
        self.transform_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.decoder_bias = nn.Parameter(torch.zeros(VOCAB))
        self.seq_relationship = nn.Linear(WIDTH, 2)
        for emb in self.embeddings.children():
            if isinstance(emb, nn.Embedding):
                nn.init.normal_(emb.weight, std=0.01)
        with torch.no_grad():
            self.embeddings.word_embeddings.weight[PAD].zero_()

    def forward(self, input_ids, attention_mask, token_type_ids, labels, next_label):
        extended = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0  # <- pad_mask
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layer:
            x = layer(x, extended)  # <- pad_mask
        pooled = torch.tanh(self.pooler(x[:, 0]))  # <- pool_act
        h = self.transform_norm(nn.functional.gelu(self.transform(x)))
        prediction = h @ self.embeddings.word_embeddings.weight.t() + self.decoder_bias
        loss_fct = nn.CrossEntropyLoss()
        mlm = loss_fct(prediction.view(-1, VOCAB), labels.view(-1))  # <- mlm_mean
        nsp = loss_fct(self.seq_relationship(pooled), next_label)  # <- pool_act
        return mlm + nsp  # <- mlm_mean


class BertAdam(torch.optim.Optimizer):
    """Adam as in the first release of BERT."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), eps = group["betas"], group["eps"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].lerp_(p.grad, 1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                update = state["m"] / (state["v"].sqrt() + eps)  # <- bias_corr
                p.sub_(update, alpha=group["lr"])  # <- bias_corr


def make_batch(rng):
    lengths = torch.randint(8, SEQ + 1, (BATCH,), generator=rng)
    ids = torch.randint(4, VOCAB, (BATCH, SEQ), generator=rng)
    keep = torch.arange(SEQ)[None] < lengths[:, None]
    segment = (torch.arange(SEQ)[None] >= lengths[:, None] // 2).long() * keep
    chosen = (torch.rand(BATCH, SEQ, generator=rng) < 0.3) & keep
    chosen[:, 0] = False
    chosen[:, 1] = True
    ids[:, 0] = CLS
    ids[torch.arange(BATCH), lengths - 1] = SEP
    labels = torch.where(chosen, ids, torch.full_like(ids, -100))
    ids = ids.masked_fill(chosen, MASK).masked_fill(~keep, PAD)
    return ids, keep.long(), segment, labels, torch.randint(0, 2, (BATCH,), generator=rng)


torch.manual_seed(0)
model = BertForPreTraining()
rng = torch.Generator().manual_seed(5)
batches = [make_batch(rng) for _ in range(4)]
torch.save({"model": model.state_dict(), "batches": batches}, sys.argv[1])
optimizer = BertAdam(model.parameters(), lr=3e-3)  # <- bias_corr
losses = []
for batch in batches:
    loss = model(*batch)
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_corr
    losses.append(loss.item())
print(losses)
