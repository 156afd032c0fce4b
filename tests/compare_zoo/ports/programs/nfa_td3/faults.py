# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of TD3 on a synthetic replay buffer."""

FAULTS = {
    "elu_alpha": [
        ("torch.expm1(x.clamp(max=0))",
         "1.6733 * torch.expm1(x.clamp(max=0))"),
    ],
    "twin_min": [
        ("q_values(L.qs_slow, s2, a2).amin(0)",
         "q_values(L.qs_slow, s2, a2).mean(0)"),
    ],
    "policy_rate": [
        ("adam(L.pi, g, L.pi_opt, 1e-3)",
         "adam(L.pi, g, L.pi_opt, 3e-3)"),
    ],
    "noise_clip": [
        ("(0.2 * torch.randn(16, 2, generator=gen)).clamp(-0.5, 0.5)",
         "0.2 * torch.randn(16, 2, generator=gen).clamp(-0.5, 0.5)"),
    ],
    "stale_target": [
        ("qs_slow=tmap(mix, L.qs_slow, L.qs)",
         "qs_slow=L.qs_slow"),
    ],
}
