// SPDX-License-Identifier: Apache-2.0
// The models of this example: random weights for each kind of cache that llama.cpp has, or a GGUF file of the user.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <string>

struct FreeModel {
    void operator()(llama_model *model) const { llama_model_free(model); }
};
using Model = std::unique_ptr<llama_model, FreeModel>;

// Initialises llama.cpp. It prints errors only.
void start_llama();

// The sizes of a model on which its cache depends.
struct ModelSize {
    std::uint32_t layers = 8;
    std::uint32_t heads = 16;  // of queries
    std::uint32_t kv_heads = 8;
    std::uint32_t head_dim = 128;
    std::uint32_t vocabulary = 1000;
};

// "gqa", "mla", "swa" (sliding window), "recurrent" or "hybrid", with weights that are the same in every process; or
// the path of a GGUF file. On a GPU, or on the CPU if `gpu` is negative.
Model make_model(const std::string &name, const ModelSize &size, int gpu);
bool is_model_file(const std::string &name);
