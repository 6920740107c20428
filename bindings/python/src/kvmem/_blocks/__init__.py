# SPDX-License-Identifier: Apache-2.0
"""Blocks under keys, for engines: what `kvmem.vllm`, `kvmem.lmcache` and `kvmem.sglang` have in common.

`_settings` are checked at the start, `_files` has the memory or file with the slots, `_index` says which block is in which slot, `_run`
copies blocks and finds the damaged ones."""
