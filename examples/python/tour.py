# SPDX-License-Identifier: Apache-2.0
# A notebook in the percent format, which Jupytext and VS Code open; it also runs as a program. It needs NumPy and the wheel of kvmem.
# %% [markdown]
# # A tour of kvmem
# A KV cache of an engine, another one in its own order, and blocks that move between them.

# %%
import kvmem
import numpy as np

random = np.random.default_rng(1)
# One tensor per layer, as vLLM has them: blocks, keys and values, tokens, heads, elements.
caches = [random.standard_normal((64, 2, 16, 8, 128)).astype(np.float16) for _ in range(4)]
engine = kvmem.Layout.from_tensors(caches, order="L/BONHC", dtype="float16")

# %% [markdown]
# A notebook draws a layout: a bar for each axis of the memory, with the bytes from one index to the next.

# %%
engine

# %%
shape = kvmem.Shape(num_blocks=256, num_layers=4, page_size=16, num_heads=8, inner_dim=8 * 128, dtype="float16", order="BLHNOC")
pool = kvmem.Layout.allocate(shape, "system")
pool

# %% [markdown]
# A transfer moves blocks 7 and 8 to 42 and 43, verifies them, and explains how it does that.

# %%
transfer = kvmem.Transfer(engine, pool)
pairs = np.array([(7, 42), (8, 43)], np.uint32)
transfer.submit(pairs, flags=kvmem.SubmitFlags.VERIFY | kvmem.SubmitFlags.CHECKSUM).wait()
transfer.explain()

# %% [markdown]
# Checksums are of elements, so they are equal in each order.

# %%
assert transfer.checksums() == engine.checksums([7, 8]) == pool.checksums([42, 43])
moved = np.from_dlpack(pool.tensor(layer=2))  # axes B, H, N, O, C
assert (moved[42] == caches[2][7].transpose(2, 1, 0, 3)).all()
print(f"{transfer.info.bytes:,} bytes in {transfer.info.num_moves} moves")

# %%
for each in (transfer, pool, engine):
    each.close()
