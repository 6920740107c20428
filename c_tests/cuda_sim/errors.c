// SPDX-License-Identifier: Apache-2.0
// Names and descriptions of the driver's results.
#include "call.h"

typedef struct result_info {
    CUresult result;
    const char *name;
    const char *sentence;
} result_info;

static const result_info results[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
#define RESULT(name, number, sentence) {(CUresult)(number), "CUDA_ERROR_" #name, sentence},
    CUDA_ERRORS(RESULT)
#undef RESULT
};

static const result_info *find(CUresult result) {
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i].result == result) return &results[i];
    }
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    DRIVER_CALL(cuGetErrorName);
    const result_info *found = find(error);
    *name = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **sentence) {
    DRIVER_CALL(cuGetErrorString);
    const result_info *found = find(error);
    *sentence = found ? found->sentence : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
