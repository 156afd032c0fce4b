# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "done_shift": [("1 - ended[1:])", "1 - ended[:-1])")],
    "lambda_mix": [("step = DISCOUNT * TRACE * alive", "step = DISCOUNT * alive")],
    "advantage_norm": [
        (
            "adv = adv / (adv.square().sum().div(len(adv) - 1).sqrt() + 1e-8)",
            "adv = adv / (adv.square().sum().sqrt() + 1e-8)",
        )
    ],
    "pessimistic": [("torch.minimum(rho * adv, bound)", "torch.maximum(rho * adv, bound)")],
    "value_half": [("/ (2 * len(s))", "/ len(s)")],
}
