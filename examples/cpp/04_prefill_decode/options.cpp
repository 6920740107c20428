// SPDX-License-Identifier: Apache-2.0
// Reads the command line by one table that also writes the help.
#include "options.hpp"

#include "tier.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

namespace {

using Field = std::variant<std::uint64_t Options::*, std::string Options::*, bool Options::*>;

struct Option {
    std::string_view name;
    std::string_view value;
    Field field;
    std::uint64_t most;  // for numbers
    std::string_view help;
};

// Zero is accepted for the geometry, because the library's message is better than that of a parser.
const Option table[] = {
    {"--blocks", "N", &Options::blocks, 1u << 20, "blocks in each process's cache (256)"},
    {"--layers", "N", &Options::layers, 1u << 12, "layers of the model (32)"},
    {"--heads", "N", &Options::heads, 1u << 16, "KV heads (8)"},
    {"--head-dim", "N", &Options::head_dim, 1u << 16, "elements in a head, bf16 (128)"},
    {"--page-size", "N", &Options::page_size, 1u << 16, "tokens in a block (16)"},
    {"--pull", "N", &Options::pull, 1u << 20, "blocks that decode pulls (half of them)"},
    {"--tier", "NAME", &Options::tier, 0, "tier of the caches (system)"},
    {"--device", "N", &Options::device, INT32_MAX, "the GPU of tiers that need one (0)"},
    {"--share", "", &Options::share, 0, "decode maps prefill's cache; NIXL is not needed"},
    {"--reshard", "", &Options::reshard, 0, "several ranks; decode has other heads, order and blocks"},
    {"--prefill-ranks", "N", &Options::prefill_ranks, 64, "with --reshard: ranks of prefill (2)"},
    {"--decode-ranks", "N", &Options::decode_ranks, 64, "with --reshard: ranks of decode (1)"},
    {"--decode-page-size", "N", &Options::decode_page_size, 1u << 16,
     "with --reshard: tokens in a block of decode (64)"},
    {"--prompts", "N", &Options::prompts, 1u << 16, "with --reshard: prompts that are handed over (8)"},
    {"--disk-dir", "DIR", &Options::disk_dir, 0, "directory of the offload file ($TMPDIR, or /tmp)"},
    {"--seed", "N", &Options::seed, UINT64_MAX, "seed of the random choice of blocks (1)"},
    {"--timeout", "SECONDS", &Options::timeout, 86400, "fail after this time (300)"},
};

// Passed by the parent to its child processes; not in the help. So are --role and --sockets.
const Option rank_option = {"--rank", "N", &Options::rank, 64, ""};
constexpr std::uint64_t largest_fd = 1u << 20;

std::uint64_t parse_number(std::string_view name, std::uint64_t most, std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || number > most) {
        throw UsageError(std::string(name) + " takes a whole number of at most " + std::to_string(most) +
                         ", not '" + std::string(text) + "'");
    }
    return number;
}

void store(Options &options, const Option &option, std::string_view text) {
    if (const auto *number = std::get_if<std::uint64_t Options::*>(&option.field)) {
        options.*(*number) = parse_number(option.name, option.most, text);
    } else if (const auto *flag = std::get_if<bool Options::*>(&option.field)) {
        if (!text.empty()) throw UsageError("'" + std::string(option.name) + "' takes no value");
        options.*(*flag) = true;
    } else {
        options.*std::get<std::string Options::*>(option.field) = text;
    }
}

Role parse_role(std::string_view text) {
    if (text == "prefill") return Role::prefill;
    if (text == "decode") return Role::decode;
    throw UsageError("--role takes prefill or decode, not '" + std::string(text) + "'");
}

std::vector<int> parse_sockets(std::string_view text) {
    std::vector<int> sockets;
    while (!text.empty()) {
        const std::string_view first = text.substr(0, text.find(','));
        sockets.push_back(static_cast<int>(parse_number("--sockets", largest_fd, first)));
        text.remove_prefix(std::min(first.size() + 1, text.size()));
    }
    return sockets;
}

const Option &find_option(std::string_view name) {
    for (const Option &option : table) {
        if (option.name == name) return option;
    }
    if (name == rank_option.name) return rank_option;
    throw UsageError("there is no option '" + std::string(name) + "'; --help lists them");
}

struct Argument {
    std::string_view name, value;
};

// Removes `--name=value`, `--name value`, or a flag's `--name` from the front.
Argument take_argument(char **&next, char **end) {
    const std::string_view text = *next++;
    if (text == "--help" || text == "-h") return {"--help", {}};
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) return {text.substr(0, equals), text.substr(equals + 1)};
    if (std::holds_alternative<bool Options::*>(find_option(text).field)) return {text, {}};
    if (next == end) {
        throw UsageError("'" + std::string(text) + "' takes a value; --help lists the options");
    }
    return {text, *next++};
}

// All ranks have the same number of heads.
void settle_ranks(Options &options) {
    if (options.pull != 0) throw UsageError("--reshard pulls whole prompts; give --prompts, not --pull");
    if (options.page_size == 0 || options.decode_page_size == 0) {
        throw UsageError("--page-size and --decode-page-size take at least 1");
    }
    for (const std::uint64_t ranks : {options.prefill_ranks, options.decode_ranks}) {
        if (ranks != 0 && options.heads % ranks == 0 && options.heads != 0) continue;
        throw UsageError(std::to_string(options.heads) + " heads can't be divided among " +
                         std::to_string(ranks) + " ranks; change --heads or the ranks");
    }
    if (options.prompts == 0) throw UsageError("--prompts takes at least 1");
    // Half of the cache is not used, so that bytes written to wrong blocks are detected.
    if (options.blocks / 2 < options.prompts) {
        throw UsageError("--blocks " + std::to_string(options.blocks) + " is too few for " +
                         std::to_string(options.prompts) + " prompts; give at least two blocks per prompt");
    }
}

void settle(Options &options) {
    if (options.help) return;
    find_tier(options.tier);
    if (options.reshard) settle_ranks(options);
    if (options.pull == 0) options.pull = options.blocks > 1 ? options.blocks / 2 : options.blocks;
    if (options.pull > options.blocks) {
        throw UsageError("--pull " + std::to_string(options.pull) + " is more than the " +
                         std::to_string(options.blocks) + " blocks that prefill has");
    }
    if (options.timeout == 0) throw UsageError("--timeout takes at least 1 second");
}

}  // namespace

std::string process_name(const Options &options) {
    const std::string name = options.role == Role::prefill  ? "prefill"
                             : options.role == Role::decode ? "decode"
                                                            : "prefill_decode";
    return options.reshard && options.role != Role::parent ? name + " " + std::to_string(options.rank) : name;
}

Options parse_options(int argc, char **argv) {
    Options options;
    for (char **next = argv + 1; next < argv + argc;) {
        const Argument argument = take_argument(next, argv + argc);
        if (argument.name == "--help") {
            options.help = true;
        } else if (argument.name == "--role") {
            options.role = parse_role(argument.value);
        } else if (argument.name == "--sockets") {
            options.sockets = parse_sockets(argument.value);
        } else {
            store(options, find_option(argument.name), argument.value);
        }
    }
    settle(options);
    return options;
}

std::string help_text() {
    std::string text =
        "prefill_decode: one process fills a KV cache, another pulls blocks of it over NIXL,\n"
        "or from its mapped memory (--share), offloads them to disk and restores them. Every byte is\n"
        "checked. With --reshard, several processes of prefill hand prompts over to decode, whose caches\n"
        "have other heads, another order and other blocks.\n\n";
    for (const Option &option : table) {
        std::string left = "  " + std::string(option.name) + " " + std::string(option.value);
        left.resize(24, ' ');
        text += left + std::string(option.help) + "\n";
    }
    text += "  --help                this text\n\ntiers: " + tier_names() + "\n";
    return text;
}
