# SPDX-License-Identifier: Apache-2.0
"""Faults of a training that are no kernel's: each rule a module, all of them registered in
rules.py.
"""
