// SPDX-License-Identifier: Apache-2.0
// kvmem-doctor: reports what works on this machine, what does not, and how to fix it; draws layouts, describes stores; shows what a process moves.
#include "draw/command.hpp"
#include "draw/descriptor.hpp"
#include "examination.hpp"
#include "machine/files.hpp"
#include "options.hpp"
#include "report/json.hpp"
#include "report/table.hpp"
#include "report/text.hpp"
#include "requirements.hpp"
#include "store/command.hpp"
#include "top/command.hpp"
#include "top/reports.hpp"

#include <kvmem.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

using namespace doctor;

enum ExitStatus { works = 0, does_not_work = 1, usage = 2, not_written = 3 };

// The version of the JSON. It changes when a key is removed or its meaning changes.
constexpr std::int32_t format = 1;

struct Machine {
    std::string kernel, processor;
    std::uint64_t cpus;

    static Machine get() {
        utsname names = {};
        uname(&names);
        return {names.release, names.machine, static_cast<std::uint64_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)))};
    }
    std::string text() const {
        return "kvmem " + std::string(kvmem::version()) + " on Linux " + kernel + ", " + processor + ", " +
               std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs");
    }
};

std::string json(const Report &report, const std::vector<Verdict> &verdicts, bool are_met) {
    const Machine machine = Machine::get();
    Value::Array findings, paths, required;
    for (const Finding &each : report.findings) findings.push_back(each.to_value());
    for (const Route &each : report.routes) paths.push_back(each.to_value());
    for (const Verdict &each : verdicts) {
        required.push_back(Value::Object{{"name", each.name}, {"met", each.is_met}, {"reason", each.reason}});
    }
    return to_json(Value::Object{
        {"format", format},
        {"kvmem_version", kvmem::version()},
        {"machine", Value::Object{
                        {"kernel", machine.kernel}, {"processor", machine.processor}, {"cpus", machine.cpus}}},
        {"requirements_met", are_met},
        {"requirements", std::move(required)},
        {"findings", std::move(findings)},
        {"paths", std::move(paths)}});
}

bool wants_colours(Colour colour) {
    if (colour != Colour::automatic) return colour == Colour::always;
    const char *const none = std::getenv("NO_COLOR");
    const char *const terminal = std::getenv("TERM");
    return isatty(STDOUT_FILENO) && !(none && *none) && terminal && std::string_view(terminal) != "dumb";
}

std::string table(const Report &report, const std::vector<Verdict> &verdicts, bool has_colours) {
    std::string text = to_table(report, Machine::get().text(), has_colours);
    if (!verdicts.empty()) text += "\nRequired\n";
    for (const Verdict &each : verdicts) {
        text += verdict_line(each.is_met, each.name + (each.is_met ? "" : ": " + each.reason), has_colours);
    }
    return text;
}

ExitStatus print(const std::string &text, ExitStatus status) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return status;
    std::fprintf(stderr, "kvmem-doctor: the report could not be written\n");
    return not_written;
}

// The command of the command line; empty for a report.
std::string_view command_of(int argc, char **argv) {
    const std::string_view first = argc > 1 ? argv[1] : "";
    return first == "draw" || first == "store" || first == "top" ? first : "";
}

ExitStatus run(int argc, char **argv) {
    const auto command = command_of(argc, argv);
    if (command == "draw") return print(draw(argc - 1, argv + 1), works);
    if (command == "store") return print(describe_store(argc - 1, argv + 1), works);
    if (command == "top") {
        ExitStatus status = works;
        const auto show = [&](const std::string &text) { return (status = print(text, works)) == works; };
        top(argc - 1, argv + 1, wants_colours(Colour::automatic), show);
        return status;
    }
    const Options options = parse(argc, argv);
    if (options.wants_help) return print(help(), works);
    if (options.wants_version) return print("kvmem-doctor " + std::string(kvmem::version()) + "\n", works);
    if (options.wants_names) return print(requirement_names(), works);
    const Report report = examine(options);
    const auto verdicts = judge(options.required, report);
    bool are_met = true;
    for (const Verdict &each : verdicts) are_met &= each.is_met;
    const std::string text =
        options.is_json ? json(report, verdicts, are_met) : table(report, verdicts, wants_colours(options.colour));
    return print(text, are_met ? works : does_not_work);
}

// Opens standard files that are closed, so that no pipe gets their numbers. A report to such a file is not written.
void reserve_standard_files() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_RDONLY));
    }
}

}  // namespace

int main(int argc, char **argv) {
    reserve_standard_files();
    // A closed pipe, or a report above the limit of file sizes, gives an exit status instead of a signal.
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    // If it is ignored, as some parents leave it, children are reaped without their status.
    signal(SIGCHLD, SIG_DFL);
    try {
        return run(argc, argv);
    } catch (const UsageError &error) {
        const std::string command(command_of(argc, argv));
        std::fprintf(stderr, "kvmem-doctor: %s\nTry kvmem-doctor %s--help.\n", printable(error.what()).c_str(),
                     command.empty() ? "" : (command + " ").c_str());
        return usage;
    } catch (const DescriptorError &error) {
        std::fprintf(stderr, "kvmem-doctor: %s\n", printable(error.what()).c_str());
        return does_not_work;
    } catch (const ReportError &error) {
        std::fprintf(stderr, "kvmem-doctor: %s\n", printable(error.what()).c_str());
        return does_not_work;
    } catch (const kvmem::Error &error) {
        std::fprintf(stderr, "kvmem-doctor: %s\n", printable(error.what()).c_str());
        return does_not_work;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "kvmem-doctor: %s\n", printable(error.what()).c_str());
        return not_written;
    }
}
