// SPDX-License-Identifier: Apache-2.0
// The C++ runner of the conformance tables, over kvmem.hpp.
#include "world.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

namespace {

std::string short_name(kvmem::Status status) {
    return std::string(kvmem::name(status)).substr(std::string("KVMEM_STATUS_").size());
}

Results describe(const kvmem::Error &error) {
    const auto &cause = error.cause();
    return {{"contains", std::string(error.message())},
            {"domain", word_of(static_cast<std::uint64_t>(cause.domain), domains)},
            {"cause", cause.name}};
}

void run_line(const std::string &line, World &world) {
    const Step step(line);
    std::string status = "OK";
    Results results;
    try {
        results = run_step(step, world);
    } catch (const kvmem::Error &error) {
        status = short_name(error.status());
        results = describe(error);
    }
    step.finish();
    step.compare(status, results);
}

void run_table(const std::string &path) {
    std::ifstream file(path);
    if (!file) throw Failure(path + ": the file cannot be read");
    std::optional<World> world;
    std::size_t cases = 0, steps = 0, number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        if (line.find_first_not_of(' ') == std::string::npos || line[0] == '#') continue;
        try {
            if (line.rfind("case ", 0) == 0) {
                world.reset();
                world.emplace();
                ++cases;
                continue;
            }
            if (!world) throw Failure("a step before the first case");
            run_line(line, *world);
            ++steps;
        } catch (const std::exception &error) {
            throw Failure(path + ":" + std::to_string(number) + ": " + error.what());
        }
    }
    std::cout << std::filesystem::path(path).filename().string() << ": " << cases << " cases, " << steps << " steps\n";
}

}  // namespace

int main(int argc, char **argv) {
    try {
        for (int i = 1; i < argc; ++i) run_table(argv[i]);
        return 0;
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
