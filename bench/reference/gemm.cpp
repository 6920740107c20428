// SPDX-License-Identifier: Apache-2.0
// cuBLAS, loaded at run time. It uses the current context, which is the device's primary one.
#include "reference/gemm.hpp"

#include "reference/toolkit.hpp"

#include <algorithm>
#include <random>

namespace cuda {
namespace {

constexpr int real_bf16 = 14; // cudaDataType
constexpr int compute_32f = 68;
constexpr int algorithm_default = -1;
constexpr int as_it_is = 0; // not transposed
constexpr size_t element = 2;

struct cublas {
    int (*create)(void **);
    int (*destroy)(void *);
    int (*set_stream)(void *, stream);
    int (*gemm)(void *, int transposed_a, int transposed_b, int m, int n, int k, const void *alpha,
                const void *a, int type_a, int rows_a, const void *b, int type_b, int rows_b,
                const void *beta, void *c, int type_c, int rows_c, int compute_type, int algorithm);
};

cublas open_cublas()
{
    void *library = open_toolkit({"libcublas.so.13", "libcublas.so.12"});
    cublas functions{};
    resolve_in(library, "cublasCreate_v2", functions.create);
    resolve_in(library, "cublasDestroy_v2", functions.destroy);
    resolve_in(library, "cublasSetStream_v2", functions.set_stream);
    resolve_in(library, "cublasGemmEx", functions.gemm);
    return functions;
}

const cublas &blas()
{
    static const cublas functions = open_cublas();
    return functions;
}

void require(int code, const char *call)
{
    if (code != 0)
        throw std::runtime_error(std::string(call) + " failed with " + std::to_string(code));
}

// bf16 from -2 to 2. Zeroes would need less power, and so less time, than the values of a model.
std::vector<uint16_t> some_values()
{
    std::mt19937 random(7);
    std::vector<uint16_t> values(1 << 20);
    for (uint16_t &value : values) {
        const auto bits = static_cast<uint16_t>(random());
        value = static_cast<uint16_t>((bits & 0x807f) | ((0x7c + bits % 4) << 7));
    }
    return values;
}

void fill_matrix(address matrix, size_t bytes, const std::vector<uint16_t> &values)
{
    const size_t part = values.size() * element;
    for (size_t offset = 0; offset < bytes; offset += part)
        check(load().copy(matrix + offset, reinterpret_cast<address>(values.data()),
                          std::min(part, bytes - offset)),
              "cuMemcpy");
}

} // namespace

gemms::gemms(int size) : size_(size), matrices_(3)
{
    const size_t bytes = element * static_cast<size_t>(size) * static_cast<size_t>(size);
    const std::vector<uint16_t> values = some_values();
    for (address &matrix : matrices_) {
        check(load().memory_alloc(&matrix, bytes), "cuMemAlloc");
        fill_matrix(matrix, bytes, values);
    }
    if (load().stand_in)
        return;
    require(blas().create(&handle_), "cublasCreate");
    require(blas().set_stream(handle_, stream_.get()), "cublasSetStream");
}

gemms::~gemms()
{
    if (handle_ != nullptr)
        blas().destroy(handle_);
    for (address matrix : matrices_)
        load().memory_free(matrix);
}

std::string gemms::name() const
{
    return std::to_string(size_) + "^3 bf16 " + (handle_ != nullptr ? "GEMM" : "memset");
}

void gemms::enqueue() const
{
    if (handle_ == nullptr) {
        const size_t bytes = element * static_cast<size_t>(size_) * static_cast<size_t>(size_);
        check(load().fill_async(matrices_[2], 0, bytes, stream_.get()), "cuMemsetD8Async");
        return;
    }
    const float alpha = 1;
    const float beta = 0;
    const auto matrix = [this](size_t index) { return reinterpret_cast<void *>(matrices_[index]); };
    require(blas().gemm(handle_, as_it_is, as_it_is, size_, size_, size_, &alpha, matrix(0), real_bf16, size_,
                        matrix(1), real_bf16, size_, &beta, matrix(2), real_bf16, size_, compute_32f,
                        algorithm_default),
            "cublasGemmEx");
}

void gemms::start(int count)
{
    count_ = count;
    simulated_queries_ = 6;
    watch_.start(stream_.get());
    for (int index = 0; index < count; ++index)
        enqueue();
    watch_.stop(stream_.get());
}

bool gemms::busy()
{
    if (load().stand_in)
        return simulated_queries_-- > 0;
    return watch_.running();
}

double gemms::wait() { return watch_.wait_ns() * 1e-3 / count_; }

} // namespace cuda
