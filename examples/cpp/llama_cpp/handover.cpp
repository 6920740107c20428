// SPDX-License-Identifier: Apache-2.0
// The socket carries positions, cell numbers, and what kvmem needs to reach the other side's memory; the keys and values go
// from cache to cache, in one transfer per part.
#include "handover.hpp"

#include <chrono>

namespace {

constexpr std::chrono::seconds patience{60};

kvmem::Agent start_agent(const char *name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

// Prefill's side of the ways; each is opened at the first request for it.
class Server {
public:
    Server(Engine &engine, Channel &decode) : engine_(engine), decode_(decode), pages_(share_memory(engine)) {}

    void open(Way way) {
        if (way == Way::share) share();
        if (way == Way::nixl) publish();
    }

    void send_offer(llama_seq_id sequence, const std::vector<float> &logits) {
        for (std::size_t group = 0; group < engine_.groups().size(); ++group) {
            const auto cells = engine_.cells(sequence, group);
            std::vector<llama_pos> positions;
            for (const Cell &cell : cells) positions.push_back(cell.position);
            decode_.send_list(positions);
            decode_.send_list(indices(cells));
        }
        decode_.send_list(logits);
    }

    void send_state(llama_seq_id sequence) {
        std::vector<std::uint8_t> state(llama_state_seq_get_size(engine_.context(), sequence));
        state.resize(llama_state_seq_get_data(engine_.context(), state.data(), state.size(), sequence));
        decode_.send_list(state);
    }

private:
    void share() {
        layouts_.emplace(engine_, pages_, nullptr);
        kvmem::ShareOptions options;
        options.flags = kvmem::ShareFlag::read_only;
        for (std::size_t part = 0; part < layouts_->parts().size(); ++part) {
            kvmem::Share::create(layouts_->layout(part), options).send(decode_.fd(), patience);
            decode_.receive();  // it is open there
        }
    }

    void publish() {
        agent_ = start_agent("prefill");
        layouts_.emplace(engine_, pages_, &agent_);
        decode_.send(agent_.local_metadata().text());
        for (std::size_t part = 0; part < layouts_->parts().size(); ++part) {
            decode_.send(layouts_->layout(part).export_descriptor().text());
        }
    }

    Engine &engine_;
    Channel &decode_;
    std::vector<Pages> pages_;
    kvmem::Agent agent_;
    std::optional<CacheLayouts> layouts_;
};

}  // namespace

void run_prefill(Engine &engine, const std::vector<std::vector<llama_token>> &prompts, Channel &decode) {
    Server server(engine, decode);
    std::vector<std::vector<float>> logits;
    for (std::size_t sequence = 0; sequence < prompts.size(); ++sequence) {
        logits.push_back(engine.evaluate(static_cast<llama_seq_id>(sequence), prompts[sequence]));
    }
    decode.send({});  // ready
    std::optional<Way> opened;
    for (;;) {
        const auto requests = decode.receive_list<Request>();
        if (requests.empty()) return;
        const Request request = requests.front();
        const auto sequence = static_cast<llama_seq_id>(request.sequence);
        if (request.way != Way::state && opened != request.way) server.open(request.way);
        if (request.way != Way::state) opened = request.way;
        server.send_offer(sequence, logits.at(request.sequence));
        if (request.way == Way::state) server.send_state(sequence);
    }
}

Prefill::Prefill(Engine &engine, Channel &channel, const std::vector<Pages> &pages)
    : engine_(engine), channel_(channel), pages_(pages) {
    channel_.receive();
}

// What is done once per connection, not per sequence.
void Prefill::connect(Way way) {
    remote_.clear();
    layouts_.reset();
    agent_ = way == Way::nixl ? start_agent("decode") : kvmem::Agent();
    layouts_.emplace(engine_, pages_, way == Way::nixl ? &agent_ : nullptr);
    if (way == Way::nixl) agent_.load_remote_metadata(channel_.receive());
    kvmem::OpenOptions options;
    options.flags = kvmem::OpenFlag::read_only;
    for (std::size_t part = 0; part < layouts_->parts().size(); ++part) {
        if (way == Way::nixl) {
            remote_.push_back(kvmem::Layout::import_descriptor(agent_, channel_.receive()));
        } else {
            remote_.push_back(kvmem::Share::receive(channel_.fd(), patience).open_layout(options));
            channel_.send({});
        }
    }
    connected_ = way;
}

Offer Prefill::request(llama_seq_id sequence, Way way) {
    const Request request{way, static_cast<std::uint64_t>(sequence)};
    channel_.send({reinterpret_cast<const char *>(&request), sizeof request});
    if (way != Way::state && connected_ != way) connect(way);
    Offer offer;
    for (std::size_t group = 0; group < engine_.groups().size(); ++group) {
        offer.positions.push_back(channel_.receive_list<llama_pos>());
        offer.cells.push_back(channel_.receive_list<std::uint32_t>());
    }
    offer.logits = channel_.receive_list<float>();
    return offer;
}

void Prefill::take_state(llama_seq_id sequence, const Offer &offer, Moved &moved) {
    const std::string state = channel_.receive();
    engine_.restore(sequence, offer.positions, [&](llama_context *context) {
        const auto *bytes = reinterpret_cast<const std::uint8_t *>(state.data());
        return llama_state_seq_set_data(context, bytes, state.size(), sequence) == state.size();
    });
    moved.bytes += state.size();
    moved.path = "llama.cpp state, socket";
}

void Prefill::take_cells(llama_seq_id sequence, const Offer &offer, Moved &moved) {
    engine_.reserve(sequence, offer.positions);
    for (std::size_t part = 0; part < layouts_->parts().size(); ++part) {
        const std::size_t group = layouts_->parts()[part].group;
        const Place from{remote_[part], offer.cells[group]};
        const Place to{layouts_->layout(part), indices(engine_.cells(sequence, group))};
        move_tokens(from, to, from.blocks.size(), moved);
    }
}

std::vector<float> Prefill::take(llama_seq_id theirs, llama_seq_id ours, Way way, Moved &moved) {
    try {
        const Offer offer = request(theirs, way);
        (way == Way::state) ? take_state(ours, offer, moved) : take_cells(ours, offer, moved);
        return offer.logits;
    } catch (...) {
        engine_.forget(ours);
        throw;
    }
}
