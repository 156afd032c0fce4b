# SPDX-License-Identifier: Apache-2.0
"""BERT with written-out attention, named as in the old BERT code bases, with a BertAdam and an additive mask."""
import math
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn

torch.set_num_threads(1)


@dataclass
class BertConfig:
    vocab_size: int = 80
    hidden_size: int = 32
    num_heads: int = 4
    num_layers: int = 2
    max_positions: int = 20
    layer_norm_eps: float = 1e-12  # <- ln_eps


class BertLayerNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(config.hidden_size))
        self.beta = nn.Parameter(torch.zeros(config.hidden_size))
        self.variance_epsilon = config.layer_norm_eps  # <- ln_eps

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return self.gamma * ((x - u) / torch.sqrt(s + self.variance_epsilon)) + self.beta  # <- ln_eps


def erf_gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class BertLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, self.heads = config.hidden_size, config.num_heads
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.attention_output, self.attention_norm = nn.Linear(d, d), BertLayerNorm(config)
        self.intermediate, self.output = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.output_norm = BertLayerNorm(config)

    def per_head(self, x):
        b, t, d = x.shape
        return x.reshape(b, t, self.heads, d // self.heads).permute(0, 2, 1, 3)

    def forward(self, hidden, extended_mask):
        q, k, v = (self.per_head(f(hidden)) for f in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        probs = torch.softmax(scores + extended_mask, dim=-1)  # <- pad_mask
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).reshape(hidden.shape)
        hidden = self.attention_norm(hidden + self.attention_output(context))
        return self.output_norm(hidden + self.output(erf_gelu(self.intermediate(hidden))))


class BertForMaskedLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.position_embeddings = nn.Parameter(torch.empty(config.max_positions, config.hidden_size))
        self.token_type_embeddings = nn.Parameter(torch.empty(2, config.hidden_size))
        self.norm = BertLayerNorm(config)
        self.layers = nn.ModuleList([BertLayer(config) for _ in range(config.num_layers)])
        self.predictions = nn.Linear(config.hidden_size, config.hidden_size)
        self.decoder = nn.Parameter(torch.empty(config.hidden_size, config.vocab_size))
        self.output_bias = nn.Parameter(torch.empty(config.vocab_size))

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        token_type_ids = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        extended = (1.0 - attention_mask.float())[:, None, None, :] * -10000.0  # <- pad_mask
        x = self.word_embeddings[input_ids] + self.position_embeddings[None, : input_ids.shape[1]]
        x = self.norm(x + self.token_type_embeddings[token_type_ids])  # <- token_type
        for layer in self.layers:
            x = layer(x, extended)
        return erf_gelu(self.predictions(x)) @ self.decoder + self.output_bias


def convert(sd, config):
    out = {"word_embeddings": sd["tokens.weight"], "position_embeddings": sd["positions.weight"],
           "token_type_embeddings": sd["segments.weight"], "output_bias": sd["decoder.bias"], "decoder": sd["decoder.weight"].t(),
           "norm.gamma": sd["emb_norm.weight"], "norm.beta": sd["emb_norm.bias"]}
    names = {"self_attn.out_proj": "attention_output", "linear1": "intermediate", "linear2": "output"}
    for i in range(config.num_layers):
        a, b = f"encoder.layers.{i}.", f"layers.{i}."
        for kind in ("weight", "bias"):
            parts = sd[a + "self_attn.in_proj_" + kind].chunk(3)
            out.update({f"{b}{n}.{kind}": part for n, part in zip(("query", "key", "value"), parts)})
            out.update({f"{b}{new}.{kind}": sd[f"{a}{old}.{kind}"] for old, new in names.items()})
            tf_kind = {"weight": "gamma", "bias": "beta"}[kind]
            out[f"{b}attention_norm.{tf_kind}"] = sd[f"{a}norm1.{kind}"]
            out[f"{b}output_norm.{tf_kind}"] = sd[f"{a}norm2.{kind}"]
            out[f"predictions.{kind}"] = sd[f"transform.{kind}"]
    return out


class BertAdam(torch.optim.Optimizer):
    def __init__(self, params, lr, t_total, b1=0.9, b2=0.999, e=1e-6, decay=0.01):
        super().__init__(params, dict(lr=lr, t_total=t_total, b1=b1, b2=b2, e=e, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                lr = group["lr"] * (1 - state["t"] / group["t_total"])
                state["t"] += 1
                state["m"] += (1 - group["b1"]) * (p.grad - state["m"])
                state["v"] += (1 - group["b2"]) * (p.grad ** 2 - state["v"])
                c1, c2 = 1 - group["b1"] ** state["t"], 1 - group["b2"] ** state["t"]  # <- bias_correction
                update = (state["m"] / c1) / ((state["v"] / c2).sqrt() + group["e"])  # <- bias_correction
                p -= lr * (update + group["decay"] * p)


def batches(count, rows=6, width=20):
    g = torch.Generator().manual_seed(2024)
    for _ in range(count):
        n = torch.randint(8, width + 1, (rows, 1), generator=g)
        ids = torch.randint(5, 80, (rows, width), generator=g)
        first = (n.squeeze(1) * torch.rand(rows, generator=g)).long()[:, None]
        draw = torch.rand(rows, width, generator=g)
        at = torch.arange(width)[None]
        real = at < n
        chosen = ((draw < 0.2) & real) | (at == 1)
        truth = torch.where(chosen, ids, -100)
        seen = torch.where(chosen, 3, ids) * real
        yield seen, real.long(), ((at > first) & real).long(), truth  # <- pad_mask token_type


config = BertConfig()
model = BertForMaskedLM(config)
model.load_state_dict(convert(torch.load(sys.argv[1]), config))
optimizer = BertAdam(model.parameters(), lr=2e-3, t_total=8)
losses = []
for seen, attention, types, truth in batches(5):
    log_probs = model(seen, attention, token_type_ids=types).log_softmax(-1)  # <- token_type
    active = truth != -100
    nll = -log_probs.gather(-1, truth.clamp(min=0)[..., None])[..., 0]
    loss = (nll * active).sum() / active.sum()  # <- mean_over_all
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_correction
    losses.append(loss.item())
print(losses)
