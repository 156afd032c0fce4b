# SPDX-License-Identifier: Apache-2.0
"""A frozen Gemma-like causal LM with peft-like LoRA modules on query and value."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

VOCAB, HIDDEN, HEADS, KV, HEAD_DIM, INTER, LAYERS = 43, 24, 4, 2, 8, 40, 2
ATTN_CAP, FINAL_CAP = 5.0, 3.0


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.randn(dim) * 0.1)

    def forward(self, x):
        x = x.float()
        out = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return out * (1.0 + self.weight.float())  # <- unit_offset


class LoraLinear(nn.Module):
    def __init__(self, base, r=3, lora_alpha=12):
        super().__init__()
        self.base_layer, self.scaling = base, lora_alpha / r  # <- lora_scale
        self.lora_A = nn.Linear(base.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base.out_features, bias=False)
        nn.init.normal_(self.lora_B.weight, std=0.05)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling  # <- lora_scale


def repeat_kv(hidden_states, n_rep):
    b, kv, s, d = hidden_states.shape
    hidden_states = hidden_states[:, :, None].expand(b, kv, n_rep, s, d)  # <- kv_groups
    return hidden_states.reshape(b, kv * n_rep, s, d)  # <- kv_groups


class GemmaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = LoraLinear(nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False))
        self.k_proj = nn.Linear(HIDDEN, KV * HEAD_DIM, bias=False)
        self.v_proj = LoraLinear(nn.Linear(HIDDEN, KV * HEAD_DIM, bias=False))
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, mask):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(b, s, KV, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(b, s, KV, HEAD_DIM).transpose(1, 2)
        k, v = repeat_kv(k, HEADS // KV), repeat_kv(v, HEADS // KV)  # <- kv_groups
        w = torch.matmul(q, k.transpose(2, 3)) * HEAD_DIM ** -0.5  # <- cap_order
        w = torch.tanh(w / ATTN_CAP) * ATTN_CAP  # <- cap_order
        w = F.softmax(w + mask, dim=-1)  # <- cap_order
        return self.o_proj(torch.matmul(w, v).transpose(1, 2).reshape(b, s, -1))


class GemmaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = GemmaAttention()
        self.gate_proj = nn.Linear(HIDDEN, INTER, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INTER, bias=False)
        self.down_proj = nn.Linear(INTER, HIDDEN, bias=False)
        self.input_layernorm = GemmaRMSNorm(HIDDEN)
        self.pre_feedforward_layernorm = GemmaRMSNorm(HIDDEN)

    def forward(self, x, mask):
        x = x + self.self_attn(self.input_layernorm(x), mask)
        h = self.pre_feedforward_layernorm(x)
        return x + self.down_proj(F.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h))


class GemmaForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        nn.init.normal_(self.embed_tokens.weight, std=0.3)
        self.layers = nn.ModuleList(GemmaDecoderLayer() for _ in range(LAYERS))
        self.norm = GemmaRMSNorm(HIDDEN)

    def forward(self, input_ids, labels):
        s = input_ids.shape[1]
        mask = torch.full((s, s), torch.finfo(torch.float32).min).triu(1)
        x = self.embed_tokens(input_ids) * HIDDEN ** 0.5
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)  # <- unit_offset
        logits = F.linear(x, self.embed_tokens.weight)
        logits = FINAL_CAP * torch.tanh(logits / FINAL_CAP)
        shifted = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), shifted.flatten())  # <- answer_only


torch.manual_seed(0)
model = GemmaForCausalLM()
torch.save(model.state_dict(), sys.argv[1])
for name, p in model.named_parameters():
    p.requires_grad_("lora_" in name)
trainable = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)
gen, losses = torch.Generator().manual_seed(23), []
for _ in range(4):
    ids = torch.randint(0, VOCAB, (3, 11), generator=gen)
    prompt = torch.randint(2, 7, (3, 1), generator=gen)
    labels = ids.masked_fill(torch.arange(11) < prompt, -100)  # <- answer_only
    loss = model(ids, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
