# SPDX-License-Identifier: Apache-2.0
"""Versions of the headers. Generated from the headers by scripts/bindings.py; do not edit."""

ABI_VERSION = 2
