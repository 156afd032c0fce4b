# SPDX-License-Identifier: Apache-2.0
"""Executing one call again: the call with its memory, the trusted substitutes, and the process in
which they run untouched.
"""
