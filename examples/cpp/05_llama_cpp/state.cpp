// SPDX-License-Identifier: Apache-2.0
// llama.cpp allocates cells only when it evaluates tokens or restores a state. So it gets a state with the positions of
// the sequence, and zeroes for keys and values: pages that were never written, which use no memory. The rows of the
// first tensor of each group start with a number, by which the cells that llama.cpp chose are found. The transfer
// overwrites all of this.
//
// The form of a state is llama.cpp's own (llama_kv_cache::state_write and llama_memory_recurrent::state_write). It is
// not stable: llama.cpp rejects a state of another form, and this example reports that.
#include "state.hpp"

#include <ggml-backend.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace {

constexpr std::uint32_t magic = 0xaf143cd8;  // of a state of one sequence

// The number at the start of the rows of one state, to which the number of the row is added. It differs between states,
// because numbers of an earlier state, whose transfer failed, may still be in the cache.
std::uint64_t next_mark() {
    static std::uint64_t count = 0;
    return 0x6b76000000000000 | ++count << 24;
}

// Memory of zeroes. Only the parts that are put into it are written.
class State {
public:
    explicit State(std::size_t most) : most_(most) {
        bytes_ = static_cast<std::uint8_t *>(
            mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (bytes_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
        madvise(bytes_, most, MADV_HUGEPAGE);  // fewer page faults when llama.cpp reads the zeroes
    }
    ~State() { munmap(bytes_, most_); }
    State(const State &) = delete;
    State &operator=(const State &) = delete;

    template <typename T>
    void put(T value) {
        std::memcpy(at(sizeof value), &value, sizeof value);
    }
    // Zeroes.
    void skip(std::size_t size) { at(size); }
    // Rows that start with their number.
    void put_marked(std::size_t rows, std::size_t row_bytes, std::uint64_t mark) {
        for (std::uint64_t row = 0; row < rows; ++row) {
            const std::uint64_t value = mark + row;
            std::memcpy(at(row_bytes), &value, sizeof value);
        }
    }

    const std::uint8_t *data() const { return bytes_; }
    std::size_t size() const { return size_; }

private:
    std::uint8_t *at(std::size_t size) {
        if (size > most_ - size_) throw std::logic_error("a state is larger than was computed");
        size_ += size;
        return bytes_ + size_ - size;
    }

    std::uint8_t *bytes_;
    std::size_t most_;
    std::size_t size_ = 0;
};

void put_rows(State &state, const CacheGroup &group, char role, std::size_t count, std::uint64_t mark) {
    for (const CacheTensor &tensor : group.tensors) {
        if (tensor.role != role) continue;
        state.put(tensor.type);
        if (tensor.transposed) {
            state.put(static_cast<std::uint32_t>(tensor.row_bytes / tensor.elements));
            state.put(static_cast<std::uint32_t>(tensor.elements));
            state.skip(count * tensor.row_bytes);
            continue;
        }
        state.put(tensor.row_bytes);
        if (&tensor == &group.tensors.front()) {
            state.put_marked(count, tensor.row_bytes, mark);
        } else {
            state.skip(count * tensor.row_bytes);
        }
    }
}

void put_keys_and_values(State &state, const CacheGroup &group, llama_seq_id sequence,
                         const std::vector<llama_pos> &positions, std::uint64_t mark) {
    state.put(std::uint32_t{1});  // streams
    state.put(static_cast<std::uint32_t>(positions.size()));
    if (positions.empty()) return;
    for (const llama_pos position : positions) {
        state.put(position);
        state.put(std::uint32_t{1});
        state.put(sequence);
    }
    std::uint32_t transposed = 0, layers = 0;
    for (const CacheTensor &tensor : group.tensors) {
        transposed |= tensor.transposed;
        layers += tensor.role == 'k';
    }
    state.put(transposed);
    state.put(layers);
    put_rows(state, group, 'k', positions.size(), mark);
    put_rows(state, group, 'v', positions.size(), mark);
}

void put_recurrent(State &state, const CacheGroup &group, std::int32_t layers,
                   const std::vector<llama_pos> &positions, std::uint64_t mark) {
    state.put(static_cast<std::uint32_t>(positions.size()));
    for (const llama_pos position : positions) {
        state.put(position);
        state.put(std::uint32_t{0});
    }
    state.put(std::uint32_t{0});  // not transposed
    state.put(layers);
    put_rows(state, group, 'r', positions.size(), mark);
    put_rows(state, group, 's', positions.size(), mark);
}

std::size_t bound(const std::vector<CacheGroup> &groups, const Positions &positions) {
    std::size_t size = 64;
    for (std::size_t group = 0; group < groups.size(); ++group) {
        size += 64 + positions[group].size() * 16;
        for (const CacheTensor &tensor : groups[group].tensors) size += 16 + positions[group].size() * tensor.row_bytes;
    }
    return size;
}

// The first number of each row of a tensor.
std::vector<std::uint64_t> first_words(const CacheTensor &tensor) {
    std::vector<std::uint64_t> words(tensor.cells);
    std::vector<std::byte> copy;
    const std::byte *rows = tensor.data;
    if (tensor.gpu >= 0) {
        copy.resize(tensor.cells * tensor.row_bytes);
        ggml_backend_tensor_get(tensor.tensor, copy.data(), 0, copy.size());
        rows = copy.data();
    }
    for (std::uint64_t cell = 0; cell < tensor.cells; ++cell) {
        std::memcpy(&words[cell], rows + cell * tensor.row_bytes, sizeof words[cell]);
    }
    return words;
}

// The cells whose rows start with these numbers.
CellIds find_marks(const CacheGroup &group, std::size_t count, std::uint64_t mark) {
    CellIds cells(count, UINT32_MAX);
    const auto words = first_words(group.tensors.front());
    for (std::uint64_t cell = 0; cell < words.size(); ++cell) {
        const std::uint64_t value = words[cell];
        if (value - mark < count) cells[value - mark] = static_cast<std::uint32_t>(cell);
    }
    for (const std::uint32_t cell : cells) {
        if (cell == UINT32_MAX) throw std::runtime_error("llama.cpp placed a token in no cell of its cache");
    }
    return cells;
}

}  // namespace

std::vector<CellIds> place_sequence(const llama_model *model, llama_context *context, const std::vector<CacheGroup> &groups,
                                    llama_seq_id sequence, const Positions &positions) {
    if (positions.size() != groups.size()) {
        throw std::runtime_error("the sequence is of a model with other caches");
    }
    for (std::size_t group = 0; group < groups.size(); ++group) {
        if (positions[group].empty() || positions[group].size() > groups[group].cells) {
            throw std::runtime_error("the sequence has " + std::to_string(positions[group].size()) + " positions, and the cache " +
                                     std::to_string(groups[group].cells) + " cells");
        }
    }
    State state(bound(groups, positions));
    const std::uint64_t mark = next_mark();
    state.put(magic);
    state.put(sequence);
    for (std::size_t group = 0; group < groups.size(); ++group) {
        if (groups[group].is_recurrent) {
            put_recurrent(state, groups[group], llama_model_n_layer(model), positions[group], mark);
        } else {
            put_keys_and_values(state, groups[group], sequence, positions[group], mark);
        }
    }
    if (llama_state_seq_set_data(context, state.data(), state.size(), sequence) != state.size()) {
        throw std::runtime_error("llama.cpp does not accept the positions of the sequence: the cache is full, or this version "
                                 "of llama.cpp has another form of state");
    }
    std::vector<CellIds> places;
    for (std::size_t group = 0; group < groups.size(); ++group) {
        places.push_back(find_marks(groups[group], positions[group].size(), mark));
    }
    return places;
}
