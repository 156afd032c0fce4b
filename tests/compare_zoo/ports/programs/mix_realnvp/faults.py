# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "scale_bound": [('q["amp"] * log_s.tanh()', '(q["amp"] * log_s).tanh()')],
    "coupling_order": [("b * log_s.exp() + t", "(b + t) * log_s.exp()")],
    "actnorm_logdet": [('volume + q["gain"].sum()', 'volume + q["gain"].mean()')],
    "mask_parity": [("HALF[1 - k % 2], HALF[k % 2]", "HALF[k % 2], HALF[1 - k % 2]")],
    "lookahead": [("lr * (g + mu * bufs[i])", "lr * bufs[i]")],
}
