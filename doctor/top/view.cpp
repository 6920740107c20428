// SPDX-License-Identifier: Apache-2.0
#include "view.hpp"

#include "../report/text.hpp"
#include "reports.hpp"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace doctor {

namespace {

using Series = std::map<std::string, double>;

template <typename... Values> std::string formatted(const char *format, Values... values) {
    char text[256];
    const int size = std::snprintf(text, sizeof text, format, values...);
    return std::string(text, static_cast<std::size_t>(size < 0 ? 0 : size));
}

double value_of(const Series &series, const std::string &name) {
    const auto found = series.find(name);
    return found == series.end() ? 0 : found->second;
}

std::string name_of(const std::string &series) { return series.substr(0, series.find('{')); }

struct Flow {
    double bytes = 0, runs = 0, failed = 0;
};

// By method and direction.
std::map<std::pair<std::string, std::string>, Flow> flows(const Series &before, const Series &after, double seconds) {
    std::map<std::pair<std::string, std::string>, Flow> flows;
    for (const auto &[series, value] : after) {
        const std::string name = name_of(series);
        if (name != "kvmem_runs_total" && name != "kvmem_bytes_total") continue;
        Flow &flow = flows[{label_of(series, "method"), label_of(series, "direction")}];
        const double rate = (value - value_of(before, series)) / seconds;
        if (name == "kvmem_bytes_total") flow.bytes += rate;
        else if (label_of(series, "status") == "ok") flow.runs += rate;
        else flow.failed += rate;
    }
    return flows;
}

// "pinned 1.5 GiB, system 4 KiB": the values of a metric that are not 0, by a label.
template <typename Text>
std::string listed(const Series &series, const std::string &metric, std::string_view label, Text text) {
    std::string list;
    for (const auto &[name, value] : series) {
        if (name_of(name) != metric || value == 0) continue;
        list += (list.empty() ? "" : ", ") + label_of(name, label) + " " + text(value);
    }
    return list;
}

// What has been added since, per second.
Series rates(const Series &before, const Series &after, double seconds) {
    Series rates;
    for (const auto &[series, value] : after) rates[series] = (value - value_of(before, series)) / seconds;
    return rates;
}

std::string rate(double value) { return formatted("%.1f/s", value); }

std::string line(const char *name, const std::string &list) {
    return list.empty() ? "" : formatted("%-16s", name) + list + "\n";
}

std::string duration(double nanoseconds) {
    if (nanoseconds < 1e6) return formatted("%.1f us", nanoseconds / 1e3);
    return nanoseconds < 1e9 ? formatted("%.1f ms", nanoseconds / 1e6) : formatted("%.2f s", nanoseconds / 1e9);
}

double number(const std::string &text) { return std::strtod(text.c_str(), nullptr); }

std::string slowest_runs(const std::string &report) {
    std::string table;
    for (const std::string &row : split(report, '\n')) {
        const std::vector<std::string> fields = split(row, '\t');
        if (fields.size() < 7) continue;
        std::string phases;
        for (std::size_t i = 7; i < fields.size(); ++i) {
            const std::vector<std::string> phase = split(fields[i], ' ');
            if (phase.size() == 2) phases += (phases.empty() ? "" : ", ") + phase[0] + " " + duration(number(phase[1]));
        }
        table += formatted("%9s %10s %10s  %-12s %-13s %-10s #%-8s ", duration(number(fields[0])).c_str(),
                           duration(number(fields[1])).c_str(),
                           size_text(static_cast<std::uint64_t>(number(fields[2]))).c_str(), fields[3].c_str(),
                           fields[4].c_str(), fields[5].c_str(), fields[6].c_str()) +
                 phases + "\n";
    }
    if (table.empty()) return table;
    return "\nslowest runs of the last 10 s\n    ended       took      bytes  method       direction     status     "
           "transfer  phases\n" + table;
}

}  // namespace

std::string view(const std::map<std::string, double> &before, const std::map<std::string, double> &after,
                 double seconds, const std::string &slowest) {
    const Series added = rates(before, after, seconds);
    const auto size = [](double bytes) { return size_text(static_cast<std::uint64_t>(bytes)); };
    const auto count = [](double value) { return formatted("%.0f", value); };
    std::string text = line("runs in flight", count(value_of(after, "kvmem_runs_in_flight")));
    text += line("memory", listed(after, "kvmem_region_bytes", "tier", size));
    text += line("handles", listed(after, "kvmem_handles", "type", count));
    text += line("failed calls", listed(added, "kvmem_call_errors_total", "status", rate));
    text += line("waits for a GPU", listed(added, "kvmem_gpu_waits_total", "resource", rate));
    const double staging = value_of(added, "kvmem_peer_staging_waits_total");
    if (staging > 0) text += line("waits for peers", "staging memory " + rate(staging));
    const double excess = value_of(added, "kvmem_excess_bytes_total");
    if (excess > 0) text += line("read in excess", size(excess) + "/s");
    const double hits = value_of(added, "kvmem_store_hits_total"), misses = value_of(added, "kvmem_store_misses_total");
    const double evicted = value_of(added, "kvmem_store_evicted_total");
    if (hits + misses + evicted > 0) {
        text += line("stores", "hits " + rate(hits) + ", misses " + rate(misses) + ", evicted " + rate(evicted));
    }
    text += "\nmethod       direction            GB/s      runs   failed\n";
    for (const auto &[key, flow] : flows(before, after, seconds)) {
        text += formatted("%-12s %-13s %11s %9.1f %8.1f\n", key.first.c_str(), key.second.c_str(),
                          rate_text(flow.bytes).c_str(), flow.runs, flow.failed);
    }
    return text + slowest_runs(slowest);
}

}  // namespace doctor
