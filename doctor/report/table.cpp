// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include "text.hpp"

#include <algorithm>

namespace doctor {

namespace {

constexpr std::size_t status_width = 7;
// A longer title moves only the text of its own line.
constexpr std::size_t widest_title = 28;
const char indent[] = "  ";

const char *colour_of(Level level) {
    switch (level) {
    case Level::ok: return "\x1b[32m";
    case Level::limited:
    case Level::missing: return "\x1b[33m";
    case Level::failed: return "\x1b[31m";
    case Level::skipped: return "\x1b[2m";
    }
    return "";
}

std::string padded(const std::string &text, std::size_t width) {
    const std::size_t used = columns(text);
    return text + std::string(width > used ? width - used : 0, ' ');
}

std::string left_padded(const std::string &text, std::size_t width) {
    const std::size_t used = columns(text);
    return std::string(width > used ? width - used : 0, ' ') + text;
}

// Only methods that would be faster if they were possible. The JSON output has all methods.
bool is_better(const Route::Other &other, const Route &route) {
    if (other.bytes_per_second == 0) return other.is_impossible;
    return other.bytes_per_second > route.estimated_bytes_per_second;
}

class Table {
public:
    explicit Table(bool has_colours) : has_colours_(has_colours) {}

    std::string out;

    void heading(const std::string &text) { out += "\n" + in_colour("\x1b[1m", text) + "\n"; }

    void finding(const Finding &finding, std::size_t title_width) {
        out += indent + status(finding.level) + indent + padded(printable(finding.title), title_width) + indent +
               printable(finding.text) + "\n";
        fix(finding.fix);
    }

    void fix(const std::string &text) {
        if (!text.empty()) detail("fix: " + text);
    }

    // A line below the one that it belongs to, after the column of the status.
    void detail(const std::string &text) {
        out += std::string(2 + status_width + 2, ' ') + printable(text) + "\n";
    }

    std::string status(Level level) const { return in_colour(colour_of(level), padded(name(level), status_width)); }

    std::string in_colour(const char *colour, const std::string &text) const {
        return has_colours_ ? colour + text + "\x1b[0m" : text;
    }

    void routes(const std::vector<Route> &routes, const std::string &legend) {
        std::size_t from = 4, to = 2, method = 6;
        for (const Route &each : routes) {
            from = std::max(from, columns(each.from));
            to = std::max(to, columns(each.to));
            method = std::max(method, columns(each.method_name));
        }
        heading("Paths: blocks of 1 MiB, GB/s");
        out += legend;
        out += indent + padded("", status_width) + indent + padded("from", from) + indent + padded("to", to) + indent +
               padded("method", method) + indent + "  GB/s\n";
        for (const Route &each : routes) {
            out += indent + status(each.level) + indent + padded(each.from, from) + indent;
            out += padded(each.to, to) + indent;
            if (each.level != Level::ok) {
                out += printable(each.text) + "\n";
            } else {
                const std::string rate = rate_text(static_cast<double>(each.bytes_per_second));
                out += padded(each.method_name, method) + indent + left_padded(rate, 6) + "\n";
                if (!each.text.empty()) detail("but: " + each.text);
            }
            for (const Route::Other &other : each.others) {
                if (!is_better(other, each)) continue;
                detail("not " + other.method_name + ": " + other.reason);
            }
            fix(each.fix);
        }
    }

private:
    const bool has_colours_;
};

struct Group {
    const char *id;
    const char *heading;
};
constexpr Group groups[] = {{"cuda", "CUDA"}, {"gpu", "GPU "}, {"nixl", "NIXL"}, {"memory", "Memory"},
                            {"files", "Files"}, {"container", "Container and limits"}, {"paths", "Measurements"}};

// The group of a finding: its first part, and for GPUs the number too.
std::string group_of(const Finding &finding) {
    const std::size_t first = finding.id.find('.');
    const std::string group = finding.id.substr(0, first);
    return group == "gpu" ? finding.id.substr(0, finding.id.find('.', first + 1)) : group;
}

std::string heading_of(const std::string &group) {
    for (const Group &each : groups) {
        if (group == each.id) return each.heading;
    }
    return group.compare(0, 4, "gpu.") == 0 ? "GPU " + group.substr(4) : group;
}

// "disk0: /tmp" for each directory.
std::string legend_of(const Report &report) {
    std::string text;
    for (const Finding &each : report.findings) {
        constexpr std::string_view start = "files.", end = ".writable";
        if (each.id.compare(0, start.size(), start) != 0 || each.id.size() <= start.size() + end.size() ||
            each.id.compare(each.id.size() - end.size(), end.size(), end) != 0) {
            continue;
        }
        for (const Member &member : each.data) {
            if (member.name != "directory") continue;
            const auto number = each.id.substr(start.size(), each.id.size() - start.size() - end.size());
            text += indent + ("disk" + number) + ": files in " + printable(member.value.text()) + "\n";
        }
    }
    return text + indent + "peer: another process on this machine, over NIXL\n";
}

}  // namespace

std::string to_table(const Report &report, const std::string &machine, bool has_colours) {
    Table table(has_colours);
    table.out = machine + "\n";
    std::size_t width = 0;
    for (const Finding &each : report.findings) {
        width = std::max(width, std::min(widest_title, columns(printable(each.title))));
    }
    std::string group;
    for (const Finding &each : report.findings) {
        if (group_of(each) != group) {
            group = group_of(each);
            table.heading(heading_of(group));
        }
        table.finding(each, width);
    }
    if (!report.routes.empty()) table.routes(report.routes, legend_of(report));
    return table.out;
}

std::string verdict_line(bool is_met, const std::string &text, bool has_colours) {
    const Table table(has_colours);
    return indent + table.status(is_met ? Level::ok : Level::failed) + indent + printable(text) + "\n";
}

}  // namespace doctor
