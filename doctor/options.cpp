// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "requirements.hpp"

#include <getopt.h>

#include <cstdlib>
#include <sstream>

namespace doctor {

namespace {

enum LongOnly { nixl = 256, no_rates, colour, timeout, names };

const option long_options[] = {
    {"directory", required_argument, nullptr, 'd'}, {"require", required_argument, nullptr, 'r'},
    {"json", no_argument, nullptr, 'j'},            {"nixl", required_argument, nullptr, nixl},
    {"no-rates", no_argument, nullptr, no_rates},   {"timeout", required_argument, nullptr, timeout},
    {"color", required_argument, nullptr, colour},  {"list", no_argument, nullptr, names},
    {"help", no_argument, nullptr, 'h'},            {"version", no_argument, nullptr, 'V'},
    {nullptr, 0, nullptr, 0},
};

void add_names(std::vector<std::string> &required, const std::string &list) {
    std::istringstream stream(list);
    for (std::string name; std::getline(stream, name, ',');) {
        if (!is_requirement(name)) {
            throw UsageError("--require: \"" + name + "\" is not a name; --list prints all names");
        }
        required.push_back(name);
    }
    if (list.empty()) throw UsageError("--require: no name is given; --list prints all names");
}

Colour colour_of(const std::string &text) {
    if (text == "auto") return Colour::automatic;
    if (text == "always") return Colour::always;
    if (text == "never") return Colour::never;
    throw UsageError("--color: \"" + text + "\" is none of auto, always, never");
}

std::chrono::seconds seconds_of(const std::string &text) {
    char *end = nullptr;
    const long seconds = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || seconds < 1 || seconds > 3600) {
        throw UsageError("--timeout: \"" + text + "\" is not a number of seconds from 1 to 3600");
    }
    return std::chrono::seconds(seconds);
}

}  // namespace

Options parse(int argc, char **argv) {
    Options options;
    opterr = 0;
    // The argument that is parsed: optind stays at it until the last of several short options.
    int at = optind;
    for (int each; (each = getopt_long(argc, argv, "+:d:r:jhV", long_options, nullptr)) != -1; at = optind) {
        switch (each) {
        case 'd': options.directories.emplace_back(optarg); break;
        case 'r': add_names(options.required, optarg); break;
        case 'j': options.is_json = true; break;
        case nixl: options.nixl = optarg; break;
        case no_rates: options.measures = false; break;
        case timeout: options.limit = seconds_of(optarg); break;
        case colour: options.colour = colour_of(optarg); break;
        case names: options.wants_names = true; break;
        case 'h': options.wants_help = true; break;
        case 'V': options.wants_version = true; break;
        case ':': throw UsageError(std::string(argv[at]) + " needs a value");
        default: throw UsageError("unknown option " + std::string(argv[at]));
        }
    }
    if (optind < argc) {
        throw UsageError("unexpected argument \"" + std::string(argv[optind]) + "\"; the commands are draw, store and top, and directories need --directory");
    }
    for (const std::string &name : options.required) {
        if (!options.measures && needs_transfers(name)) {
            throw UsageError("--require: \"" + name + "\" needs the transfers that --no-rates leaves out");
        }
    }
    if (options.directories.empty()) {
        const char *const temporary = std::getenv("TMPDIR");
        options.directories.emplace_back(temporary && *temporary ? temporary : "/tmp");
    }
    return options;
}

std::string help() {
    return
        R"(Usage: kvmem-doctor [OPTION]...
       kvmem-doctor draw DESCRIPTOR    a picture of a layout; kvmem-doctor draw --help
       kvmem-doctor store FOLDER       what a store is and contains
       kvmem-doctor top PID            what a process moves by kvmem
Reports what kvmem can do on this machine: the CUDA driver and GPUs, NIXL and its plugins, memory, files,
limits of the container; for each pair of tiers the method of a transfer and its measured rate; and what to do
about what does not work. Changes nothing; its files are temporary.

  -d, --directory=PATH   check files in this directory; may be repeated. Default: $TMPDIR, or /tmp
  -r, --require=NAMES    fail unless all of these work: names separated by commas; may be repeated
      --list             print the names for --require
  -j, --json             print JSON instead of a table
      --nixl=PATH        load NIXL from this file or directory, instead of $KVMEM_NIXL_LIBRARY
      --no-rates         measure nothing, and report no paths
      --timeout=SECONDS  limit of each check, which runs in a process of its own; default 20
      --color=WHEN       auto (on a terminal, unless NO_COLOR is set), always, or never
  -h, --help             print this
  -V, --version          print the version

Exit status:
  0  all that was required works; without --require: the report was made
  1  something that was required does not work: the last lines name it
  2  the command line is wrong, and nothing was checked
  3  the report could not be written

In the table, "ok" works, "limited" works with a limit, "missing" is not there, "failed" should work and does not,
"skipped" was not checked. docs/doctor.md describes the findings and the keys of the JSON.
)";
}

}  // namespace doctor
