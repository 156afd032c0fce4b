# SPDX-License-Identifier: Apache-2.0
"""opscope where people already work: a module for each trainer, which imports that trainer and is
imported by nobody in the house.
"""
