# SPDX-License-Identifier: Apache-2.0
"""Recording functions of JAX: each call is traced, and the program that JAX makes of it is executed
primitive by primitive.
"""
