# SPDX-License-Identifier: Apache-2.0
"""Sweeps of operators: calls of one operator over types, shapes, layouts and special values, each
held against all witnesses.
"""
