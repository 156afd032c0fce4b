# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "tensorflow"
FAULTS = {
    # no mask: the states after the padding
    "mask": [("layers.Embedding(VOCAB, EMBED, mask_zero=True)", "layers.Embedding(VOCAB, EMBED)")],
    # the gates taken for i c f o
    "gates": [("np.concatenate([i, f, g, o], axis=0)", "np.concatenate([i, g, f, o], axis=0)")],
    # one of the two biases only
    "recurrent_bias": [(' + w["lstm.bias_hh_l0" + suffix]', "")],
    # both directions get the weights of the forward one
    "suffix": [('(model.rnn.backward_layer, "_reverse")', '(model.rnn.backward_layer, "")')],
    # every gradient clipped by its own norm
    "clip": [("global_clipnorm=", "clipnorm=")],
}
