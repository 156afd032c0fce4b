# SPDX-License-Identifier: Apache-2.0
"""Where work runs that is one small function over many parts: processes here, Dask, Ray."""
