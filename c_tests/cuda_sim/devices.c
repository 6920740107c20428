// SPDX-License-Identifier: Apache-2.0
// cuInit and the devices. Environment variables, with their defaults:
//
// - KVMEM_SIM_DEVICES: the number of devices (2).
// - KVMEM_SIM_MEMORY: the bytes of memory of each device (8 GiB).
// - KVMEM_SIM_FABRIC: 1 if fabric handles work (0).
// - KVMEM_SIM_VMM: 0 if virtual memory management is not supported (1).
// - KVMEM_SIM_PEER_ACCESS: 0 if devices cannot access each other's memory (1).
// - KVMEM_SIM_FAIL: a driver function and the number of the error that it returns, separated by a space.
// - KVMEM_SIM_INIT: "abort" if cuInit ends the process, "hang" if it does not return.
// - CUDA_VISIBLE_DEVICES: the devices that the process may use, by number, in this order.
#include "devices.h"

#include "call.h"
#include "cuda_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CUDA 13.0. */
#define VERSION 13000

static const char device_name[] = "kvmem stand-in device";
static const char uuid_prefix[15] = "kvmem-sim-dev-0";

static uint64_t number_from_environment(const char *name, uint64_t default_value) {
    const char *text = getenv(name);
    if (text == NULL) return default_value;
    char *end = NULL;
    const unsigned long long number = strtoull(text, &end, 10);
    if (end == text || *end != '\0') sim_crash("%s=%s is not a number", name, text);
    return number;
}

static bool is_listed(int physical) { return device_of_physical(physical) != NO_ORDINAL; }

/* As in the driver: an invalid number hides the rest of the list, and a number listed twice hides all
   devices. */
static void list_visible(const char *text, int on_machine) {
    while (*text != '\0') {
        char *end = NULL;
        const long physical = strtol(text, &end, 10);
        if (end == text || physical < 0 || physical >= on_machine) return;
        if (is_listed((int)physical)) {
            sim.num_devices = 0;
            return;
        }
        sim.devices[sim.num_devices++].physical = (int)physical;
        if (*end != ',') return;
        text = end + 1;
    }
}

static void list_devices(void) {
    const uint64_t on_machine = number_from_environment("KVMEM_SIM_DEVICES", 2);
    if (on_machine > MAX_DEVICES) sim_crash("KVMEM_SIM_DEVICES is more than %d", MAX_DEVICES);
    sim.num_devices = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL) {
        list_visible(visible, (int)on_machine);
        return;
    }
    for (uint64_t i = 0; i < on_machine; i++) sim.devices[sim.num_devices++].physical = (int)i;
}

/* For programs that cannot call sim_fail. */
static void apply_environment_failures(void) {
    const char *value = getenv("KVMEM_SIM_INIT");
    if (value != NULL && strcmp(value, "abort") == 0) abort();
    while (value != NULL && strcmp(value, "hang") == 0) pause();
    if (number_from_environment("KVMEM_SIM_VMM", 1) == 0)
        attribute_set(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    const char *failing = getenv("KVMEM_SIM_FAIL");
    if (failing != NULL) faults_plan(failing);
}

CUresult cuInit(unsigned flags) {
    DRIVER_CALL(cuInit);
    INVALID_IF(flags != 0);
    if (sim.initialised_in != 0)
        return sim.initialised_in == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    apply_environment_failures();
    list_devices();
    RETURN_IF(sim.num_devices == 0, CUDA_ERROR_NO_DEVICE);
    sim.memory_per_device = number_from_environment("KVMEM_SIM_MEMORY", 8 * GIB);
    sim.no_peer_access |= number_from_environment("KVMEM_SIM_PEER_ACCESS", 1) == 0;
    sim.initialised_in = getpid();
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    DRIVER_CALL(cuDriverGetVersion);
    INVALID_IF(version == NULL);
    *version = VERSION;
    return CUDA_SUCCESS;
}

bool device_exists(CUdevice device) { return device >= 0 && device < sim.num_devices; }

bool device_reaches(CUdevice device, CUdevice owner) {
    return device == owner || owner == NO_ORDINAL || !sim.no_peer_access;
}

CUdevice device_of_physical(int physical) {
    for (CUdevice device = 0; device < sim.num_devices; device++) {
        if (sim.devices[device].physical == physical) return device;
    }
    return NO_ORDINAL;
}

void sim_set_peer_access(bool can) {
    LOCKED;
    sim.no_peer_access = !can;
}

void sim_set_ipc_ordinal_of_opener(bool is_of_opener) {
    LOCKED;
    sim.ipc_ordinal_of_opener = is_of_opener;
}

void sim_set_allocation_offset(size_t offset) {
    LOCKED;
    sim.allocation_offset = offset;
}

CUresult cuDeviceGetCount(int *count) {
    DRIVER_CALL(cuDeviceGetCount);
    INVALID_IF(count == NULL);
    *count = sim.num_devices;
    return CUDA_SUCCESS;
}

/* The checks that all queries of a device have in common. */
static CUresult check_query(const void *result, CUdevice device) {
    INVALID_IF(result == NULL);
    return device_exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    DRIVER_CALL(cuDeviceGet);
    TRY(check_query(device, ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    DRIVER_CALL(cuDeviceGetName);
    TRY(check_query(name, device));
    if (size <= 0) sim_crash("cuDeviceGetName into %d bytes", size);
    snprintf(name, (size_t)size, "%s", device_name);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device) {
    TRY(check_query(uuid, device));
    memcpy(uuid->bytes, uuid_prefix, sizeof(uuid_prefix));
    uuid->bytes[sizeof(uuid_prefix)] = (unsigned char)sim.devices[device].physical;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    DRIVER_CALL(cuDeviceGetUuid);
    return get_uuid(uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    DRIVER_CALL(cuDeviceGetUuid_v2);
    return get_uuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    DRIVER_CALL(cuDeviceTotalMem_v2);
    TRY(check_query(bytes, device));
    *bytes = sim.memory_per_device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    DRIVER_CALL(cuDeviceGetAttribute);
    TRY(check_query(value, device));
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) {
        *value = sim.devices[device].physical;
        return CUDA_SUCCESS;
    }
    return attribute_get(attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
    DRIVER_CALL(cuDeviceGetPCIBusId);
    TRY(check_query(id, device));
    char text[16];
    const int length = snprintf(text, sizeof(text), "0000:00:%02x.0", (unsigned)sim.devices[device].physical);
    INVALID_IF(size <= length);
    memcpy(id, text, (size_t)length + 1);
    return CUDA_SUCCESS;
}

/* A device is not a peer of itself. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    DRIVER_CALL(cuDeviceCanAccessPeer);
    TRY(check_query(can, device));
    RETURN_IF(!device_exists(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer && device_reaches(device, peer);
    return CUDA_SUCCESS;
}
