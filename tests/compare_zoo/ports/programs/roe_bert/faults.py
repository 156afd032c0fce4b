# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the written-out BERT."""

FAULTS = {
    # the epsilon of torch's default, not of BERT
    "ln_eps": [("layer_norm_eps: float = 1e-12", "layer_norm_eps: float = 1e-5")],
    # the additive mask never reaches the scores
    "pad_mask": [("torch.softmax(scores + extended_mask, dim=-1)", "torch.softmax(scores, dim=-1)")],
    # the mean runs over all places, the ignored ones too
    "mean_over_all": [("(nll * active).sum() / active.sum()", "(nll * active).mean()")],
    # BertAdam of old has no bias correction
    "bias_correction": [("c1, c2 = 1 - group[\"b1\"] ** state[\"t\"], 1 - group[\"b2\"] ** state[\"t\"]", "c1, c2 = 1.0, 1.0")],
    # the segments are not given to the model
    "token_type": [("model(seen, attention, token_type_ids=types)", "model(seen, attention)")],
}
