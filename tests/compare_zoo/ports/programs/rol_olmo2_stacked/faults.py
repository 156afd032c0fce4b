# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of OLMo 2 to stacked weights."""

NEEDS = ["transformers"]
FAULTS = {
    "qk_norm_per_head": [
        ('q = rms(x @ p["wq"][i], p["q_gain"][i])',
         'q = rms((x @ p["wq"][i]).view(b, t, H, HD), p["q_gain"][i].view(H, HD))'),
        ('k = rms(k, p["k_gain"][i])',
         'k = rms(k.reshape(b, t, KV, HD), p["k_gain"][i].view(KV, HD))')],
    "rope_theta": [("EPS, THETA = 1e-5, 500000.0", "EPS, THETA = 1e-5, 10000.0")],
    "prompt_in_loss": [
        ("answer = torch.arange(1, ids.shape[1]) >= prompt[:, None]",
         "answer = torch.ones_like(gold)")],
    "decay_on_norms": [("wd = 0.0 if name in NORMS else 0.1", "wd = 0.1 if p[name].ndim >= 2 else 0.0")],
    "schedule_shift": [("rate(t - 1))", "rate(t))")],
}
