// SPDX-License-Identifier: Apache-2.0
// The command line of a bench program.
#include "common/program.hpp"

#include <cstdio>
#include <exception>
#include <malloc.h>
#include <sstream>
#include <stdexcept>

namespace bench {
namespace {

// In a process that has just started, glibc returns large free blocks to the kernel, and each run would have page faults:
// 0.5 ms of noise per 10,000 descriptors, for kvmem and reference alike. An engine that has run for a while has none.
void keep_freed_memory()
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

constexpr char usage[] =
    "[--quick] [--output results.json]; GPU benches and row 17 also [--seconds N] [--only POINT]; those of copies also "
    "[--engines [--ctas N,N...] [--staging-mib N]]; that of random points also [--seed N] [--points N]";

struct arguments {
    options chosen;
    std::string output;
};

// The numbers of a text such as "1,2,3".
std::vector<unsigned> numbers(const std::string &text)
{
    std::vector<unsigned> found;
    std::istringstream list(text);
    for (std::string word; std::getline(list, word, ',');)
        found.push_back(static_cast<unsigned>(std::stoul(word)));
    return found;
}

// Returns whether it is an option with a value.
bool take_value(arguments &all, const std::string &option, const std::string &value)
{
    if (option == "--output")
        all.output = value;
    else if (option == "--seconds")
        all.chosen.seconds = std::stod(value);
    else if (option == "--only")
        all.chosen.only = value;
    else if (option == "--seed")
        all.chosen.seed = std::stoull(value);
    else if (option == "--points")
        all.chosen.points = numbers(value).at(0);
    else if (option == "--ctas")
        all.chosen.ctas = numbers(value);
    else if (option == "--staging-mib")
        all.chosen.staging_mib = numbers(value).at(0);
    else
        return false;
    return true;
}

arguments read_arguments(const std::vector<std::string> &words)
{
    arguments all;
    for (size_t index = 0; index < words.size(); ++index) {
        if (words[index] == "--quick")
            all.chosen.quick = true;
        else if (words[index] == "--engines")
            all.chosen.engines = true;
        else if (index + 1 < words.size() && take_value(all, words[index], words[index + 1]))
            ++index;
        else
            throw std::invalid_argument("unknown argument " + words[index] + "; usage: " + usage);
    }
    return all;
}

void measure_by(const std::vector<std::string> &words, measure_function measure)
{
    const arguments all = read_arguments(words);
    results found(all.output);
    measure(all.chosen, found);
    found.write();
}

} // namespace

int run_program(int argc, char **argv, measure_function measure, peer_function as_peer)
{
    keep_freed_memory();
    std::vector<std::string> words(argv + 1, argv + argc);
    try {
        if (as_peer != nullptr && !words.empty() && words.front() == "--peer")
            as_peer({words.begin() + 1, words.end()});
        else
            measure_by(words, measure);
        return 0;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s: %s\n", argv[0], failure.what());
        return 1;
    }
}

} // namespace bench
