// SPDX-License-Identifier: Apache-2.0
// The processes send positions, cell numbers, and kvmem's descriptions of their memory over the socket. Keys and values
// are transferred from cache to cache, in one transfer per group.
#include "handover.hpp"

#include <chrono>
#include <stdexcept>

namespace {

constexpr std::chrono::seconds patience{60};

enum class Ask : std::uint64_t { connect, positions, cells, state };

// A request of decode. The value is a link or a sequence.
struct Request {
    Ask ask;
    std::uint64_t value;
};

template <typename T>
void send_request(Channel &channel, Ask ask, T value) {
    const Request request{ask, static_cast<std::uint64_t>(value)};
    channel.send({reinterpret_cast<const char *>(&request), sizeof request});
}

kvmem::Agent start_agent(const char *name, Link link) {
    auto agent = kvmem::Agent::create(name);
    if (link == Link::nixl_tcp) {
        agent.create_backend("UCX", {{"engine_config", "TLS=tcp"}});
    } else {
        agent.create_backend("UCX");
    }
    return agent;
}

// Waits for a transfer. `in_use` becomes true if it fails and the destination must not be used again.
void finish(kvmem::Transfer transfer, Moved &moved, bool &in_use, const std::function<void()> &meanwhile = {}) {
    try {
        if (meanwhile) meanwhile();
        finish_move(transfer, moved);
    } catch (...) {
        in_use = is_in_use(transfer);
        throw;
    }
}

void move_in_halves(const Place &from, const Place &to, Moved &moved, bool &in_use, const Prefill::Halfway &halfway) {
    const std::size_t count = from.blocks.size();
    const std::size_t half = halfway.before_rest ? count / 2 : 0;
    if (half > 0) finish(start_move(from, to, 0, half), moved, in_use);
    if (halfway.before_rest) halfway.before_rest();
    finish(start_move(from, to, half, count - half), moved, in_use, halfway.during_rest);
}

// Prefill's side.
class Server {
public:
    Server(Engine &engine, Channel &decode) : engine_(engine), decode_(decode), memory_(share_memory(engine)) {}

    void connect(Link link) {
        layouts_.reset();
        agent_ = kvmem::Agent();
        if (link == Link::mapped) return share();
        agent_ = start_agent("prefill", link);
        layouts_.emplace(engine_, memory_, &agent_);
        decode_.send(agent_.local_metadata().text());
        for (std::size_t group = 0; group < layouts_->groups(); ++group) {
            decode_.send((*layouts_)[group].export_descriptor().text());
        }
    }

    void send_positions(llama_seq_id sequence) {
        for (const auto &group : engine_.positions(sequence)) decode_.send_list(group);
    }

    void send_cells(llama_seq_id sequence, const std::vector<float> &logits) {
        for (std::size_t group = 0; group < engine_.groups().size(); ++group) {
            decode_.send_list(engine_.cell_ids(sequence, group));
        }
        decode_.send_list(logits);
    }

    void send_state(llama_seq_id sequence, const std::vector<float> &logits) {
        const std::size_t size = llama_state_seq_get_size(engine_.context(), sequence);
        std::uint8_t *bytes = state_.of_size(size);
        const std::size_t written = llama_state_seq_get_data(engine_.context(), bytes, size, sequence);
        decode_.send({reinterpret_cast<const char *>(bytes), written});
        decode_.send_list(logits);
    }

private:
    void share() {
        layouts_.emplace(engine_, memory_, nullptr);
        kvmem::ShareOptions options;
        options.flags = kvmem::ShareFlag::read_only;
        for (std::size_t group = 0; group < layouts_->groups(); ++group) {
            kvmem::Share::create((*layouts_)[group], options).send(decode_.fd(), patience);
            decode_.receive();  // decode has opened it
        }
    }

    Engine &engine_;
    Channel &decode_;
    std::vector<CacheMemory> memory_;
    kvmem::Agent agent_;
    std::optional<CacheLayouts> layouts_;
    Buffer state_;
};

}  // namespace

void run_prefill(Engine &engine, const Prompts &prompts, Channel &decode) {
    Server server(engine, decode);
    std::vector<std::vector<float>> logits;
    for (std::size_t sequence = 0; sequence < prompts.size(); ++sequence) {
        logits.push_back(engine.evaluate(static_cast<llama_seq_id>(sequence), prompts[sequence]));
    }
    decode.send({});  // ready
    for (;;) {
        const auto requests = decode.receive_list<Request>();
        if (requests.empty()) return;
        const auto [ask, value] = requests.front();
        const auto sequence = static_cast<llama_seq_id>(value);
        switch (ask) {
            case Ask::connect: server.connect(static_cast<Link>(value)); break;
            case Ask::positions: server.send_positions(sequence); break;
            case Ask::cells: server.send_cells(sequence, logits.at(value)); break;
            case Ask::state: server.send_state(sequence, logits.at(value)); break;
        }
    }
}

Prefill::Prefill(Engine &engine, Channel &channel, const std::vector<CacheMemory> &memory)
    : engine_(engine), channel_(channel), memory_(memory) {
    channel_.receive();
}

void Prefill::connect(Link link) {
    remote_.clear();
    layouts_.reset();
    agent_ = kvmem::Agent();
    send_request(channel_, Ask::connect, link);
    if (link != Link::mapped) {
        agent_ = start_agent("decode", link);
        agent_.load_remote_metadata(channel_.receive());
    }
    layouts_.emplace(engine_, memory_, link == Link::mapped ? nullptr : &agent_);
    kvmem::OpenOptions options;
    options.flags = kvmem::OpenFlag::read_only;
    const int gpu = engine_.groups().front().tensors.front().gpu;
    if (gpu >= 0) {
        options.flags = kvmem::OpenFlag::read_only | kvmem::OpenFlag::for_device;
        options.device = gpu;
    }
    for (std::size_t group = 0; group < layouts_->groups(); ++group) {
        if (link == Link::mapped) {
            remote_.push_back(kvmem::Share::receive(channel_.fd(), patience).open_layout(options));
            channel_.send({});
        } else {
            remote_.push_back(kvmem::Layout::import_descriptor(agent_, channel_.receive()));
        }
    }
}

void Prefill::reserve(llama_seq_id theirs, llama_seq_id ours) { engine_.reserve(ours, positions(theirs)); }

Positions Prefill::positions(llama_seq_id theirs) {
    send_request(channel_, Ask::positions, theirs);
    Positions positions;
    for (std::size_t group = 0; group < engine_.groups().size(); ++group) {
        positions.push_back(channel_.receive_list<llama_pos>());
    }
    return positions;
}

std::vector<float> Prefill::pull(llama_seq_id theirs, llama_seq_id ours, Moved &moved, const Halfway &halfway) {
    bool in_use = false;
    try {
        send_request(channel_, Ask::cells, theirs);
        std::vector<CellIds> cells;
        for (std::size_t group = 0; group < remote_.size(); ++group) {
            cells.push_back(channel_.receive_list<std::uint32_t>());
        }
        const auto logits = channel_.receive_list<float>();
        for (std::size_t group = 0; group < remote_.size(); ++group) {
            const Place from{remote_[group], cells[group]};
            const Place to{(*layouts_)[group], engine_.cell_ids(ours, group)};
            move_in_halves(from, to, moved, in_use, halfway);
        }
        return logits;
    } catch (...) {
        if (in_use) {
            engine_.set_aside(ours);
        } else {
            engine_.forget(ours);
        }
        throw;
    }
}

std::vector<float> Prefill::take_state(llama_seq_id theirs, llama_seq_id ours, const Positions &positions, Moved &moved) {
    send_request(channel_, Ask::state, theirs);
    const std::size_t size = channel_.receive_size();
    std::uint8_t *bytes = state_.of_size(size);
    channel_.receive_bytes(bytes, size);
    engine_.restore(ours, positions, [&](llama_context *context) {
        return llama_state_seq_set_data(context, bytes, size, ours) == size;
    });
    moved.bytes += size;
    moved.path = "llama.cpp state, socket";
    return channel_.receive_list<float>();
}

void Prefill::disconnect() { channel_.send({}); }
