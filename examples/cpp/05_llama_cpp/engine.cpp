// SPDX-License-Identifier: Apache-2.0
// An unmodified llama.cpp shows its cache in the graphs that it evaluates: the nodes that write keys, values and states
// have tensors named cache_* as destinations, and the rows that they write are the cells.
#include "engine.hpp"

#include "state.hpp"

#include <ggml-backend.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace {

constexpr std::string_view prefix = "cache_";

const ggml_tensor *root_of(const ggml_tensor *tensor) {
    while (tensor->view_src != nullptr) tensor = tensor->view_src;
    return tensor;
}

// The tensor of the cache that a node writes; NULL if it writes none.
const ggml_tensor *written_by(const ggml_tensor *node) {
    if (node->op != GGML_OP_SET_ROWS && node->op != GGML_OP_CPY) return nullptr;
    const ggml_tensor *root = root_of(node);
    return std::string_view(root->name).substr(0, prefix.size()) == prefix ? root : nullptr;
}

struct Name {
    char role;
    std::int32_t layer;
};

// "cache_k_l3" is the keys of layer 3.
Name parse(const std::string &name) {
    const std::size_t end = name.find("_l", prefix.size());
    if (end != prefix.size() + 1 || std::string_view("kvrs").find(name[prefix.size()]) == std::string_view::npos) {
        throw std::runtime_error("the cache has a tensor " + name + ", which this example does not support");
    }
    return {name[prefix.size()], std::stoi(name.substr(end + 2))};
}

// The GPU whose memory a tensor is in, as ggml names its buffers: "CUDA0".
int gpu_of(const ggml_tensor *tensor) {
    if (ggml_backend_buffer_is_host(tensor->buffer)) return -1;
    constexpr std::string_view cuda = "CUDA";
    const std::string name = ggml_backend_buffer_name(tensor->buffer);
    if (name.compare(0, cuda.size(), cuda) != 0) {
        throw std::runtime_error("the cache is in memory of " + name + ", which kvmem does not know: it knows that of the host "
                                 "and of CUDA");
    }
    return std::stoi(name.substr(cuda.size()));
}

}  // namespace

// All tensors are observed in the first evaluation; later ones report only the cells that they write.
struct Engine::Watch {
    struct Seen {
        const ggml_tensor *tensor;
        const ggml_tensor *indices;  // of the rows that were written; compared, not read
        bool transposed;
    };
    bool discovers = true;
    std::map<std::string, Seen> seen;  // by name
    std::vector<const ggml_tensor *> leaders;  // the first tensor of each group
    std::vector<std::vector<std::uint32_t>> written;  // by group: cells in the order of the tokens
};

Engine::Engine(const llama_model *model, const EngineOptions &options)
    : model_(model), watch_(std::make_unique<Watch>()) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = options.context;
    params.n_batch = params.n_ubatch = 512;
    params.n_seq_max = options.sequences;
    // Several threads would divide the cells of one token's attention among them, by cell numbers: then the last bits
    // of a sum depend on the cells that a sequence has.
    params.n_threads = 1;
    params.n_threads_batch = options.threads;
    params.kv_unified = true;  // all sequences share the cells
    params.swa_full = false;
    params.type_k = options.type_k;
    params.type_v = options.type_v;
    params.flash_attn_type = options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.cb_eval = on_node;
    params.cb_eval_user_data = this;
    context_ = llama_init_from_model(const_cast<llama_model *>(model), params);
    if (context_ == nullptr) throw std::runtime_error("llama.cpp cannot create a context with these options");
    discover();
}

Engine::~Engine() { llama_free(context_); }

bool Engine::on_node(ggml_tensor *node, bool asks, void *engine) {
    Engine &self = *static_cast<Engine *>(engine);
    if (asks) return self.wants(node);
    self.note(node);
    return true;
}

// Whether the node's inputs are to be read when it has been computed.
bool Engine::wants(const ggml_tensor *node) {
    const ggml_tensor *root = written_by(node);
    if (root == nullptr) return false;
    if (!watch_->discovers) {
        return std::find(watch_->leaders.begin(), watch_->leaders.end(), root) != watch_->leaders.end();
    }
    const bool sets_rows = node->op == GGML_OP_SET_ROWS;
    const bool transposed = sets_rows && node->ne[0] == 1 && root->ne[0] > 1;
    watch_->seen[root->name] = {root, sets_rows ? node->src[1] : nullptr, transposed};
    return false;
}

void Engine::note(const ggml_tensor *node) {
    const ggml_tensor *root = root_of(node);
    const auto leader = std::find(watch_->leaders.begin(), watch_->leaders.end(), root);
    auto &written = watch_->written[static_cast<std::size_t>(leader - watch_->leaders.begin())];
    if (node->op == GGML_OP_SET_ROWS) {
        std::vector<std::int64_t> rows(static_cast<std::size_t>(ggml_nelements(node->src[1])));
        ggml_backend_tensor_get(node->src[1], rows.data(), 0, rows.size() * sizeof rows[0]);
        for (const std::int64_t row : rows) written.push_back(static_cast<std::uint32_t>(row));
    } else if (ggml_nelements(node) > 0) {
        // The state is written after the states of other sequences have been moved, so the last node counts.
        written.assign(1, static_cast<std::uint32_t>(node->view_offs / root->nb[1]));
    }
}

// Evaluates one token, to see the tensors, and forgets it.
void Engine::discover() {
    if (llama_model_has_encoder(model_)) throw std::runtime_error("the model has an encoder, which this example does not evaluate");
    evaluate(0, {0});
    const auto tensor_of = [](const std::string &name, const Watch::Seen &seen, char role) {
        const ggml_tensor *it = seen.tensor;
        const auto cells = static_cast<std::uint64_t>(it->ne[1] * it->ne[2]);
        return CacheTensor{name, role, it, it->type, gpu_of(it), static_cast<std::byte *>(it->data), cells, it->nb[1],
                           static_cast<std::uint64_t>(it->ne[0]), seen.transposed};
    };
    // Keys that are written to the same rows are one group, and the values of the same layers belong to it.
    std::map<std::int32_t, std::map<char, std::pair<std::string, Watch::Seen>>> layers;
    for (const auto &[name, seen] : watch_->seen) {
        const Name parsed = parse(name);
        layers[parsed.layer][parsed.role] = {name, seen};
    }
    std::vector<const void *> keys;  // equal for the tensors of a group
    const auto group_of = [&](const void *key) -> CacheGroup & {
        const auto found = std::find(keys.begin(), keys.end(), key);
        if (found != keys.end()) return groups_[static_cast<std::size_t>(found - keys.begin())];
        keys.push_back(key);
        return groups_.emplace_back();
    };
    for (const char role : {'k', 'v', 'r', 's'}) {
        for (const auto &[layer, tensors] : layers) {
            const auto found = tensors.find(role);
            if (found == tensors.end()) continue;
            const bool is_recurrent = role == 'r' || role == 's';
            CacheGroup &group = group_of(is_recurrent ? this : static_cast<const void *>(tensors.at('k').second.indices));
            group.is_recurrent = is_recurrent;
            group.tensors.push_back(tensor_of(found->second.first, found->second.second, role));
            group.cells = group.tensors.front().cells;
        }
    }
    if (groups_.empty()) throw std::runtime_error("the model has no cache");
    // llama.cpp's own order: the cache of all positions, that of the sliding window, the recurrent states.
    std::stable_sort(groups_.begin(), groups_.end(), [](const CacheGroup &one, const CacheGroup &other) {
        if (one.is_recurrent != other.is_recurrent) return other.is_recurrent;
        return one.cells > other.cells;
    });
    if (groups_.size() > 1 && !groups_[1].is_recurrent && groups_[0].cells == groups_[1].cells) {
        throw std::runtime_error("the sliding window has as many cells as the context; make the context larger");
    }
    for (const CacheGroup &group : groups_) {
        watch_->leaders.push_back(watch_->seen.at(group.tensors.front().name).tensor);
        owners_.emplace_back(group.cells);
    }
    watch_->discovers = false;
    watch_->written.resize(groups_.size());
    ends_.clear();
    llama_memory_clear(llama_get_memory(context_), true);
}

std::string Engine::description() const {
    char model[128];
    llama_model_desc(model_, model, sizeof model);
    std::string text = model + (", layers " + std::to_string(llama_model_n_layer(model_))) + ", heads " +
                       std::to_string(llama_model_n_head(model_)) + ", width " + std::to_string(llama_model_n_embd(model_)) +
                       ", parameters " + std::to_string(llama_model_n_params(model_));
    for (const CacheGroup &group : groups_) {
        text += "; cache";
        char role = 0;
        for (const CacheTensor &tensor : group.tensors) {
            if (tensor.role != role) text += std::string(" ") + tensor.role + ' ' + ggml_type_name(tensor.tensor->type);
            role = tensor.role;
        }
    }
    return text;
}

void Engine::decode(llama_seq_id sequence, const llama_token *tokens, std::size_t count, bool is_last) {
    llama_batch batch = llama_batch_init(static_cast<std::int32_t>(count), 0, 1);
    const llama_pos start = ends_[sequence];
    for (std::size_t i = 0; i < count; ++i) {
        batch.token[i] = tokens[i];
        batch.pos[i] = start + static_cast<llama_pos>(i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = sequence;
        batch.logits[i] = is_last && i + 1 == count;
    }
    batch.n_tokens = static_cast<std::int32_t>(count);
    for (auto &written : watch_->written) written.clear();
    const int status = llama_decode(context_, batch);
    llama_batch_free(batch);
    if (status == 1) {
        throw std::runtime_error("the context has no free cells for " + std::to_string(count) + " tokens more; make it larger than " +
                                 std::to_string(llama_n_ctx(context_)) + " cells");
    }
    if (status != 0) throw std::runtime_error("llama_decode failed with " + std::to_string(status));
    claim(sequence, start, count);
}

std::vector<float> Engine::evaluate(llama_seq_id sequence, const std::vector<llama_token> &tokens) {
    if (tokens.empty()) throw std::runtime_error("there is no token to evaluate");
    const std::size_t most = llama_n_batch(context_);
    try {
        for (std::size_t first = 0; first < tokens.size(); first += most) {
            const std::size_t count = std::min(most, tokens.size() - first);
            decode(sequence, &tokens[first], count, first + count == tokens.size());
        }
    } catch (...) {
        forget(sequence);
        throw;
    }
    const float *logits = llama_get_logits_ith(context_, -1);
    return {logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(model_))};
}

void Engine::claim(llama_seq_id sequence, llama_pos first, std::size_t count) {
    ends_[sequence] = first + static_cast<llama_pos>(count);
    if (watch_->discovers) return;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        const auto &written = watch_->written[group];
        auto &owners = owners_[group];
        if (groups_[group].is_recurrent) {
            for (Owner &owner : owners) {
                if (owner.sequence == sequence) owner = {};
            }
            owners.at(written.at(0)) = {sequence, ends_[sequence] - 1};
            continue;
        }
        if (written.size() != count) throw std::runtime_error("llama.cpp wrote other cells than one per token");
        for (std::size_t i = 0; i < count; ++i) {
            owners.at(written[i]) = {sequence, first + static_cast<llama_pos>(i)};
        }
    }
}

void Engine::forget(llama_seq_id sequence) {
    llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1);
    ends_.erase(sequence);
    for (auto &owners : owners_) {
        for (Owner &owner : owners) {
            if (owner.sequence == sequence) owner = {};
        }
    }
}

void Engine::set_aside(llama_seq_id sequence) {
    const auto spare = static_cast<llama_seq_id>(llama_n_seq_max(context_) - 1);
    llama_memory_seq_cp(llama_get_memory(context_), sequence, spare, -1, -1);
    forget(sequence);
}

std::vector<Cell> Engine::cells(llama_seq_id sequence, std::size_t group) const {
    const auto end = ends_.find(sequence);
    if (end == ends_.end()) throw std::runtime_error("the context has no sequence " + std::to_string(sequence));
    // The next token sees none of the earlier positions, and llama.cpp may use their cells again.
    const bool has_window = group == 1 && !groups_[group].is_recurrent;
    const llama_pos first = has_window ? end->second - llama_model_n_swa(model_) + 1 : 0;
    std::vector<Cell> cells;
    const auto &owners = owners_[group];
    for (std::size_t index = 0; index < owners.size(); ++index) {
        if (owners[index].sequence != sequence || owners[index].position < first) continue;
        cells.push_back({owners[index].position, static_cast<std::uint32_t>(index)});
    }
    if (cells.empty()) throw std::runtime_error("llama.cpp restored the sequence itself, so its cells are not known");
    std::sort(cells.begin(), cells.end(), [](Cell one, Cell other) { return one.position < other.position; });
    return cells;
}

CellIds Engine::cell_ids(llama_seq_id sequence, std::size_t group) const {
    CellIds ids;
    for (const Cell &cell : cells(sequence, group)) ids.push_back(cell.index);
    return ids;
}

Positions Engine::positions(llama_seq_id sequence) const {
    Positions positions(groups_.size());
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        for (const Cell &cell : cells(sequence, group)) positions[group].push_back(cell.position);
    }
    return positions;
}

void Engine::restore(llama_seq_id sequence, const Positions &positions,
                     const std::function<bool(llama_context *)> &load) {
    forget(sequence);
    if (!load(context_)) throw std::runtime_error("llama.cpp does not accept its own state");
    ends_[sequence] = positions[0].back() + 1;
}

void Engine::reserve(llama_seq_id sequence, const Positions &positions) {
    forget(sequence);
    std::vector<CellIds> places;
    try {
        places = place_sequence(model_, context_, groups_, sequence, positions);
    } catch (...) {
        forget(sequence);
        throw;
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        for (std::size_t i = 0; i < places[group].size(); ++i) {
            owners_[group].at(places[group][i]) = {sequence, positions[group][i]};
        }
    }
    ends_[sequence] = positions[0].back() + 1;
}

llama_token most_likely(const std::vector<float> &logits) {
    return static_cast<llama_token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}
