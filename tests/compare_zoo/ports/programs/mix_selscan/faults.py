# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "conv_shift": [("torch.cat([lead, h], 1)", "torch.cat([lead[:, 1:], h, lead[:, :1]], 1)")],
    "decay_shift": [
        ("a[:, gap:] * b[:, :-gap] + b[:, gap:]", "a[:, :-gap] * b[:, :-gap] + b[:, gap:]")
    ],
    "delta_softplus": [("torch.log1p(pre.exp())", "pre.exp()")],
    "skip_input": [('w["skip"] * val  # <- skip', 'w["skip"] * gate  # <- skip')],
    "no_decay": [('{"w_in": 0.1, "w_sel": 0.1, "w_out": 0.1}', '{"w_in": 0.1, "w_sel": 0.1}')],
}
