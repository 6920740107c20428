// SPDX-License-Identifier: Apache-2.0
// Limits that a container sets: system calls, namespaces, shared memory, memory, file descriptors.
#include "../machine/files.hpp"
#include "../machine/memory.hpp"
#include "../report/text.hpp"
#include "../machine/system_calls.hpp"
#include "checks.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace doctor {

namespace {

Finding kind() {
    std::string name;
    if (exists("/.dockerenv")) name = "Docker";
    if (exists("/run/.containerenv")) name = "Podman";
    if (std::getenv("KUBERNETES_SERVICE_HOST")) name = "Kubernetes";
    return {"container.kind", "container", Level::ok, name.empty() ? "none recognized" : name, "",
            {{"kind", name.empty() ? Value() : Value(name)}}};
}

// ---- System calls ----

Finding filter() {
    const std::string mode = field_of("/proc/self/status", "Seccomp").value_or("0");
    Finding finding{"container.seccomp", "system calls", Level::ok,
                    mode == "0" ? "no seccomp filter" : "a seccomp filter, which permits all that kvmem uses", "", {}};
    Value::Array calls;
    std::string blocked;
    for (const SystemCall &call : probed_system_calls()) {
        const int failure = call.probe();
        calls.push_back(Value::Object{{"name", call.name},
                                      {"permitted", failure == 0},
                                      {"error", failure == 0 ? Value() : Value(strerrorname_np(failure))}});
        if (failure == 0) continue;
        blocked += (blocked.empty() ? "" : ", ") + std::string(call.name) + " (" + strerrorname_np(failure) +
                   "): " + call.without;
    }
    if (!blocked.empty()) {
        finding.level = Level::limited;
        finding.text = "not permitted: " + blocked;
        finding.fix = mode == "0" ? "use a newer kernel, or one with these system calls"
                                  : "permit them: docker run --security-opt seccomp=PROFILE.json";
    }
    finding.data = {{"seccomp_mode", mode}, {"calls", std::move(calls)}};
    return finding;
}

// ---- Namespaces ----

// The inodes of the namespaces that the kernel starts with.
constexpr ino_t initial_pid_namespace = 0xEFFFFFFC, initial_user_namespace = 0xEFFFFFFD;

std::optional<bool> is_initial(const char *path, ino_t initial) {
    struct stat info;
    if (stat(path, &info) != 0) return {};
    return info.st_ino == initial;
}

Value as_value(std::optional<bool> value) { return value ? Value(*value) : Value(); }

Finding pid_namespace() {
    const auto initial = is_initial("/proc/self/ns/pid", initial_pid_namespace);
    Finding finding{"container.pid_namespace", "PID namespace", Level::ok, "that of the machine", "",
                    {{"initial", as_value(initial)}}};
    if (initial && !*initial) {
        finding.level = Level::limited;
        finding.text = "one of its own: GPU memory is not shared by IPC handle with processes of other namespaces";
        finding.fix = "run processes that share memory in one: docker run --pid=container:NAME, "
                      "Kubernetes shareProcessNamespace: true";
    } else if (!initial) {
        finding.text = "unknown: /proc/self/ns/pid cannot be read";
    }
    return finding;
}

Finding user_namespace() {
    const auto initial = is_initial("/proc/self/ns/user", initial_user_namespace);
    Finding finding{"container.user_namespace", "user namespace", Level::ok, "that of the machine", "",
                    {{"initial", as_value(initial)}}};
    if (initial && !*initial) {
        finding.text = "one of its own: capabilities such as CAP_IPC_LOCK do not lift limits of the machine";
    } else if (!initial) {
        finding.text = "unknown: /proc/self/ns/user cannot be read";
    }
    return finding;
}

// ---- Memory of others ----

// Known to both processes, because one was forked from the other.
const char proof[] = "kvmem-doctor";

Finding memory_of_others() {
    const int failure = read_of_parent(proof, sizeof proof);
    Finding finding{"container.cma", "memory of other processes", Level::ok, "process_vm_readv works", "",
                    {{"error", failure == 0 ? Value() : Value(strerrorname_np(failure))}}};
    if (failure == 0) return finding;
    finding.level = Level::limited;
    finding.text = std::string("process_vm_readv fails: ") + std::strerror(failure) +
                   "; NIXL's UCX copies twice between processes";
    const auto scope = number_of("/proc/sys/kernel/yama/ptrace_scope");
    finding.fix = scope.value_or(0) > 0 ? "sysctl kernel.yama.ptrace_scope=0, or docker run --cap-add=SYS_PTRACE"
                                        : "docker run --cap-add=SYS_PTRACE, and one user for both processes";
    return finding;
}

// ---- Sizes ----

constexpr std::uint64_t enough_shm = std::uint64_t(1) << 30;

Finding shared_memory() {
    Finding finding{"container.shm", "/dev/shm", Level::ok, "", "", {}};
    struct statvfs info;
    if (statvfs("/dev/shm", &info) != 0) {
        finding.level = Level::missing;
        finding.text = std::strerror(errno);
        finding.fix = "mount a tmpfs at /dev/shm: mount -t tmpfs tmpfs /dev/shm";
        return finding;
    }
    const std::uint64_t size = std::uint64_t(info.f_blocks) * info.f_frsize;
    const std::uint64_t free = std::uint64_t(info.f_bavail) * info.f_frsize;
    finding.text = size_text(free) + " of " + size_text(size) + " free";
    finding.data = {{"size_bytes", size}, {"free_bytes", free}};
    if (free < enough_shm) {
        finding.level = Level::limited;
        finding.text += "; UCX and NCCL put buffers there, and fail when it is full. kvmem's own regions do not use it";
        finding.fix = "docker run --shm-size=8g; Kubernetes: an emptyDir with medium: Memory at /dev/shm";
    }
    return finding;
}

Finding memory_limit() {
    const auto group = group_memory();
    Finding finding{"container.cgroup_memory", "cgroup memory", Level::ok, "no limit", "", {{"limit_bytes", Value()}}};
    if (!group) return finding;
    finding.text = size_text(group->available()) + " of " + size_text(group->limit) + " available";
    finding.data = {{"limit_bytes", group->limit}, {"available_bytes", group->available()}};
    if (group->available() < group->limit / 10) {
        finding.level = Level::limited;
        finding.fix = "raise the limit (docker run --memory, Kubernetes resources.limits.memory), or free memory";
    }
    return finding;
}

constexpr rlim_t enough_files = 4096;

Finding open_files() {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    const bool has_limit = limit.rlim_cur != RLIM_INFINITY;
    Finding finding{"container.open_files", "open files", Level::ok,
                    has_limit ? "at most " + std::to_string(limit.rlim_cur) : "no limit", "",
                    {{"limit", has_limit ? Value(std::uint64_t(limit.rlim_cur)) : Value()}}};
    if (has_limit && limit.rlim_cur < enough_files) {
        finding.level = Level::limited;
        finding.text += "; elastic memory that is shared needs one per extent, agents and files some more";
        finding.fix = "ulimit -n 65536; docker run --ulimit nofile=65536; systemd: LimitNOFILE=65536";
    }
    return finding;
}

}  // namespace

void check_container(Reporter &report) {
    report.step("recognize the container");
    report.add(kind());
    report.step("try system calls");
    report.add(filter());
    report.add(pid_namespace());
    report.add(user_namespace());
    report.step("read memory of its parent");
    report.add(memory_of_others());
    report.step("read the size of /dev/shm");
    report.add(shared_memory());
    report.step("read the limits of the control group");
    report.add(memory_limit());
    report.add(open_files());
}

}  // namespace doctor
