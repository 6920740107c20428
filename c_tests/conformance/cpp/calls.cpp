// SPDX-License-Identifier: Apache-2.0
// The calls of the tables, through kvmem.hpp.
#include "words.hpp"
#include "world.hpp"

#include <cstring>
#include <functional>

namespace {

using kvmem::Flags;

std::string number(std::uint64_t value) { return std::to_string(value); }

template <typename E>
std::uint64_t raw(E value) {
    return static_cast<std::uint64_t>(value);
}

template <typename Flag>
Flags<Flag> flags(const Step &step, const std::string &key, const Words &words) {
    return Flags<Flag>::from_bits(step.flags(key, words));
}

std::optional<std::string> optional_path(const Step &step, const std::string &key, const World &world) {
    if (!step.has(key)) return std::nullopt;
    return world.path(step.text(key));
}

// The name of the object that the call creates, which must be free.
const std::string &new_name(const Step &step, const World &world) {
    world.require_free(step.name());
    return step.name();
}

// ---- Regions ----

Results create_system(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::SystemOptions options;
    options.flags = flags<kvmem::SystemFlag>(step, "flags", system_flags);
    options.size = step.number("size");
    options.huge_page_size = step.number("huge_page_size");
    options.prefault_threads = step.number32("prefault_threads");
    world.add(name, kvmem::Region::create_system(options));
    return {};
}

Results create_disk(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::DiskOptions options;
    options.flags = flags<kvmem::DiskFlag>(step, "flags", disk_flags);
    options.size = step.number("size");
    options.path = optional_path(step, "path", world);
    options.directory = optional_path(step, "directory", world);
    world.add(name, kvmem::Region::create_disk(options));
    return {};
}

Results create_view(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    const auto &parent = world.get<kvmem::Region>(step.text("region"));
    world.add(name, parent.create_view(step.number("offset"), step.number("size")));
    return {};
}

Results adopt_host(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::AdoptOptions options;
    options.flags = flags<kvmem::AdoptFlag>(step, "flags", adopt_flags);
    options.size = step.number("size");
    const auto memory = std::make_shared<Adopted>(options.size);
    options.address = memory->address;
    options.release = [memory] { memory->release(); };
    world.add(name, kvmem::Region::adopt_host(std::move(options)));
    world.adopted[name] = memory;
    return {};
}

Results region_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Region>(step.name()).info();
    return {{"size", number(info.size)},
            {"page_size", number(info.page_size)},
            {"alignment", number(info.alignment)},
            {"tier", word_of(raw(info.tier), tiers)},
            {"origin", word_of(raw(info.origin), origins)},
            {"flags", flags_of(info.flags.bits(), region_flags)},
            {"registration_count", number(info.registration_count)}};
}

Results region_holders(const Step &step, World &world) {
    const auto holders = world.get<kvmem::Region>(step.name()).holders();
    return {{"references", number(holders.references)}, {"views", number(holders.views)},
            {"registrations", number(holders.registrations)}, {"shares", number(holders.shares)},
            {"importers", number(holders.importers)}, {"handles", number(holders.handles)}};
}

std::byte *region_bytes(const Step &step, World &world, std::size_t size) {
    const auto bytes = world.get<kvmem::Region>(step.name()).host_bytes();
    const std::size_t offset = step.number("offset");
    if (offset + size > bytes.size()) throw Failure("the bytes are outside the region");
    return bytes.data() + offset;
}

Results write_region(const Step &step, World &world) {
    const auto bytes = parse_bytes(step.text("bytes"));
    std::memcpy(region_bytes(step, world, bytes.size()), bytes.data(), bytes.size());
    return {};
}

Results read_region(const Step &step, World &world) {
    const auto bytes = parse_bytes(step.text("bytes"));
    if (std::memcmp(region_bytes(step, world, bytes.size()), bytes.data(), bytes.size()) != 0) {
        throw Failure("the region has other bytes");
    }
    return {};
}

// ---- Layouts ----

kvmem::LayoutConfig shape(const Step &step) {
    kvmem::LayoutConfig config;
    config.num_blocks = step.number("num_blocks");
    config.num_layers = step.number("num_layers");
    config.outer_dim = step.number("outer_dim");
    config.page_size = step.number("page_size");
    config.inner_dim = step.number("inner_dim");
    config.dtype_width = step.number("dtype_width");
    config.alignment = step.number("alignment");
    config.num_heads = step.number("num_heads");
    config.kind = static_cast<kvmem::LayoutKind>(step.word("kind", kinds));
    config.block_dim = static_cast<kvmem::BlockDim>(step.word("block_dim", block_dims));
    if (step.has("order")) config.order = step.text("order");
    config.block_stride = step.number("block_stride");
    config.layer_stride = step.number("layer_stride");
    config.outer_stride = step.number("outer_stride");
    config.token_stride = step.number("token_stride");
    config.head_stride = step.number("head_stride");
    config.element_stride = step.number("element_stride");
    return config;
}

Results requirements(const Step &step, World &) {
    const auto needs = kvmem::layout_requirements(shape(step));
    return {{"num_regions", number(needs.num_regions)}, {"region_size", number(needs.region_size)},
            {"total_size", number(needs.total_size)}, {"allocation_size", number(needs.allocation_size)}};
}

kvmem::Layout build_on(const Step &step, World &world) {
    const auto config = shape(step);
    if (step.has("regions")) {
        // Other handles to the same regions: those of the case stay where they are.
        std::vector<kvmem::Region> regions;
        for (const std::string &name : step.list("regions")) {
            const auto &region = world.get<kvmem::Region>(name);
            regions.push_back(region.create_view(0, region.info().size));
        }
        return kvmem::Layout::build(config, regions);
    }
    if (step.text("memory") == "disk") {
        kvmem::DiskOptions options;
        options.flags = flags<kvmem::DiskFlag>(step, "disk_flags", disk_flags);
        options.path = optional_path(step, "path", world);
        return kvmem::Layout::build(config, options);
    }
    if (step.text("memory") != "system") throw Failure("memory is system or disk");
    kvmem::SystemOptions options;
    options.flags = flags<kvmem::SystemFlag>(step, "system_flags", system_flags);
    return kvmem::Layout::build(config, options);
}

Results build(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    world.add(name, build_on(step, world));
    return {};
}

Results layout_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Layout>(step.name()).info();
    return {{"num_blocks", number(info.num_blocks)}, {"num_layers", number(info.num_layers)},
            {"outer_dim", number(info.outer_dim)}, {"page_size", number(info.page_size)},
            {"inner_dim", number(info.inner_dim)}, {"dtype_width", number(info.dtype_width)},
            {"alignment", number(info.alignment)}, {"num_heads", number(info.num_heads)},
            {"num_regions", number(info.num_regions)}, {"kind", word_of(raw(info.kind), kinds)},
            {"block_dim", word_of(raw(info.block_dim), block_dims)}, {"tier", word_of(raw(info.tier), tiers)},
            {"locality", word_of(raw(info.locality), localities)},
            {"memory_type", word_of(raw(info.memory_type), memory_types)}, {"order", info.order},
            {"block_stride", number(info.block_stride)}, {"layer_stride", number(info.layer_stride)},
            {"outer_stride", number(info.outer_stride)}, {"token_stride", number(info.token_stride)},
            {"head_stride", number(info.head_stride)}, {"element_stride", number(info.element_stride)}};
}

Results layout_strides(const Step &step, World &world) {
    const auto strides = world.get<kvmem::Layout>(step.name()).strides();
    return {{"num_bases", number(strides.num_bases)}, {"block_stride", number(strides.block_stride)},
            {"layer_stride", number(strides.layer_stride)}, {"outer_stride", number(strides.outer_stride)},
            {"token_stride", number(strides.token_stride)}, {"head_stride", number(strides.head_stride)},
            {"element_stride", number(strides.element_stride)}, {"layer_step", number(strides.layer_step)},
            {"outer_step", number(strides.outer_step)}, {"token_step", number(strides.token_step)},
            {"head_step", number(strides.head_step)}, {"size", number(strides.size)},
            {"row_size", number(strides.row_size)}};
}

Results located(const kvmem::Layout &layout, const kvmem::BlockRange &range) {
    return {{"offset", number(range.address - layout.strides().bases[0])}, {"size", number(range.size)}};
}

Results get_block(const Step &step, World &world) {
    const auto &layout = world.get<kvmem::Layout>(step.name());
    return located(layout, layout.block(step.number32("block"), step.number("layer"), step.number("outer")));
}

Results get_row(const Step &step, World &world) {
    const auto &layout = world.get<kvmem::Layout>(step.name());
    return located(layout, layout.row(step.number32("block"), step.number("layer"), step.number("outer"),
                                      step.number("token"), step.number("head")));
}

Results get_region(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    world.add(name, world.get<kvmem::Layout>(step.text("layout")).region(step.number("index")));
    return {};
}

std::vector<std::uint32_t> ids(const Step &step, const std::string &key) {
    std::vector<std::uint32_t> ids;
    for (const std::uint64_t id : step.numbers(key)) ids.push_back(static_cast<std::uint32_t>(id));
    return ids;
}

Results checksum(const Step &step, World &world) {
    std::string list;
    for (const std::uint32_t one : world.get<kvmem::Layout>(step.name()).checksum(ids(step, "blocks"))) {
        list += (list.empty() ? "" : ",") + number(one);
    }
    return {{"checksums", list}};
}

// Visits each element of a block in the order of layers, outer slots, tokens, heads and elements.
void visit(const Step &step, World &world, const std::function<void(std::byte *, std::size_t)> &element) {
    const auto &layout = world.get<kvmem::Layout>(step.name());
    const auto info = layout.info();
    const auto at = layout.strides();
    const std::uint64_t block = step.number("block"), heads = info.num_heads ? info.num_heads : 1;
    if (block >= info.num_blocks) throw Failure("there is no such block");
    for (std::uint64_t l = 0; l < info.num_layers; ++l)
        for (std::uint64_t o = 0; o < info.outer_dim; ++o)
            for (std::uint64_t n = 0; n < info.page_size; ++n)
                for (std::uint64_t h = 0; h < heads; ++h)
                    for (std::uint64_t c = 0; c < info.inner_dim / heads; ++c) {
                        const std::uint64_t base =
                            at.bases[l * at.layer_step + o * at.outer_step + n * at.token_step + h * at.head_step];
                        const std::uint64_t address = base + block * at.block_stride + l * at.layer_stride +
                                                      o * at.outer_stride + n * at.token_stride +
                                                      h * at.head_stride + c * at.element_stride;
                        element(reinterpret_cast<std::byte *>(address), info.dtype_width);
                    }
}

std::byte pattern(std::uint64_t seed, std::uint64_t i) {
    return static_cast<std::byte>((31 * seed + 7 * i + 13 * (i / 256)) % 256);
}

Results fill(const Step &step, World &world) {
    const std::uint64_t seed = step.number("seed");
    std::uint64_t i = 0;
    visit(step, world, [&](std::byte *bytes, std::size_t width) {
        for (std::size_t k = 0; k < width; ++k) bytes[k] = pattern(seed, i++);
    });
    return {};
}

Results expect(const Step &step, World &world) {
    std::vector<std::byte> found;
    visit(step, world, [&](std::byte *bytes, std::size_t width) { found.insert(found.end(), bytes, bytes + width); });
    std::vector<std::byte> expected;
    if (step.has("bytes")) {
        expected = parse_bytes(step.text("bytes"));
    } else {
        const std::uint64_t seed = parse_number(step.text("seed"));
        for (std::size_t i = 0; i < found.size(); ++i) expected.push_back(pattern(seed, i));
    }
    if (expected.size() != found.size()) {
        throw Failure("the block has " + number(found.size()) + " bytes, not " + number(expected.size()));
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i] == expected[i]) continue;
        throw Failure("byte " + number(i) + " of the block: expected " + number(raw(expected[i])) + ", found " +
                      number(raw(found[i])));
    }
    return {};
}

// ---- Queues ----

Results completions(kvmem::span<const kvmem::Completion> taken) {
    std::string list;
    for (const auto &one : taken) {
        const std::string status = std::string(kvmem::name(one.status)).substr(std::strlen("KVMEM_STATUS_"));
        list += (list.empty() ? "" : ",") + number(one.user_data) + ":" + number(one.bytes) + ":" + status;
    }
    return {{"completions", list}};
}

std::chrono::nanoseconds timeout(const Step &step) {
    const std::uint64_t ns = step.number("timeout_ns", KVMEM_TIMEOUT_FOREVER);
    return ns == KVMEM_TIMEOUT_FOREVER ? std::chrono::nanoseconds::max()
                                       : std::chrono::nanoseconds(static_cast<std::int64_t>(ns));
}

// What a timeout is in C++ instead of a status.
[[noreturn]] void timed_out() { throw kvmem::Error(kvmem::Status::timed_out, "not in time"); }

Results queue_poll(const Step &step, World &world) {
    std::vector<kvmem::Completion> space(step.number("capacity"));
    return completions(world.get<kvmem::Queue>(step.name()).poll(space));
}

Results queue_wait(const Step &step, World &world) {
    std::vector<kvmem::Completion> space(step.number("capacity"));
    const auto taken = world.get<kvmem::Queue>(step.name()).wait_for(space, timeout(step));
    if (taken.empty()) timed_out();
    return completions(taken);
}

// ---- Transfers ----

// The blocks of a step, and what the options refer to.
struct Blocks {
    explicit Blocks(const Step &step) {
        for (const std::string &pair : step.list("pairs")) {
            const auto both = split(pair, ':');
            if (both.size() != 2) throw Failure("'" + pair + "' is no pair");
            pairs.push_back({static_cast<std::uint32_t>(parse_number(both[0])),
                             static_cast<std::uint32_t>(parse_number(both[1]))});
        }
        checksums = ids(step, "checksums");
        source = ids(step, "source_blocks");
        destination = ids(step, "destination_blocks");
        if (step.has("source_blocks")) {
            source_table = {source, step.number("source_first"), step.number("source_step")};
        }
        if (step.has("destination_blocks")) {
            destination_table = {destination, step.number("destination_first"), step.number("destination_step")};
        }
    }
    template <typename Options>
    void set(Options &options, const Step &step) const {
        options.pairs = pairs;
        options.checksums = checksums;
        options.source_table = source_table;
        options.destination_table = destination_table;
        options.num_tokens = step.number("num_tokens");
        options.user_data = step.number("user_data");
    }

    std::vector<kvmem::BlockPair> pairs;
    std::vector<std::uint32_t> checksums, source, destination;
    std::optional<kvmem::BlockTable> source_table, destination_table;
};

template <typename Create>
Results create_transfer(const Step &step, World &world, Create create) {
    const auto &name = new_name(step, world);
    const Blocks blocks(step);
    kvmem::TransferOptions options;
    blocks.set(options, step);
    options.flags = flags<kvmem::TransferFlag>(step, "flags", transfer_flags);
    options.source_layer = step.number("source_layer");
    options.destination_layer = step.number("destination_layer");
    options.num_layers = step.number("num_layers");
    options.source_outer = step.number("source_outer");
    options.destination_outer = step.number("destination_outer");
    options.num_outers = step.number("num_outers");
    options.source_head = step.number("source_head");
    options.destination_head = step.number("destination_head");
    options.num_heads = step.number("num_heads");
    if (step.has("queue")) options.queue = &world.get<kvmem::Queue>(step.text("queue"));
    const auto &source = world.get<kvmem::Layout>(step.text("source"));
    const auto &destination = world.get<kvmem::Layout>(step.text("destination"));
    world.add(name, create(source, destination, options));
    return {};
}

Results submit_pairs(const Step &step, World &world) {
    const Blocks blocks(step);
    kvmem::SubmitOptions options;
    blocks.set(options, step);
    world.get<kvmem::Transfer>(step.name()).submit_pairs(options);
    return {};
}

Results transfer_poll(const Step &step, World &world) {
    if (!world.get<kvmem::Transfer>(step.name()).poll()) throw Failure("the run is in flight");
    return {};
}

Results transfer_wait(const Step &step, World &world) {
    if (!world.get<kvmem::Transfer>(step.name()).wait_for(timeout(step))) timed_out();
    return {};
}

Results wait_layers(const Step &step, World &world) {
    const auto &transfer = world.get<kvmem::Transfer>(step.name());
    if (!transfer.wait_layers_for(step.number("num_layers"), timeout(step))) timed_out();
    return {};
}

Results transfer_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Transfer>(step.name()).info();
    return {{"bytes", number(info.bytes)}, {"num_pieces", number(info.num_pieces)},
            {"num_moves", number(info.num_moves)}, {"num_requests", number(info.num_requests)},
            {"path", word_of(raw(info.path), paths)}};
}

// ---- Shares and brokers ----

kvmem::ShareOptions share_options(const Step &step) {
    kvmem::ShareOptions options;
    options.flags = flags<kvmem::ShareFlag>(step, "flags", share_flags);
    options.transport = static_cast<kvmem::Transport>(step.word("transport", transports));
    return options;
}

template <typename T>
Results create_share(const Step &step, World &world, const std::string &key) {
    const auto &name = new_name(step, world);
    world.add(name, kvmem::Share::create(world.get<T>(step.text(key)), share_options(step)));
    return {};
}

Results create_received(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    const auto &share = world.get<kvmem::Share>(step.text("share"));
    std::vector<std::byte> bytes(share.bytes().begin(), share.bytes().end());
    if (step.has("flip")) bytes.at(step.number("flip")) ^= std::byte{0xff};
    std::vector<std::int32_t> fds;
    for (std::size_t i = 0; i < share.info().num_fds; ++i) fds.push_back(share.fd(i));
    world.add(name, kvmem::Share::create_received(bytes, fds));
    return {};
}

Results share_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Share>(step.name()).info();
    return {{"num_fds", number(info.num_fds)}, {"memory_size", number(info.memory_size)},
            {"object", word_of(raw(info.object), shared_objects)},
            {"tier", info.tier ? word_of(raw(*info.tier), tiers) : "0"}, {"read_only", number(info.read_only)},
            {"transport", word_of(raw(info.transport), transports)}};
}

template <typename Open>
Results open_share(const Step &step, World &world, Open open) {
    const auto &name = new_name(step, world);
    kvmem::OpenOptions options;
    options.flags = flags<kvmem::OpenFlag>(step, "flags", open_flags);
    world.add(name, open(world.get<kvmem::Share>(step.text("share")), options));
    return {};
}

Results create_broker(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::BrokerOptions options;
    options.path = world.path(step.text("path"));
    world.add(name, kvmem::Broker::create(options));
    return {};
}

kvmem::PublishOptions publish_options(const Step &step) {
    kvmem::PublishOptions options;
    options.flags = flags<kvmem::PublishFlag>(step, "flags", publish_flags);
    options.max_uses = step.number("max_uses");
    return options;
}

Results publish(const Step &step, World &world) {
    const std::string &token = step.text("token");
    const auto &share = world.get<kvmem::Share>(step.text("share"));
    const auto options = publish_options(step);
    world.tokens[token] = world.get<kvmem::Broker>(step.name()).publish(step.text("name"), share, options);
    return {};
}

Results grant(const Step &step, World &world) {
    const std::string &token = step.text("token");
    const auto options = publish_options(step);
    world.tokens[token] = world.get<kvmem::Broker>(step.name()).grant(step.text("name"), options);
    return {};
}

Results broker_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Broker>(step.name()).info();
    return {{"publications", number(info.publications)}, {"granted", number(info.granted)},
            {"refused", number(info.refused)}};
}

Results fetch(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::FetchOptions options;
    options.flags = flags<kvmem::FetchFlag>(step, "flags", fetch_flags);
    options.path = world.path(step.text("path"));
    options.name = step.text("name");
    options.token = world.tokens.at(step.text("token"));
    world.add(name, kvmem::fetch_share(options));
    return {};
}

// ---- All calls ----

using Call = std::function<Results(const Step &, World &)>;

// A call without keys and results.
template <typename T, typename Do>
Call simply(Do call) {
    return [call](const Step &step, World &world) {
        call(world.get<T>(step.name()), step);
        return Results();
    };
}

const std::map<std::string, Call> calls = {
    {"status_name", [](const Step &step, World &) -> Results {
         const auto status = static_cast<kvmem::Status>(static_cast<std::int64_t>(step.number("value")));
         return {{"name", std::string(kvmem::name(status)).substr(std::strlen("KVMEM_STATUS_"))}};
     }},
    {"region_create_system", create_system},
    {"region_create_disk", create_disk},
    {"region_create_view", create_view},
    {"region_adopt_host", adopt_host},
    {"region_get_info", region_info},
    {"region_get_path", [](const Step &step, World &world) -> Results {
         return {{"path", world.shown(world.get<kvmem::Region>(step.name()).path())}};
     }},
    {"region_get_holders", region_holders},
    {"region_get_residency", simply<kvmem::Region>([](auto &region, const Step &) { region.residency(); })},
    {"region_sync", simply<kvmem::Region>([](auto &region, const Step &) { region.sync(); })},
    {"region_check_owner", simply<kvmem::Region>([](auto &region, const Step &) { region.check_owner(); })},
    {"region_commit", simply<kvmem::Region>([](auto &region, const Step &step) {
         region.commit(step.number("offset"), step.number("size"));
     })},
    {"region_decommit", simply<kvmem::Region>([](auto &region, const Step &step) {
         region.decommit(step.number("offset"), step.number("size"));
     })},
    {"write", write_region},
    {"read", read_region},
    {"await_release", [](const Step &step, World &world) -> Results {
         const auto memory = world.adopted.find(step.name());
         if (memory == world.adopted.end()) throw Failure(step.name() + " was not adopted");
         memory->second->await_release();
         return {};
     }},
    {"layout_get_requirements", requirements},
    {"layout_build", build},
    {"layout_get_info", layout_info},
    {"layout_get_strides", layout_strides},
    {"layout_get_block", get_block},
    {"layout_get_row", get_row},
    {"layout_get_region", get_region},
    {"layout_checksum", checksum},
    {"layout_resize", simply<kvmem::Layout>([](auto &layout, const Step &step) {
         layout.resize(step.number("num_blocks"));
     })},
    {"fill", fill},
    {"expect", expect},
    {"queue_create", [](const Step &step, World &world) -> Results {
         world.add(new_name(step, world), kvmem::Queue::create());
         return {};
     }},
    {"queue_poll", queue_poll},
    {"queue_wait", queue_wait},
    {"transfer_create", [](const Step &step, World &world) {
         return create_transfer(step, world, kvmem::Transfer::create);
     }},
    {"transfer_start", [](const Step &step, World &world) {
         return create_transfer(step, world, kvmem::Transfer::start);
     }},
    {"transfer_submit", simply<kvmem::Transfer>([](auto &transfer, const Step &) { transfer.submit(); })},
    {"transfer_cancel", simply<kvmem::Transfer>([](auto &transfer, const Step &) { transfer.cancel(); })},
    {"transfer_submit_pairs", submit_pairs},
    {"transfer_poll", transfer_poll},
    {"transfer_wait", transfer_wait},
    {"transfer_wait_layers", wait_layers},
    {"transfer_get_layers", [](const Step &step, World &world) -> Results {
         return {{"num_layers", number(world.get<kvmem::Transfer>(step.name()).layers())}};
     }},
    {"transfer_get_info", transfer_info},
    {"transfer_explain", [](const Step &step, World &world) -> Results {
         return {{"path", word_of(raw(world.get<kvmem::Transfer>(step.name()).explain().path), paths)}};
     }},
    {"share_create_region", [](const Step &step, World &world) {
         return create_share<kvmem::Region>(step, world, "region");
     }},
    {"share_create_layout", [](const Step &step, World &world) {
         return create_share<kvmem::Layout>(step, world, "layout");
     }},
    {"share_create_received", create_received},
    {"share_get_info", share_info},
    {"share_open_region", [](const Step &step, World &world) {
         return open_share(step, world, [](auto &share, auto &options) { return share.open_region(options); });
     }},
    {"share_open_layout", [](const Step &step, World &world) {
         return open_share(step, world, [](auto &share, auto &options) { return share.open_layout(options); });
     }},
    {"broker_create", create_broker},
    {"broker_publish", publish},
    {"broker_grant", grant},
    {"broker_unpublish", simply<kvmem::Broker>([](auto &broker, const Step &step) {
         broker.unpublish(step.text("name"));
     })},
    {"broker_get_info", broker_info},
    {"share_fetch", fetch},
    {"destroy", [](const Step &step, World &world) -> Results {
         world.destroy(step.name());
         return {};
     }},
};

}  // namespace

Results run_step(const Step &step, World &world) {
    const auto found = calls.find(step.call());
    if (found == calls.end()) throw Failure("there is no call " + step.call());
    return found->second(step, world);
}
