# SPDX-License-Identifier: Apache-2.0
"""Blocks under keys, for engines: what `kvmem.vllm`, `kvmem.lmcache` and `kvmem.sglang` have in common.

`_settings` are checked at the start, `_store` opens a store and reports what it no longer has, `_run` is a put or get on its way."""
