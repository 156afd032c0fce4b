# SPDX-License-Identifier: Apache-2.0
"""Mamba without a scan: every layer applies an explicit lower-triangular (time x time) kernel."""
import sys
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

V, T, B, NL, D, E, N, R, K = 37, 10, 4, 2, 16, 32, 4, 3, 3


@dataclass
class Mixer:
    """Weights of one layer; the input projection and the x projection are split by what they produce."""

    scale: torch.Tensor
    to_signal: torch.Tensor      # D E
    to_gate: torch.Tensor        # D E
    taps: torch.Tensor           # K E, the newest tap first
    tap_bias: torch.Tensor
    to_rank: torch.Tensor        # E R
    to_bc: torch.Tensor          # 2 N E
    from_rank: torch.Tensor      # R E
    step_bias: torch.Tensor
    log_rate: torch.Tensor       # N E
    through: torch.Tensor
    back: torch.Tensor           # E D

    DECAYED = ("to_signal", "to_gate", "taps", "to_rank", "to_bc", "from_rank", "back")

    @classmethod
    def from_checkpoint(cls, sd, i):
        p = f"backbone.layers.{i}."
        m = p + "mixer."
        signal, gate = sd[m + "in_proj.weight"].chunk(2)
        rank, b, c = sd[m + "x_proj.weight"].split([R, N, N])
        parts = (sd[p + "norm.weight"], signal.t(), gate.t(), sd[m + "conv1d.weight"][:, 0].flip(1).t(),
                 sd[m + "conv1d.bias"], rank.t(), torch.stack([b, c]), sd[m + "dt_proj.weight"].t(),
                 sd[m + "dt_proj.bias"], sd[m + "A_log"].t(), sd[m + "D"], sd[m + "out_proj.weight"].t())
        return cls(*(t.clone().contiguous().requires_grad_() for t in parts))

    def named(self):
        return [(f.name, getattr(self, f.name)) for f in fields(self)]

    def __call__(self, x):
        h = F.rms_norm(x, (D,), self.scale, 1e-5)
        u = h @ self.to_signal
        late = [F.pad(u, (0, 0, d, 0))[:, :T] for d in range(K)]            # u delayed by d steps
        u = F.silu(sum(w * s for w, s in zip(self.taps, late)) + self.tap_bias)
        write, read = torch.einsum("bte,pne->pbtn", u, self.to_bc)
        dt = F.softplus(u @ self.to_rank @ self.from_rank + self.step_bias)  # B T E
        clock = dt.cumsum(1)
        gap = (clock[:, :, None] - clock[:, None]).clamp(min=0)             # B t s E
        past = torch.ones(T, T).tril()[None, :, :, None]
        kernel = torch.zeros_like(gap)
        for n in range(N):                                                  # one state channel at a time
            fade = torch.exp(-gap * self.log_rate[n].exp())
            kernel = kernel + fade * (read[:, :, None, n] * write[:, None, :, n])[..., None]
        y = torch.einsum("btse,bse->bte", kernel * past, dt * u) + self.through * u
        return x + (y * F.silu(h @ self.to_gate)) @ self.back


def load(path):
    sd = torch.load(path)
    table = sd["backbone.embeddings.weight"].clone().requires_grad_()
    assert torch.equal(table, sd["lm_head.weight"])                          # tied
    return table, [Mixer.from_checkpoint(sd, i) for i in range(NL)], sd["backbone.norm_f.weight"].clone().requires_grad_()


def forward(table, mixers, last, ids):
    x = F.one_hot(ids, V).float() @ table
    for mixer in mixers:
        x = mixer(x)
    return F.rms_norm(x, (D,), last, 1e-5) @ table.t()


def periodic(seed, count):
    g = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(count):
        period = torch.randint(2, 5, (B, 1), generator=g).flatten().tolist()
        base = torch.randint(0, V, (B, T), generator=g)
        batches.append(torch.stack([row[:p].repeat(T)[:T] for row, p in zip(base, period)]))
    return batches


table, mixers, last = load(sys.argv[1])
heavy, light = [table], [last]
for mixer in mixers:
    for name, p in mixer.named():
        (heavy if name in Mixer.DECAYED else light).append(p)
optimizers = [torch.optim.AdamW([p], lr=2e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1) for p in heavy]
optimizers += [torch.optim.Adam([p], lr=2e-3, betas=(0.9, 0.98), eps=1e-6) for p in light]


def update_inside_backward(p, optimizer):
    def hook(_):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    p.register_post_accumulate_grad_hook(hook)


for p, o in zip(heavy + light, optimizers):
    update_inside_backward(p, o)

losses, perplexity = [], []
for ids in periodic(404, 5):
    logits = forward(table, mixers, last, ids)
    loss = F.nll_loss(logits[:, :-1].log_softmax(-1).transpose(1, 2), ids[:, 1:])
    perplexity.append(loss.detach().exp().item())
    loss.backward()                                                          # steps every weight by its hook
    losses.append(loss.item())

print(losses)
