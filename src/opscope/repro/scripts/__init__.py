# SPDX-License-Identifier: Apache-2.0
"""What is written into repro folders, or makes their calls in a process of its own: at work none of
it needs opscope.
"""
