// SPDX-License-Identifier: Apache-2.0
// Transfers with another process over NIXL: a child of this check, on this machine.
#include "../run/channel.hpp"
#include "checks.hpp"
#include "measure.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace doctor {

namespace {

constexpr std::chrono::milliseconds time_per_route(60);

kvmem::Agent start_agent(const Options &options, const char *name) {
    if (options.nixl) kvmem::load_nixl(*options.nixl);
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

// A tier has its own pair of processes: an agent that could not register memory of one tier is not tried with another.
kvmem::Layout build(bool is_device, std::uint32_t blocks, std::int32_t device, const kvmem::Agent &agent) {
    if (!is_device) return kvmem::Layout::build(shape(blocks), kvmem::SystemOptions(), &agent);
    kvmem::DeviceOptions memory;
    memory.device = device;
    return kvmem::Layout::build(shape(blocks), memory, &agent);
}

std::string bytes_of(const kvmem::Blob &blob) { return std::string(blob.text()); }

std::string reason_of(const std::exception &error) {
    const auto *const failure = dynamic_cast<const kvmem::Error *>(&error);
    return failure ? std::string(failure->message()) : error.what();
}

struct PeerTest {
    const Options &options;
    bool is_device;
    std::int32_t peer_device;
    std::uint32_t blocks;
};

// ---- The peer ----

// Sends its metadata and a descriptor, or the reason why there is none; then exists until the other side closes the
// socket.
void serve(int socket, const PeerTest &test) {
    try {
        auto agent = start_agent(test.options, "kvmem-peer");
        const auto layout = build(test.is_device, test.blocks, test.peer_device, agent);
        send_message(socket, Value::Object{{"metadata", bytes_of(agent.local_metadata())},
                                           {"descriptor", bytes_of(layout.export_descriptor())}});
        char end;
        while (read(socket, &end, 1) > 0) continue;
    } catch (const std::exception &error) {
        send_message(socket, Value::Object{{"failure", reason_of(error)}});
    }
}

// Starts the peer before this process has loaded anything, and returns the socket.
int start_peer(const PeerTest &test) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        throw std::runtime_error(std::string("no socket could be created: ") + std::strerror(errno));
    }
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(std::string("no process could be started: ") + std::strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        close(sockets[0]);
        serve(sockets[1], test);
        _exit(0);
    }
    close(sockets[1]);
    return sockets[0];
}

// ---- This side ----

class Peer {
public:
    explicit Peer(const PeerTest &test)
        : test_(test), socket_(start_peer(test)), agent_(start_agent(test.options, "kvmem-doctor")) {}
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;
    ~Peer() { close(socket_); }

    // Reading from the peer, and writing to it.
    std::vector<Route> measure(const std::string &here, const std::string &there) {
        const Value greeting = receive_message(socket_);
        if (const Value *const failure = greeting.find("failure")) {
            throw std::runtime_error("the peer: " + std::string(failure->text()));
        }
        agent_.load_remote_metadata(greeting.find("metadata")->text());
        const Place local{here, build(test_.is_device, test_.blocks, 0, agent_)};
        const Place peer{there, kvmem::Layout::import_descriptor(agent_, greeting.find("descriptor")->text())};
        return {doctor::measure(peer, local, test_.blocks, time_per_route),
                doctor::measure(local, peer, test_.blocks, time_per_route)};
    }

private:
    const PeerTest &test_;
    const int socket_;
    kvmem::Agent agent_;
};

Finding finding_of(const std::vector<Route> &routes) {
    Finding found{"nixl.peer", "transfers to another process", Level::ok, "UCX reads and writes its memory", "", {}};
    for (const Route &each : routes) {
        if (each.level == Level::ok) continue;
        found.level = Level::failed;
        found.text = each.text;
        found.fix = "the messages of UCX with UCX_LOG_LEVEL=info have the reason; check the UCX_* variables";
    }
    return found;
}

}  // namespace

void measure_peer_paths(Reporter &report, const Options &options, bool is_device, std::int32_t devices) {
    const std::int32_t other = devices > 1 ? 1 : 0;
    const PeerTest test{options, is_device, other, std::min(affordable_blocks(), 16U)};
    const std::string here = is_device ? "device0" : "system";
    const std::string there = is_device ? "peer-device" + std::to_string(other) : "peer-system";
    report.step("move blocks between " + here + " and " + there + " over NIXL");
    std::vector<Route> routes;
    if (test.blocks == 0) {
        for (const auto &[from, to] : {std::pair(there, here), std::pair(here, there)}) {
            routes.push_back(without_rate(from, to, Level::skipped, "too little memory is available"));
        }
    } else {
        try {
            routes = Peer(test).measure(here, there);
        } catch (const std::exception &error) {
            routes = {without_rate(there, here, Level::failed, reason_of(error)),
                      without_rate(here, there, Level::failed, reason_of(error))};
        }
    }
    for (const Route &each : routes) report.add(each);
    if (!is_device) report.add(finding_of(routes));
}

}  // namespace doctor
