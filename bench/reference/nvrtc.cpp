// SPDX-License-Identifier: Apache-2.0
// NVRTC compiles to machine code of this GPU, because a driver may be too old for the toolkit's PTX.
#include "reference/nvrtc.hpp"

#include "reference/toolkit.hpp"

#include <vector>

namespace cuda {
namespace {

using program = struct program_s *;

struct nvrtc {
    int (*create)(program *, const char *source, const char *name, int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(program, int count, const char *const *options);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
    int (*cubin_size)(program, size_t *);
    int (*cubin)(program, char *);
    int (*destroy)(program *);
};

nvrtc open_nvrtc()
{
    void *library = open_toolkit({"libnvrtc.so.13", "libnvrtc.so.12"});
    nvrtc functions{};
    resolve_in(library, "nvrtcCreateProgram", functions.create);
    resolve_in(library, "nvrtcCompileProgram", functions.compile);
    resolve_in(library, "nvrtcGetProgramLogSize", functions.log_size);
    resolve_in(library, "nvrtcGetProgramLog", functions.log);
    resolve_in(library, "nvrtcGetCUBINSize", functions.cubin_size);
    resolve_in(library, "nvrtcGetCUBIN", functions.cubin);
    resolve_in(library, "nvrtcDestroyProgram", functions.destroy);
    return functions;
}

void require(int code, const char *call)
{
    if (code != 0)
        throw std::runtime_error(std::string(call) + " failed with " + std::to_string(code));
}

std::string log_of(const nvrtc &compiler, program made)
{
    size_t size = 0;
    require(compiler.log_size(made, &size), "nvrtcGetProgramLogSize");
    std::string text(size, '\0');
    require(compiler.log(made, text.data()), "nvrtcGetProgramLog");
    return text;
}

std::vector<char> compile(const std::string &source, int device)
{
    const nvrtc compiler = open_nvrtc();
    const std::string target = "--gpu-architecture=sm_" +
                               std::to_string(attribute(compute_capability_major, device)) +
                               std::to_string(attribute(compute_capability_minor, device));
    const char *options[] = {target.c_str()};
    program made = nullptr;
    require(compiler.create(&made, source.c_str(), "reference.cu", 0, nullptr, nullptr),
            "nvrtcCreateProgram");
    if (compiler.compile(made, 1, options) != 0)
        throw std::runtime_error("the reference's kernel does not compile: " + log_of(compiler, made));
    size_t size = 0;
    require(compiler.cubin_size(made, &size), "nvrtcGetCUBINSize");
    std::vector<char> image(size);
    require(compiler.cubin(made, image.data()), "nvrtcGetCUBIN");
    compiler.destroy(&made);
    return image;
}

} // namespace

int attribute(int which, int device)
{
    int value = 0;
    check(load().device_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
}

compiled_kernel::compiled_kernel(const std::string &source, const char *name, int device)
{
    // NVRTC loads the driver too, and crashes with the stand-in.
    if (load().stand_in || load().launch == nullptr || load().module_load == nullptr ||
        load().module_function == nullptr)
        throw std::runtime_error("the driver runs no kernels");
    const std::vector<char> image = compile(source, device);
    check(load().module_load(&module_, image.data()), "cuModuleLoadData");
    check(load().module_function(&function_, module_, name), "cuModuleGetFunction");
}

compiled_kernel::~compiled_kernel() { load().module_unload(module_); }

void compiled_kernel::launch(unsigned grid, unsigned block, void **parameters, stream on) const
{
    check(load().launch(function_, grid, 1, 1, block, 1, 1, 0, on, parameters, nullptr), "cuLaunchKernel");
}

} // namespace cuda
