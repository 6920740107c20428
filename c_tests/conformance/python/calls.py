# SPDX-License-Identifier: Apache-2.0
"""The calls of the tables. Those of an object and numbers are found by their names in main.py."""

import mmap
import os
import weakref

import kvmem
import memory
import stores
from kvmem import _release
from step import Failed

SHAPE = (
    "num_blocks num_layers outer_dim page_size inner_dim dtype_width alignment num_heads "
    "block_stride layer_stride outer_stride token_stride head_stride element_stride"
).split()


def named(step, state, key, kind):
    return state.find(step.given.text(key), kind)


def agent_of(step, state):
    return named(step, state, "agent", kvmem.Agent) if "agent" in step.given else None


# ---- regions and layouts ----


def system(step, state):
    given = step.given
    return kvmem.Region.system(
        given.number("size"), flags=given.flags("flags", kvmem.SystemFlags), huge_page_size=given.number("huge_page_size"),
        prefault_threads=given.number("prefault_threads"),
    )  # fmt: skip


def file_of(step, state):
    given = step.given
    return {key: state.path(given.text(key)) for key in ("path", "directory") if key in given}


def disk(step, state):
    return kvmem.Region.disk(step.given.number("size"), flags=step.given.flags("flags", kvmem.DiskFlags), **file_of(step, state))


def adopt(step, state):
    owner = mmap.mmap(-1, step.given.number("size"))
    state.adopted[step.name] = weakref.ref(owner)
    return kvmem.Region.adopt(owner, read_only=kvmem.AdoptFlags.READ_ONLY in step.given.flags("flags", kvmem.AdoptFlags) or None)


def await_release(step, state):
    if step.name not in state.adopted:
        raise Failed(f"no region {step.name!r} was adopted")
    while state.adopted[step.name]() is not None:
        _release.held()  # drops what was released
        os.sched_yield()


def shape(given):
    numbers = {key: given.number(key) for key in SHAPE}
    return kvmem.Shape(**numbers, order=given.text("order"), identity=given.text("identity").encode())


def build(step, state):
    given, config = step.given, shape(step.given)
    flags = int(given.flags("system_flags", kvmem.SystemFlags)) | int(given.flags("disk_flags", kvmem.DiskFlags))
    device, files, agent = given.number("device"), file_of(step, state), agent_of(step, state)
    regions = [state.find(name, kvmem.Region) for name in given.list("regions")]
    registrations = [state.find(name, kvmem.Registration) for name in given.list("registrations")]
    if "memory" in given:
        tier = given.constant("memory", kvmem.Tier)
        return kvmem.Layout.allocate(config, tier, agent=agent, device=device, flags=flags, **files)
    if registrations:
        return kvmem.Layout.of_registrations(config, registrations)
    return kvmem.Layout.of_regions(config, regions, agent=agent)


def combine(step, state):
    pairs = [item.split(":") for item in step.given.list("parts")]
    return kvmem.Layout.combine({name: state.find(layout, kvmem.Layout) for name, layout in pairs})


def address(step, state, found):
    layout = state.find(step.name, kvmem.Layout)
    step.result = {"offset": found[0] - layout.strides.bases[0], "size": found[1]}


def block(step, state):
    given = step.given
    address(step, state, state.find(step.name, kvmem.Layout).block(given.number("block"), given.number("layer"), given.number("outer")))


def row(step, state):
    at = [step.given.number(key) for key in ("block", "layer", "outer", "token", "head")]
    address(step, state, state.find(step.name, kvmem.Layout).row(*at))


def layout_info(step, state):
    info = state.find(step.name, kvmem.Layout).info
    step.put(info)
    step.result["part_names"] = joined(info.part_names)


def joined(found):
    return ",".join(map(str, found))


def layout_checksum(step, state):
    found = state.find(step.name, kvmem.Layout).checksums(step.given.numbers("blocks"), step.given.timeout())
    step.result["checksums"] = joined(found)


def create_epochs(step, state):
    table = named(step, state, "table", kvmem.Region) if "table" in step.given else None
    state.find(step.name, kvmem.Layout).create_epochs(table)


def get_accesses(step, state):
    step.result["count"] = str(len(state.find(step.name, kvmem.Layout).accesses(step.given.numbers("blocks"))))


def seconds(given):
    return given.number("duration_ns") / 1e9 or None


def serve_layout(step, state):
    given = step.given
    max_lease = given.number("max_lease_ns") / 1e9 or None
    state.find(step.name, kvmem.Layout).serve(staging_size=given.number("staging_size"), max_lease=max_lease)


def create_lease(step, state):
    given = step.given
    layout = named(step, state, "layout", kvmem.Layout)
    timeout = given.number("timeout_ns") / 1e9 or 5
    return layout.lease(given.numbers("blocks"), seconds(given), timeout=timeout, flags=given.flags("flags", kvmem.LeaseFlags))


def renew_lease(step, state):
    state.find(step.name, kvmem.Lease).renew(seconds(step.given))


def lease_remaining(step, state):
    remaining = state.find(step.name, kvmem.Lease).remaining
    step.result["remaining_ns"] = 2**64 - 1 if remaining == float("inf") else int(remaining * 1e9)


# ---- transfers ----


def transfer(step, state):
    given = step.given
    options = stores.ranges(given)
    if "queue" in given:
        options["queue"] = named(step, state, "queue", kvmem.Queue)
    if "method" in given:
        options["method"] = given.constant("method", kvmem.Method)
    return kvmem.Transfer(
        named(step, state, "source", kvmem.Layout), named(step, state, "destination", kvmem.Layout), parts=given.list("parts") or None,
        flags=given.flags("flags", kvmem.TransferFlags), layers_per_completion=given.number("layers_per_completion"), **options,
    )  # fmt: skip


def run_options(step):
    """The blocks of a run: pairs or tables."""
    given = step.given
    options = {"num_tokens": given.number("num_tokens"), "flags": given.flags("submit_flags", kvmem.SubmitFlags)}
    if "pairs" in given:
        options["pairs"] = [tuple(int(each, 0) for each in pair.split(":")) for pair in given.list("pairs")]
    for key in ("checksums", "epochs"):
        if key in given:
            options[key] = given.numbers(key)
    if "notification" in given:
        options["notification"] = given.text("notification").encode()
    for side in ("source", "destination"):
        table = kvmem.Table(given.numbers(f"{side}_blocks"), given.number(f"{side}_first"), given.number(f"{side}_step"))
        if table.blocks:
            options[f"{side}_table"] = table
    return options


def prepare(step, state):
    state.find(step.name, kvmem.Transfer).prepare(**run_options(step))


def submit(step, state):
    state.find(step.name, kvmem.Transfer).submit(**run_options(step), user_data=step.given.number("user_data"))


def start(step, state):
    """As the package does it: created, prepared, and submitted."""
    options, user_data = run_options(step), step.given.number("user_data")
    made = transfer(step, state)
    try:
        return made.prepare(**options).submit(user_data=user_data)
    except BaseException:
        made.close()
        raise


def poll(step, state):
    return None if state.find(step.name, kvmem.Transfer).poll() else "IN_PROGRESS"


def wait(step, state):
    state.find(step.name, kvmem.Transfer).wait(step.given.timeout())


def wait_layers(step, state):
    state.find(step.name, kvmem.Transfer).wait_layers(step.given.number("num_layers"), step.given.timeout())


def transfer_info(step, state):
    step.put(state.find(step.name, kvmem.Transfer).info)


def get_methods(step, state):
    step.put(state.find(step.name, kvmem.Transfer).methods()[0], "method", "choice")


def queue_poll(step, state):
    take_completions(step, state, state.find(step.name, kvmem.Queue).poll)


def queue_wait(step, state):
    timeout = step.given.timeout()
    take_completions(step, state, lambda: state.find(step.name, kvmem.Queue).wait(timeout))


def take_completions(step, state, more):
    """A queue gives all that it has; what is beyond the capacity stays for the next step."""
    capacity, arrived = step.given.number("capacity"), state.arrived.setdefault(step.name, [])
    if not arrived:
        arrived += more()
    taken = [arrived.pop(0) for _ in range(min(capacity, len(arrived)))]
    layers = kvmem.CompletionKind.LAYERS_MOVED
    step.result["completions"] = ",".join(
        f"{each.user_data}:layers:{each.num_layers}" if each.kind == layers else f"{each.user_data}:{each.bytes}:{each.status.name}" for each in taken
    )


# ---- shares ----


def share(step, state, key, kind):
    given = step.given
    return kvmem.Share(
        named(step, state, key, kind), flags=given.flags("flags", kvmem.ShareFlags), transport=given.constant("transport", kvmem.Transport)
    )


def received(step, state):
    data, fds = named(step, state, "share", kvmem.Share).message
    return kvmem.Share.of_message(flipped(step, data), fds)


def flipped(step, data):
    if "flip" not in step.given:
        return data
    changed = bytearray(data)
    changed[step.given.number("flip")] ^= 0xFF
    return bytes(changed)


def open_region(step, state):
    return named(step, state, "share", kvmem.Share).open_region(flags=step.given.flags("flags", kvmem.OpenFlags))


def open_layout(step, state):
    return named(step, state, "share", kvmem.Share).open_layout(agent=agent_of(step, state), flags=step.given.flags("flags", kvmem.OpenFlags))


def share_info(step, state):
    step.put(state.find(step.name, kvmem.Share).info)


def publish(step, state):
    given, broker = step.given, state.find(step.name, kvmem.Broker)
    options, key = {"flags": given.flags("flags", kvmem.PublishFlags), "max_uses": given.number("max_uses")}, given.text("token")
    if step.call == "broker_publish":
        token = broker.publish(given.text("name"), named(step, state, "share", kvmem.Share), **options)
    else:
        token = broker.grant(given.text("name"), **options)
    state.stored[key] = token


def unpublish(step, state):
    state.find(step.name, kvmem.Broker).unpublish(step.given.text("name"))


def fetch(step, state):
    given = step.given
    return kvmem.Share.fetch(
        state.path(given.text("path")), given.text("name"), token=stored(step, state, "token"), flags=given.flags("flags", kvmem.FetchFlags)
    )


def stored(step, state, key):
    name = step.given.text(key)
    if name not in state.stored:
        raise Failed(f"no bytes are stored as {name!r}")
    return flipped(step, state.stored[name])


# ---- agents ----


def store(step, state, key, made):
    name = step.given.text(key)
    state.stored[name] = made()


def of_agent(call):
    return lambda step, state: call(step, state, state.find(step.name, kvmem.Agent))


def registration_info(step, state):
    step.put(state.find(step.name, kvmem.Registration).info)


def take_notifications(step, state, agent):
    taken = agent.take_notifications(step.given.timeout())
    if not taken and step.given.timeout() is not None:
        return "TIMED_OUT"
    step.result["notifications"] = ",".join(f"{each.agent}:{each.data.decode()}" for each in taken)


def result(step, key, value):
    step.result[key] = value


# ---- GPUs ----


def device_info(step, state):
    found = kvmem.cuda.device(step.given.number("device"))
    step.put(found, "total_memory", "multiprocessors")
    step.result["compute_capability_major"], step.result["compute_capability_minor"] = found.compute_capability


def destroy(step, state):
    state.find(step.name).close()
    del state.objects[step.name]
    state.arrived.pop(step.name, None)


CREATE = {
    "region_create_system": system,
    "region_create_disk": disk,
    "region_create_view": lambda s, state: named(s, state, "region", kvmem.Region).view(s.given.number("offset"), s.given.number("size")),
    "region_adopt_host": adopt,
    "region_create_pinned": lambda s, _: kvmem.Region.pinned(
        s.given.number("size"), device=s.given.number("device"), flags=s.given.flags("flags", kvmem.PinnedFlags)
    ),
    "region_create_device": lambda s, _: kvmem.Region.device(s.given.number("size"), device=s.given.number("device")),
    "region_create_elastic": lambda s, _: kvmem.Region.elastic(
        s.given.number("size"), device=s.given.number("device"), extent_size=s.given.number("extent_size")
    ),
    "layout_build": build,
    "layout_combine": combine,
    "layout_get_part": lambda s, state: named(s, state, "layout", kvmem.Layout).part(s.given.text("name")),
    "layout_get_region": lambda s, state: named(s, state, "layout", kvmem.Layout).region(s.given.number("index")),
    "lease_create": create_lease,
    "layout_import": lambda s, state: named(s, state, "agent", kvmem.Agent).import_layout(stored(s, state, "descriptor")),
    "queue_create": lambda *_: kvmem.Queue(),
    "transfer_create": transfer,
    "transfer_start": start,
    "share_create_region": lambda s, state: share(s, state, "region", kvmem.Region),
    "share_create_layout": lambda s, state: share(s, state, "layout", kvmem.Layout),
    "share_create_received": received,
    "share_open_region": open_region,
    "share_open_layout": open_layout,
    "share_fetch": fetch,
    "broker_create": lambda s, state: kvmem.Broker(state.path(s.given.text("path"))),
    "agent_create": lambda s, _: kvmem.Agent(s.given.text("name"), backends=(), flags=s.given.flags("flags", kvmem.AgentFlags)),
    "store_open": lambda s, state: stores.opened(s, state, shape(s.given)),
    "store_open_namespace": stores.opened_namespace,
    "region_register": lambda s, state: named(s, state, "agent", kvmem.Agent).register(named(s, state, "region", kvmem.Region)),
}

OTHER = {
    "status_name": lambda s, _: result(s, "name", kvmem.Status(s.given.number("value")).name.split("_-")[0]),
    "destroy": destroy,
    "await_release": await_release,
    "region_get_info": lambda s, state: s.put(state.find(s.name, kvmem.Region).info),
    "region_get_path": lambda s, state: result(s, "path", state.find(s.name, kvmem.Region).path),
    "region_get_agent": lambda s, state: result(s, "agent", state.find(s.name, kvmem.Region).agent(s.given.number("index"))),
    "layout_get_requirements": lambda s, _: s.put(shape(s.given).requirements),
    "layout_get_info": layout_info,
    "layout_get_block": block,
    "layout_get_row": row,
    "layout_checksum": layout_checksum,
    "layout_create_epochs": create_epochs,
    "layout_get_accesses": get_accesses,
    "layout_serve": serve_layout,
    "lease_renew": renew_lease,
    "lease_get_remaining": lease_remaining,
    "layout_export": lambda s, state: store(s, state, "descriptor", lambda: state.find(s.name, kvmem.Layout).export()),
    "transfer_prepare": prepare,
    "transfer_submit": submit,
    "transfer_poll": poll,
    "transfer_wait": wait,
    "transfer_wait_layers": wait_layers,
    "transfer_get_info": transfer_info,
    "transfer_get_methods": get_methods,
    "queue_poll": queue_poll,
    "queue_wait": queue_wait,
    "share_get_info": share_info,
    "broker_publish": publish,
    "broker_grant": publish,
    "broker_unpublish": unpublish,
    **stores.CALLS,
    "broker_get_info": lambda s, state: s.put(state.find(s.name, kvmem.Broker).info),
    "agent_name": of_agent(lambda s, _, agent: result(s, "name", agent.name)),
    "agent_create_backend": of_agent(lambda s, _, agent: agent.create_backend(s.given.text("plugin"))),
    "agent_get_backends": of_agent(lambda s, _, agent: result(s, "names", ",".join(agent.backends))),
    "agent_get_local_metadata": of_agent(lambda s, state, agent: store(s, state, "metadata", lambda: agent.metadata)),
    "agent_load_remote_metadata": of_agent(lambda s, state, agent: result(s, "peer", agent.load(stored(s, state, "metadata")))),
    "agent_check_remote_metadata": of_agent(lambda s, _, agent: agent.check(s.given.text("peer"))),
    "agent_invalidate_remote_metadata": of_agent(lambda s, _, agent: agent.invalidate(s.given.text("peer"))),
    "agent_invalidate_all_remote_metadata": of_agent(lambda s, _, agent: result(s, "count", agent.invalidate_all())),
    "agent_notify": of_agent(lambda s, _, agent: agent.notify(s.given.text("peer"), s.given.text("message").encode())),
    "agent_take_notifications": of_agent(take_notifications),
    "registration_get_info": registration_info,
    "cuda_get_info": lambda s, _: s.put(kvmem.cuda.info()),
    "cuda_get_device_info": device_info,
    "write": memory.write,
    "read": memory.read,
    "fill": memory.fill,
    "expect": memory.expect,
}
