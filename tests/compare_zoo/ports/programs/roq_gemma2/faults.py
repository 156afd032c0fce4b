# SPDX-License-Identifier: Apache-2.0
"""Faults of the Gemma 2 port."""

NEEDS = ["transformers"]
FAULTS = {
    "attn_scale": [("* a.q_scalar**-0.5", "* a.hd**-0.5")],
    "window_edge": [("behind < a.window", "behind <= a.window")],
    "logit_softcap": [("return soft_cap(rms(x, self.last_gain, self.a.eps) @ self.table.T, self.a.out_cap)",
                       "return rms(x, self.last_gain, self.a.eps) @ self.table.T")],
    "prompt_in_loss": [("loss = nll[keep].mean()", "loss = nll.mean()")],
    "schedule_late": [('group["lr"] = rate(step)', 'group["lr"] = rate(step - 1)')],
}
