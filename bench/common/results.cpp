// SPDX-License-Identifier: Apache-2.0
// Writes a row as JSON, and prints it.
#include "common/results.hpp"

#include "common/machine.hpp"

#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace bench {
namespace {

bool less_is_better(const std::string &unit) { return unit != "GB/s"; }

double ratio(const row &measured, const samples &other)
{
    const double ours = summarize(measured.ours).median;
    const double theirs = summarize(other).median;
    return less_is_better(measured.unit) ? theirs / ours : ours / theirs;
}

std::string number(double value)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

std::string quoted(const std::string &text)
{
    std::string json = "\"";
    for (char letter : text) {
        if (letter == '"' || letter == '\\')
            json += '\\';
        json += letter;
    }
    return json + "\"";
}

std::string object(const std::vector<std::pair<std::string, std::string>> &fields)
{
    std::string json;
    for (const auto &[key, value] : fields)
        json += (json.empty() ? "" : ", ") + quoted(key) + ": " + value;
    return "{" + json + "}";
}

std::string summary_json(const samples &values)
{
    if (values.empty())
        return "null";
    const summary found = summarize(values);
    return object({{"median", number(found.median)}, {"min", number(found.min)}, {"max", number(found.max)}});
}

std::string parameters_json(const parameters &given)
{
    std::vector<std::pair<std::string, std::string>> fields;
    for (const auto &[key, value] : given)
        fields.emplace_back(key, value.json());
    return object(fields);
}

std::string row_json(const row &measured)
{
    return object({
        {"name", quoted(measured.name)},
        {"parameters", parameters_json(measured.parameters)},
        {"ours", summary_json(measured.ours)},
        {"reference", summary_json(measured.reference)},
        {"reference_name", quoted(measured.reference_name)},
        {"ceiling", summary_json(measured.ceiling)},
        {"ratio", number(ratio(measured, measured.reference))},
        {"ceiling_ratio", measured.ceiling.empty() ? "null" : number(ratio(measured, measured.ceiling))},
        {"unit", quoted(measured.unit)},
        {"runs", std::to_string(measured.ours.size())},
        {"machine", quoted(machine_description())},
    });
}

void print(const row &measured)
{
    std::string line = measured.name;
    for (const auto &[key, value] : measured.parameters)
        if (key != "gpu") // the same in all rows
            line += "  " + key + "=" + value.json();
    std::printf("%s\n    ours %.4g %s, %s %.4g: %.3g x", line.c_str(), summarize(measured.ours).median,
                measured.unit.c_str(), measured.reference_name.c_str(),
                summarize(measured.reference).median, ratio(measured, measured.reference));
    if (!measured.ceiling.empty())
        std::printf("; of the ceiling %.3g", ratio(measured, measured.ceiling));
    std::printf("\n");
    std::fflush(stdout);
}

} // namespace

parameter_value::parameter_value(const std::string &text) : json_(quoted(text)) {}

void results::add(const row &measured)
{
    rows_.push_back(row_json(measured));
    print(measured);
    write();
}

void results::write() const
{
    if (path_.empty())
        return;
    std::ofstream file(path_);
    file << "[\n";
    for (size_t index = 0; index < rows_.size(); ++index)
        file << rows_[index] << (index + 1 < rows_.size() ? ",\n" : "\n");
    file << "]\n";
    if (!file.flush())
        throw std::runtime_error("cannot write " + path_);
}

} // namespace bench
