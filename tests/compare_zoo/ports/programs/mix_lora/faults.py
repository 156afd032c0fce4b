# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "lora_scale": [("delta * (alpha / rank)", "delta * (alpha / rank ** 0.5)")],
    "rotary_pairs": [
        ("h.unflatten(-1, (2, -1)).unbind(-2)", "h.unflatten(-1, (-1, 2)).unbind(-1)")
    ],
    "local_window": [("pos[:, None] - pos < 4", "pos[:, None] - pos <= 4")],
    "norm_trained": [("tuned = lora_q + lora_v + norms", "tuned = lora_q + lora_v + norms[:2]")],
    "prompt_tokens": [("-hit[chosen].mean()", "-(hit * chosen).mean()")],
}
