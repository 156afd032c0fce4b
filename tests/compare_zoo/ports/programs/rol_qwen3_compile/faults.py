# SPDX-License-Identifier: Apache-2.0
"""Faults of the compiled Qwen3 port."""

NEEDS = ["transformers"]
FAULTS = {
    "mean_of_means": [
        ("part = nll / n_tokens", "part = nll / (target != -100).sum() / Hyper.accum")],
    "mask_dropped": [
        ("net(input_ids=ids, attention_mask=mask, use_cache=False)",
         "net(input_ids=ids, use_cache=False)")],
    "sched_per_micro": [("ticks += 1", "ticks += Hyper.accum")],
    "bias_correction_2": [
        ("v_hat = self.v / (1 - Hyper.beta2 ** self.t)", "v_hat = self.v")],
    "rope_base": [("rope_base = 1000.0", "rope_base = 10000.0")],
}
