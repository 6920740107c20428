# SPDX-License-Identifier: Apache-2.0
"""Calls of stores."""

import kvmem

KEY_SIZE = 32


def ranges(given):
    """The ranges of layers, outer slots and heads, as arguments."""
    found = {}
    for option, axis in (("layers", "layer"), ("outers", "outer"), ("heads", "head")):
        part = kvmem.Range(*(given.number(key) for key in (f"source_{axis}", f"destination_{axis}", f"num_{axis}s")))
        if any(part):
            found[option] = part
    return found


def opened(step, state, shape):
    given = step.given
    identity = dict(value.split(":") for value in given.list("values"))
    return kvmem.Store(
        state.path(given.text("path")), shape, identity=identity, max_size=given.number("max_size"),
        durability=given.constant("durability", kvmem.Durability), eviction=given.constant("eviction", kvmem.Eviction),
        flags=given.flags("flags", kvmem.DiskFlags),
    )  # fmt: skip


def opened_namespace(step, state):
    given = step.given
    key = key_of(given.number("key")) if "key" in given else None
    return state.find(given.text("store"), kvmem.Store).open_namespace(given.text("name"), quota=given.number("quota"), key=key)


def removed_namespace(step, state):
    step.result["count"] = str(store(step, state).remove_namespace(step.given.text("name")))


def store(step, state):
    return state.find(step.name, kvmem.Store)


def key_of(number):
    return bytes([number]) * KEY_SIZE


def keys_of(step):
    return [key_of(number) for number in step.given.numbers("keys")]


def blocks_of(step, state):
    return state.find(step.given.text("layout"), kvmem.Layout), keys_of(step), step.given.numbers("blocks")


def put(step, state):
    given = step.given
    parent = key_of(given.number("parent")) if "parent" in given else None
    run = store(step, state).put(*blocks_of(step, state), parent=parent, flags=given.flags("store_flags", kvmem.StoreFlags), **ranges(given))
    step.result["num_moved"] = str(run.wait())


def get(step, state):
    step.result["num_moved"] = str(store(step, state).get(*blocks_of(step, state), **ranges(step.given)).wait())


def contains(step, state):
    step.result["found"] = ",".join(str(int(found)) for found in store(step, state).contains(keys_of(step)))


def counted(name):
    def call(step, state):
        step.result["count"] = str(getattr(store(step, state), name)(keys_of(step)))

    return call


def listed(step, state):
    """Of all blocks, as the package has them."""
    first, capacity = step.given.number("first_slot"), step.given.number("capacity")
    entries = [entry for entry in store(step, state) if entry.slot >= first][:capacity]
    step.result["entries"] = ",".join(
        f"{entry.key[0]}:{entry.parent[0] if entry.parent else ''}:{int(entry.is_pinned)}" for entry in entries
    )


CALLS = {
    "store_remove_namespace": removed_namespace,
    "store_put": put,
    "store_get": get,
    "store_contains": contains,
    "store_remove": counted("remove"),
    "store_pin": counted("pin"),
    "store_unpin": counted("unpin"),
    "store_list": listed,
    "store_get_info": lambda step, state: step.put(store(step, state).info),
    "store_flush": lambda step, state: store(step, state).flush(step.given.timeout()),
    "store_verify": lambda step, state: store(step, state).verify(step.given.timeout()) and None,
}
