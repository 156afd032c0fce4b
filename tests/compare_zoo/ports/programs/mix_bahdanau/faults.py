# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "reset_gate": [("tanh(xn + r * hn)", "tanh(xn + (r * h) @ c.w_h[:, 2 * H:] + c.b_h[2 * H:])")],
    "source_mask": [("torch.exp(e - e.amax(0)) * alive", "torch.exp(e - e.amax(0))")],
    "forced_shift": [("tgt.roll(1, 0).clone()", "tgt.clone()")],
    "stale_query": [("ctx = attend(h, memory,", "ctx = attend(first, memory,")],
    "clip_each": [
        (
            "norm = torch.cat([g.flatten() for g in grads]).norm()",
            "norm = torch.stack([g.norm() for g in grads]).max()",
        )
    ],
}
