// SPDX-License-Identifier: Apache-2.0
// Finds fields in CBOR by name, and replaces their values.
#include "forged.h"

static void put_le32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

void forge_seal(parcel *parcel) {
    unsigned char *bytes = parcel->bytes.data;
    put_le32(bytes + 12, (uint32_t)(parcel->bytes.size - FORGED_HEADER));
    const uint32_t header = crc_append(0, bytes, 16);
    put_le32(bytes + 16, crc_append(header, bytes + FORGED_HEADER, parcel->bytes.size - FORGED_HEADER));
}

/* The head of an item, which has `head` bytes. */
typedef struct item {
    unsigned major;
    uint64_t argument;
    size_t head;
} item;

static item item_at(const unsigned char *at) {
    const unsigned low = at[0] & 31;
    item found = {at[0] >> 5, low, 1};
    if (low >= 24) {
        CHECK(low <= 27);
        found.argument = 0;
        const size_t count = (size_t)1 << (low - 24);
        for (size_t i = 0; i < count; i++) found.argument = found.argument << 8 | at[1 + i];
        found.head += count;
    }
    return found;
}

/* Size of an integer, a text or a byte string. */
static size_t size_of_item(const unsigned char *at) {
    const item found = item_at(at);
    CHECK(found.major == 0 || found.major == 2 || found.major == 3);
    return found.head + (found.major == 0 ? 0 : found.argument);
}

/* Offset of the value of the first field of that name. */
static size_t find_value(const parcel *parcel, const char *field) {
    unsigned char key[64];
    const size_t length = strlen(field);
    CHECK(length < 24);
    key[0] = (unsigned char)(0x60 | length);
    memcpy(key + 1, field, length);
    const unsigned char *found = memmem(parcel->bytes.data, parcel->bytes.size, key, length + 1);
    if (found == NULL) FAIL("the manifest has no %s", field);
    return (size_t)(found - parcel->bytes.data) + length + 1;
}

static void replace_value(parcel *parcel, const char *field, const unsigned char *value, size_t size) {
    const size_t at = find_value(parcel, field);
    const size_t old = size_of_item(parcel->bytes.data + at);
    const size_t rest = parcel->bytes.size - at - old;
    unsigned char *bytes = test_allocate(at + size + rest);
    memcpy(bytes, parcel->bytes.data, at);
    memcpy(bytes + at, value, size);
    memcpy(bytes + at + size, parcel->bytes.data + at + old, rest);
    free(parcel->bytes.data);
    parcel->bytes = (message){bytes, at + size + rest};
    forge_seal(parcel);
}

void forge_integer(parcel *parcel, const char *field, uint64_t value) {
    unsigned char bytes[9] = {27};
    for (int i = 0; i < 8; i++) bytes[1 + i] = (unsigned char)(value >> (8 * (7 - i)));
    replace_value(parcel, field, bytes, sizeof(bytes));
}

void forge_text(parcel *parcel, const char *field, const char *value) {
    unsigned char bytes[64];
    const size_t length = strlen(value);
    CHECK(length < 24);
    bytes[0] = (unsigned char)(0x60 | length);
    memcpy(bytes + 1, value, length);
    replace_value(parcel, field, bytes, length + 1);
}

void forge_blob(parcel *parcel, const char *field, const void *data, size_t size) {
    CHECK(size <= UINT16_MAX);
    unsigned char *bytes = test_allocate(3 + size);
    bytes[0] = 0x59; /* a length of two bytes follows */
    bytes[1] = (unsigned char)(size >> 8);
    bytes[2] = (unsigned char)size;
    memcpy(bytes + 3, data, size);
    replace_value(parcel, field, bytes, 3 + size);
    free(bytes);
}

unsigned char *forged_bytes(const parcel *parcel, const char *field, size_t size) {
    unsigned char *at = parcel->bytes.data + find_value(parcel, field);
    const item found = item_at(at);
    CHECK_EQ(found.major, 2);
    CHECK(found.argument >= size);
    return at + found.head;
}

void forge_bytes(parcel *parcel, const char *field) {
    const item found = item_at(parcel->bytes.data + find_value(parcel, field));
    forged_bytes(parcel, field, 1)[found.argument - 1] ^= 1;
    forge_seal(parcel);
}

uint64_t forged_integer(const parcel *parcel, const char *field) {
    const item found = item_at(parcel->bytes.data + find_value(parcel, field));
    CHECK_EQ(found.major, 0);
    return found.argument;
}

bool forged_is_of_handle(const message *bytes, size_t at) {
    for (size_t header = FORGED_HEADER; header + 66 <= bytes->size; header++) {
        const bool is_handle = bytes->data[header] == 0x58 && bytes->data[header + 1] == 0x40;
        if (is_handle && at >= header + 2 && at < header + 66) return true;
    }
    return false;
}
