# SPDX-License-Identifier: Apache-2.0
"""Faults of the cached decoder."""
FAULTS = {
    "offset": [("position = torch.arange(start, end, dtype=torch.float32)",
                "position = torch.arange(end - start, dtype=torch.float32)")],
    "grouping": [("q.view(b, t, N_KV, GROUP, HD).permute(0, 2, 3, 1, 4)",
                  "q.view(b, t, GROUP, N_KV, HD).permute(0, 3, 2, 1, 4)")],
    "causal": [("<= torch.arange(start, end).unsqueeze(1)",
                "<= torch.arange(end - start).unsqueeze(1)")],
    "softcap": [("return (logits / SOFTCAP).tanh() * SOFTCAP", "return logits")],
    "gating": [("(gate * gate.sigmoid() * up)", "(up * up.sigmoid() * gate)")],
}
