// SPDX-License-Identifier: Apache-2.0
// The command line, and the models of the program.
#pragma once

#include "engine.hpp"
#include "model.hpp"

#include <string>
#include <vector>

// A model, and how its cache is stored.
struct Variant {
    std::string name;
    std::string model;  // for make_model
    ggml_type type = GGML_TYPE_F16;
    bool flash_attention = true;
};

const std::vector<Variant> &all_variants();
// A variant by its name, or for a GGUF file by its path.
Variant find_variant(const std::string &name);

struct Options {
    std::vector<std::string> models;  // none for all variants
    std::uint32_t tokens = 1000;  // of the longer prompt; both end inside a block of the store
    std::uint32_t prompts = 2;
    std::uint32_t context = 0;  // cells; 0 for enough
    std::uint32_t generate = 20;
    ModelSize size;
    int gpu = -1;  // of decode; -1 for the CPU
    int prefill_gpu = -1;
    bool nixl = true;
    std::string directory = "/tmp";
    std::string write_model;  // the path of a GGUF file that the program writes first
    // Of child processes.
    std::string role;
    int socket = -1;
    std::string files;
};

// Sets the options of the arguments. Throws if a value is invalid.
void parse(int argc, char **argv, Options &options);
// The arguments with which a child process has the same models and sizes.
std::vector<std::string> arguments_for_child(const Options &options, const Variant &variant);

EngineOptions engine_options(const Options &options, const Variant &variant);
