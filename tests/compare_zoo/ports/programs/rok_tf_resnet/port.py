# SPDX-License-Identifier: Apache-2.0
"""Keras (functional API, NHWC) version of the fine-tuned ResNet."""
import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

tf.debugging.experimental.enable_dump_debug_info(sys.argv[2], tensor_debug_mode="FULL_TENSOR", circular_buffer_size=-1)

WEIGHT_DECAY = 1e-2


def batch_norm(name):
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)  # <- bn_epsilon


def conv3(x, filters, strides, name):
    if strides > 1:
        x = layers.ZeroPadding2D(1)(x)  # <- same_padding
        return layers.Conv2D(filters, 3, strides, padding="valid", use_bias=False, name=name)(x)  # <- same_padding
    return layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name)(x)


def residual(x, filters, strides, name):
    skip = x
    x = conv3(x, filters, strides, name + ".conv1")
    x = layers.ReLU()(batch_norm(name + ".bn1")(x))  # <- bn_epsilon
    x = conv3(x, filters, 1, name + ".conv2")
    x = batch_norm(name + ".bn2")(x)  # <- bn_epsilon
    if strides > 1:
        skip = layers.Conv2D(filters, 1, strides, use_bias=False, name=name + ".shortcut.0")(skip)
        skip = batch_norm(name + ".shortcut.1")(skip)
    return layers.ReLU()(layers.add([x, skip]))


def build():
    inputs = keras.Input((12, 12, 3))
    x = conv3(inputs, 8, 1, "conv")
    frozen = batch_norm("bn")
    frozen.trainable = False  # <- stem_bn_trains
    x = layers.ReLU()(frozen(x))  # <- stem_bn_trains
    x = residual(x, 8, 1, "layer1")
    x = residual(x, 16, 2, "layer2")
    x = layers.AveragePooling2D(2)(x)
    x = layers.Flatten()(x)
    return keras.Model(inputs, layers.Dense(6, name="fc")(x))


def load_torch(model, path):
    state = np.load(path)
    for layer in model.layers:
        if isinstance(layer, layers.Conv2D):
            layer.set_weights([state[layer.name + ".weight"].transpose(2, 3, 1, 0)])
        elif isinstance(layer, layers.BatchNormalization):
            fields = ("weight", "bias", "running_mean", "running_var")
            layer.set_weights([state[f"{layer.name}.{f}"] for f in fields])
    kernel = state["fc.weight"].reshape(6, 16, 3, 3).transpose(2, 3, 1, 0).reshape(-1, 6)
    model.get_layer("fc").set_weights([kernel, state["fc.bias"]])


model = build()
load_torch(model, sys.argv[1])
cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
sgd = keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True)  # <- no_nesterov
variables = model.trainable_variables


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        data_loss = cross_entropy(labels, model(images, training=True))  # <- bn_epsilon same_padding stem_bn_trains
        penalty = tf.add_n([tf.nn.l2_loss(v) for v in variables])  # <- l2_twice
        total = data_loss + WEIGHT_DECAY * penalty  # <- l2_twice
    grads = tape.gradient(total, variables)
    sgd.apply_gradients(zip(grads, variables))  # <- no_nesterov
    return data_loss


rng = np.random.RandomState(4)
x_train = rng.uniform(-1, 1, size=(32, 3, 12, 12)).astype("float32")
y_train = rng.randint(0, 6, size=32)
x_train = np.moveaxis(x_train, 1, -1)
losses = []
for i in range(4):
    part = slice(8 * i, 8 * (i + 1))
    loss = train_step(tf.constant(x_train[part]), tf.constant(y_train[part]))
    losses.append(float(loss.numpy()))
print(losses)
