// SPDX-License-Identifier: Apache-2.0
// Metadata of small models of llama.cpp's own architectures, and weights from a generator that the tensor's name seeds.
#include "model.hpp"

#include <ggml-backend.h>
#include <gguf.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace {

struct FreeMetadata {
    void operator()(gguf_context *metadata) const { gguf_free(metadata); }
};
using Metadata = std::unique_ptr<gguf_context, FreeMetadata>;

// Writes keys of one architecture.
class Keys {
public:
    Keys(gguf_context *metadata, std::string architecture)
        : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

    void set(const char *key, std::uint32_t value) { gguf_set_val_u32(metadata_, (prefix_ + key).c_str(), value); }
    void set_real(const char *key, float value) { gguf_set_val_f32(metadata_, (prefix_ + key).c_str(), value); }
    void set_list(const char *key, const std::vector<std::uint32_t> &values) {
        gguf_set_arr_data(metadata_, (prefix_ + key).c_str(), GGUF_TYPE_UINT32, values.data(), values.size());
    }

private:
    gguf_context *metadata_;
    std::string prefix_;
};

constexpr std::uint32_t context_length = 1u << 15;

void set_common(Keys &keys, const ModelSize &size, std::uint32_t width) {
    keys.set("vocab_size", size.vocabulary);
    keys.set("context_length", context_length);
    keys.set("block_count", size.layers);
    keys.set("embedding_length", width);
    keys.set("feed_forward_length", width);
    keys.set_real("attention.layer_norm_rms_epsilon", 1e-5f);
}

void set_attention(Keys &keys, const ModelSize &size) {
    keys.set("attention.head_count", size.heads);
    keys.set("attention.head_count_kv", size.kv_heads);
    keys.set("attention.key_length", size.head_dim);
    keys.set("attention.value_length", size.head_dim);
    keys.set("rope.dimension_count", size.head_dim);
}

void set_state_space(Keys &keys, std::uint32_t width) {
    keys.set("ssm.conv_kernel", 4);
    keys.set("ssm.inner_size", 2 * width);
    keys.set("ssm.state_size", 16);
    keys.set("ssm.time_step_rank", width / 16);
}

constexpr std::uint32_t width = 256;

void describe_gqa(Keys &keys, const ModelSize &size) {
    set_common(keys, size, width);
    set_attention(keys, size);
}

void describe_swa(Keys &keys, const ModelSize &size) {
    describe_gqa(keys, size);
    keys.set("attention.sliding_window", 64);
}

// Multi-head latent attention: one row of 512 + 64 elements per token, and the values are its first 512.
void describe_mla(Keys &keys, const ModelSize &size) {
    set_common(keys, size, width);
    keys.set("attention.head_count", 4);
    keys.set("attention.head_count_kv", 1);
    keys.set("attention.key_length", 576);
    keys.set("attention.value_length", 512);
    keys.set("attention.key_length_mla", 192);
    keys.set("attention.value_length_mla", 128);
    keys.set("attention.q_lora_rank", 64);
    keys.set("attention.kv_lora_rank", 512);
    keys.set("rope.dimension_count", 64);
    keys.set("leading_dense_block_count", size.layers);
    keys.set("expert_count", 2);
    keys.set("expert_used_count", 1);
    keys.set("expert_feed_forward_length", width);
    keys.set("expert_shared_count", 1);
}

void describe_recurrent(Keys &keys, const ModelSize &size) {
    set_common(keys, size, width);
    set_state_space(keys, width);
}

// Every other layer has attention; the rest have a recurrent state.
void describe_hybrid(Keys &keys, const ModelSize &size) {
    ModelSize narrow = size;
    narrow.heads = 4;
    narrow.kv_heads = 2;
    narrow.head_dim = width / narrow.heads;  // as this architecture has it
    describe_gqa(keys, narrow);
    set_state_space(keys, width);
    std::vector<std::uint32_t> heads(size.layers), kv_heads(size.layers);
    for (std::uint32_t layer = 0; layer < size.layers; layer += 2) {
        heads[layer] = narrow.heads;
        kv_heads[layer] = narrow.kv_heads;
    }
    keys.set_list("attention.head_count", heads);
    keys.set_list("attention.head_count_kv", kv_heads);
}

struct Kind {
    const char *name;
    const char *architecture;
    void (*describe)(Keys &keys, const ModelSize &size);
};

constexpr Kind kinds[] = {
    {"gqa", "llama", describe_gqa},
    {"mla", "deepseek2", describe_mla},
    {"swa", "gemma2", describe_swa},
    {"recurrent", "mamba", describe_recurrent},
    {"hybrid", "jamba", describe_hybrid},
};

Metadata describe(const Kind &kind, const ModelSize &size) {
    Metadata metadata(gguf_init_empty());
    gguf_set_val_str(metadata.get(), "general.architecture", kind.architecture);
    gguf_set_val_str(metadata.get(), "tokenizer.ggml.model", "no_vocab");
    Keys keys(metadata.get(), kind.architecture);
    kind.describe(keys, size);
    return metadata;
}

std::uint64_t hash(std::string_view text) {
    std::uint64_t value = 0xcbf29ce484222325;
    for (const char letter : text) value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    return value;
}

// The next number of a generator (splitmix64), in [-1, 1).
float next(std::uint64_t &state) {
    std::uint64_t value = state += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return static_cast<float>(static_cast<std::int64_t>(value ^ (value >> 31)) >> 40) / static_cast<float>(1 << 23);
}

void fill(ggml_tensor *tensor, void *) {
    const std::string_view name = tensor->name;
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
    std::uint64_t state = hash(name);
    const bool is_decay = name.find("ssm_a") != name.npos;  // has to be negative
    const bool is_norm = name.find("norm") != name.npos;
    const float scale = 2.0f / std::sqrt(static_cast<float>(tensor->ne[0]));
    for (float &value : values) {
        const float random = next(state);
        value = is_decay ? -1.0f - std::abs(random) : is_norm ? 1.0f + random / 4 : scale * random;
    }
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
}

int count_gpus() {
    int count = 0;
    for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        count += ggml_backend_dev_type(ggml_backend_dev_get(i)) == GGML_BACKEND_DEVICE_TYPE_GPU;
    }
    return count;
}

// All layers on the GPU, or none on any.
llama_model_params place(int gpu) {
    // llama.cpp would evaluate on the CPU.
    if (const int count = count_gpus(); gpu >= count) {
        throw std::runtime_error("there is no GPU " + std::to_string(gpu) + ": this llama.cpp has " + std::to_string(count));
    }
    static ggml_backend_dev_t none[] = {nullptr};
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = gpu < 0 ? 0 : 1 << 16;
    params.main_gpu = gpu < 0 ? 0 : gpu;
    params.split_mode = LLAMA_SPLIT_MODE_NONE;
    if (gpu < 0) params.devices = none;
    return params;
}

}  // namespace

void start_llama() {
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        static ggml_log_level begun = GGML_LOG_LEVEL_NONE;
        if (level != GGML_LOG_LEVEL_CONT) begun = level;  // otherwise the line continues
        if (begun == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
}

bool is_model_file(const std::string &name) {
    constexpr std::string_view suffix = ".gguf";
    return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

Model make_model(const std::string &name, const ModelSize &size, int gpu) {
    const llama_model_params params = place(gpu);
    if (is_model_file(name)) {
        Model model(llama_model_load_from_file(name.c_str(), params));
        if (!model) throw std::runtime_error("llama.cpp cannot load the model " + name);
        return model;
    }
    for (const Kind &kind : kinds) {
        if (name != kind.name) continue;
        const Metadata metadata = describe(kind, size);
        Model model(llama_model_init_from_user(metadata.get(), fill, nullptr, params));
        if (!model) throw std::runtime_error("llama.cpp cannot build the model " + name);
        return model;
    }
    throw std::runtime_error("there is no model '" + name + "'");
}
