# SPDX-License-Identifier: Apache-2.0
"""The GPT with experts in the manner of MindSpore: cells with construct, dense dispatch of all
tokens to all experts, value_and_grad outside and a momentum optimizer of its own.
"""

import math
import sys

import torch

VOCAB, WIDTH, HEADS, EXPERTS, LAYERS, SEQ = 40, 24, 3, 4, 2, 8


class Cell:
    def __init__(self, params, prefix):
        self.params, self.prefix = params, prefix

    def p(self, name):
        return self.params[f"{self.prefix}.{name}"]

    def __call__(self, *inputs):
        return self.construct(*inputs)


class LayerNorm(Cell):
    def construct(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.div(x - mean, torch.sqrt(var + 1e-5)) * self.p("gamma") + self.p("beta")


class SelfAttention(Cell):
    def construct(self, x):
        b, s, _ = x.shape
        q, k, v = (
            torch.matmul(x, self.p(f"{n}.weight").mT) + self.p(f"{n}.bias")
            for n in ("query", "key", "value")
        )
        q, k, v = (y.reshape(b, s, HEADS, -1).permute(0, 2, 1, 3) for y in (q, k, v))
        score = torch.matmul(q, k.mT) / math.sqrt(WIDTH // HEADS)
        lower = torch.ones(s, s).tril()
        score = score + (1.0 - lower) * -10000.0
        score = (score - score.amax(-1, keepdim=True)).exp()
        attended = torch.matmul(score / score.sum(-1, keepdim=True), v)
        attended = attended.permute(0, 2, 1, 3).reshape(b, s, WIDTH)
        return torch.matmul(attended, self.p("dense.weight").mT) + self.p("dense.bias")


class Experts(Cell):
    def gelu(self, x):
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2.0)))  # <- gelu

    def construct(self, x):
        logits = torch.matmul(x, self.p("router").mT)
        probs = torch.softmax(logits, -1)
        second = torch.sort(probs, -1, descending=True)[0][..., 1:2]
        chosen = (probs >= second).float()
        kept = probs * chosen
        combine = kept / kept.sum(-1, keepdim=True)  # <- renormed
        h = torch.einsum("bsd,efd->bsef", x, self.p("wi")) + self.p("wi_bias")
        y = torch.einsum("bsef,edf->bsed", self.gelu(h), self.p("wo"))  # <- gelu
        out = torch.einsum("bse,bsed->bsd", combine, y + self.p("wo_bias"))  # <- renormed
        density = chosen.mean((0, 1))  # <- balance
        return out, EXPERTS * torch.dot(density, probs.mean((0, 1)))  # <- balance


class Layer(Cell):
    def __init__(self, params, prefix):
        super().__init__(params, prefix)
        self.norm1 = LayerNorm(params, f"{prefix}.layernorm1")
        self.norm2 = LayerNorm(params, f"{prefix}.layernorm2")
        self.attention = SelfAttention(params, f"{prefix}.attention")
        self.output = Experts(params, f"{prefix}.output")

    def construct(self, x):
        x = torch.add(x, self.attention(self.norm1(x)))
        y, aux = self.output(self.norm2(x))
        return torch.add(x, y), aux


class NetWithLoss(Cell):
    def construct(self, tokens):
        source, label = tokens[:, :-1], tokens[:, 1:]
        one_hot = torch.nn.functional.one_hot(source, VOCAB).float()
        x = torch.matmul(one_hot, self.p("embedding_table")) + self.p("position_table")
        aux_loss = torch.zeros(())
        for i in range(LAYERS):
            x, aux = Layer(self.params, f"{self.prefix}.layers.{i}")(x)
            aux_loss = aux_loss + aux
        x = LayerNorm(self.params, f"{self.prefix}.layernorm")(x)
        logits = torch.matmul(x, self.p("embedding_table").mT)
        log_prob = torch.log_softmax(logits, -1)
        wanted = torch.nn.functional.one_hot(label, VOCAB).float()
        return -(log_prob * wanted).sum((1, 2)).mean() / SEQ + 0.02 * aux_loss  # <- balance


def load_checkpoint(path):
    names = {"wte.weight": "embedding_table", "wpe.weight": "position_table"}
    names.update({"ln_f.weight": "layernorm.gamma", "ln_f.bias": "layernorm.beta"})
    torch_dict = torch.load(path)
    ms = {new: torch_dict[old] for old, new in names.items()}
    for i in range(LAYERS):
        old, new = f"blocks.{i}.", f"layers.{i}."
        for n in (1, 2):
            ms[f"{new}layernorm{n}.gamma"] = torch_dict[f"{old}ln_{n}.weight"]
            ms[f"{new}layernorm{n}.beta"] = torch_dict[f"{old}ln_{n}.bias"]
        for kind in ("weight", "bias"):
            for n, part in enumerate(torch_dict[f"{old}attn.in_proj_{kind}"].split(WIDTH)):
                ms[f"{new}attention.{('query', 'key', 'value')[n]}.{kind}"] = part
            ms[f"{new}attention.dense.{kind}"] = torch_dict[f"{old}attn.out_proj.{kind}"]
        ms[f"{new}output.router"] = torch_dict[f"{old}mlp.gate.weight"]
        for name, n in (("wi", 0), ("wo", 2)):
            for end, kind in (("", "weight"), ("_bias", "bias")):
                each = [torch_dict[f"{old}mlp.experts.{e}.{n}.{kind}"] for e in range(EXPERTS)]
                ms[f"{new}output.{name}{end}"] = torch.stack(each)
    return {f"net.{k}": v.clone().requires_grad_() for k, v in ms.items()}


params = load_checkpoint(sys.argv[1])
net = NetWithLoss(params, "net")
moments = {k: torch.zeros_like(v) for k, v in params.items()}
data = torch.Generator().manual_seed(142)
losses = []
for step in range(5):
    loss = net(torch.randint(VOCAB, (4, SEQ + 1), generator=data))
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    norm = sum(g.square().sum() for g in grads.values()).sqrt()
    rate = 0.2 * min(step + 1, 4) / 4  # <- warmup
    with torch.no_grad():
        for name, g in grads.items():
            clipped = g * torch.clamp(0.5 / (norm + 1e-6), max=1.0)
            moments[name].mul_(0.9).add_(clipped)
            update = clipped + moments[name] * 0.9  # <- nesterov
            params[name].sub_(rate * update)  # <- nesterov warmup
    losses.append(loss.item())
