# SPDX-License-Identifier: Apache-2.0
"""Same decoder on packed token streams: block-causal mask, complex RoPE on interleaved pairs,
fused projections."""
import sys

import torch

hf = torch.load(sys.argv[1], weights_only=True)
H, KV, HD, D = 4, 2, 6, 24


def interleave(w, heads):
    """half-split RoPE rows -> interleaved (even, odd) rows."""
    return w.view(heads, 2, HD // 2, D).transpose(1, 2).reshape(heads * HD, D)


class PackedDecoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.unembed = torch.nn.Parameter(hf["embed_tokens.weight"].T.clone())   # D V
        self.table = torch.nn.Parameter(hf["embed_tokens.weight"].clone())
        self.final = torch.nn.Parameter(hf["norm.weight"].clone())
        self.blocks = torch.nn.ModuleList()
        for i in range(2):
            p = f"layers.{i}."
            a, f = p + "self_attn.", p + "mlp."
            self.blocks.append(torch.nn.ParameterDict({
                "down": hf[f + "down_proj.weight"],
                "gate_up": torch.cat([hf[f + "up_proj.weight"], hf[f + "gate_proj.weight"]]),
                "out": hf[a + "o_proj.weight"],
                "kvq": torch.cat([interleave(hf[a + "k_proj.weight"], KV), hf[a + "v_proj.weight"],
                                  interleave(hf[a + "q_proj.weight"], H)]),
                "gains": torch.stack([hf[p + "post_norm.weight"], hf[p + "input_norm.weight"]])}))

    @staticmethod
    def rms(x, gain):
        return x * gain / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def forward(self, tok, pos, doc):
        """tok, pos, doc: [N] flat stream."""
        freq = torch.exp(  # <- rope_base
            -torch.arange(0, HD, 2) / HD * torch.log(torch.tensor(100.0)))  # <- rope_base
        turn = torch.polar(torch.ones(len(tok), 1, HD // 2),  # <- rope_base
                           pos[:, None, None] * freq)  # <- rope_base
        spin = lambda u, h: torch.view_as_real(
            torch.view_as_complex(u.view(-1, h, HD // 2, 2).contiguous()) * turn).flatten(-2)
        idx = torch.arange(len(tok))
        bias = torch.zeros(len(tok), len(tok)).masked_fill_(  # <- doc_mask
            (doc[:, None] != doc[None]) | (idx[:, None] < idx[None]), float("-inf"))  # <- doc_mask
        x = self.table.index_select(0, tok)
        for b in self.blocks:
            k, v, q = (self.rms(x, b["gains"][1]) @ b["kvq"].T).split(
                [KV * HD, KV * HD, H * HD], -1)
            q = spin(q, H).view(-1, KV, H // KV, HD)
            s = torch.einsum("ngrd,mgd->grnm", q, spin(k, KV)) * HD ** -0.5 + bias  # <- doc_mask
            o = torch.einsum("grnm,mgd->ngrd", s.softmax(-1), v.view(-1, KV, HD)).flatten(1)
            x = torch.addmm(x, o, b["out"].T)
            up, gate = (self.rms(x, b["gains"][0]) @ b["gate_up"].T).chunk(2, -1)
            x = torch.addmm(x, gate * gate.sigmoid() * up, b["down"].T)
        return self.rms(x, self.final) @ self.unembed


net = PackedDecoder()
shared = [p for n, p in net.named_parameters() if n != "unembed"]
slots = [{"m": torch.zeros_like(p), "v": torch.zeros_like(p),
          "vmax": torch.zeros_like(p)} for p in shared]
gen = torch.Generator().manual_seed(77)
losses = []
for t in range(1, 6):
    lengths = torch.randint(4, 13, (6,), generator=gen).tolist()
    ids = torch.randint(1, 40, (6, 12), generator=gen)
    docs = [row[:n] for row, n in zip(ids, lengths)]
    tok, tgt = torch.cat([d[:-1] for d in docs]), torch.cat([d[1:] for d in docs])
    pos = torch.cat([torch.arange(len(d) - 1) for d in docs])
    doc = torch.cat([torch.full((len(d) - 1,), i) for i, d in enumerate(docs)])
    logits = net(tok, pos, doc)
    lse = logits.logsumexp(-1)
    picked = logits.gather(1, tgt[:, None]).squeeze(1)
    loss = (lse - picked + 1e-3 * lse * lse).mean()  # <- lse_square
    net.zero_grad()
    loss.backward()
    losses.append(loss.item())
    with torch.no_grad():
        net.table.grad.add_(net.unembed.grad.T)  # <- tied_grad
        lr = 4e-3 * (0.25 + 0.75 * min(t - 1, 3) / 3)  # <- warm_start
        for p, s in zip(shared, slots):
            g = p.grad.add(p, alpha=0.01)  # <- tied_grad
            s["m"].mul_(0.9).add_(g, alpha=0.1)
            s["v"].mul_(0.95).addcmul_(g, g, value=0.05)
            torch.maximum(s["vmax"], s["v"], out=s["vmax"])
            p.sub_(lr * s["m"] / (1 - 0.9 ** t)  # <- warm_start
                   / (s["vmax"].div(1 - 0.95 ** t).sqrt() + 1e-6))  # <- warm_start
        net.unembed.copy_(net.table.T)
print(losses)
