// SPDX-License-Identifier: Apache-2.0
#include "prometheus.h"

#include "harness.h"

#include <math.h>

/* The metric that the lines are of, and the last series of a histogram. */
typedef struct state {
    char metric[128];
    char type[16];
    double bucket;
    bool has_infinity;
    char last[512];
} state;

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

/* Returns the text behind a name, or NULL. */
static const char *behind_name(const char *text) {
    const char *end = text;
    while (is_name(*end)) end++;
    return end > text && !(*text >= '0' && *text <= '9') ? end : NULL;
}

/* Returns the text behind `{a="b",c="d"}`, or NULL. */
static const char *behind_labels(const char *text) {
    if (*text != '{') return text;
    do {
        text = behind_name(text + 1);
        if (text == NULL || text[0] != '=' || text[1] != '"') return NULL;
        for (text += 2; *text != '"'; text++) {
            if (*text == '\0' || *text == '\n') return NULL;
            if (*text == '\\' && strchr("\\\"n", *++text) == NULL) return NULL;
            if (*text == '\0') return NULL;
        }
        text++;
    } while (*text == ',');
    return *text == '}' ? text + 1 : NULL;
}

static const char *begin_metric(state *state, const char *line) {
    char metric[128];
    if (sscanf(line, "# HELP %127s %*[^\n]", metric) != 1 || line[strlen(line) - 1] != '.')
        return "a HELP line without a metric or a sentence";
    *state = (struct state){0};
    snprintf(state->metric, sizeof(state->metric), "%s", metric);
    return behind_name(metric) == metric + strlen(metric) ? NULL : "the name of a metric";
}

static const char *set_type(state *state, const char *line) {
    char metric[128];
    if (sscanf(line, "# TYPE %127s %15s", metric, state->type) != 2 || strcmp(metric, state->metric) != 0)
        return "a TYPE line that does not follow the HELP line of its metric";
    const bool is_total = strlen(metric) > 6 && strcmp(metric + strlen(metric) - 6, "_total") == 0;
    if (strcmp(state->type, "counter") == 0) return is_total ? NULL : "a counter that does not end with _total";
    if (strcmp(state->type, "gauge") != 0 && strcmp(state->type, "histogram") != 0) return "an unknown type";
    return is_total ? "a gauge or histogram that ends with _total" : NULL;
}

/* The buckets are cumulative, and the number of all follows them. */
static const char *add_to_histogram(state *state, const char *suffix, const char *labels, double value) {
    const bool is_bucket = strcmp(suffix, "_bucket") == 0;
    if (!is_bucket && strcmp(suffix, "_sum") != 0 && strcmp(suffix, "_count") != 0)
        return "an unknown suffix of a histogram";
    if (!is_bucket && !state->has_infinity) return "a histogram without a bucket for all";
    if (is_bucket && state->has_infinity) state->bucket = 0; /* those of other labels begin */
    if (is_bucket && value < state->bucket) return "a bucket with less than the one before";
    if (strcmp(suffix, "_count") == 0 && value != state->bucket) return "a count that is not that of all buckets";
    if (is_bucket) {
        state->bucket = value;
        state->has_infinity = strstr(labels, "le=\"+Inf\"") != NULL;
    }
    return NULL;
}

static const char *add_value(state *state, const char *line) {
    const char *labels = behind_name(line);
    const char *value = labels != NULL ? behind_labels(labels) : NULL;
    if (value == NULL || *value != ' ') return "a series with a wrong name or wrong labels";
    if ((size_t)(value - line) >= sizeof(state->last)) return "a series with a long name";
    char *end = NULL;
    const double number = strtod(value + 1, &end);
    if (end == value + 1 || *end != '\0' || !isfinite(number) || number < 0) return "a value that is no number";
    if (strncmp(state->last, line, (size_t)(value - line)) == 0 && state->last[value - line] == '\0')
        return "the same series again";
    snprintf(state->last, sizeof(state->last), "%.*s", (int)(value - line), line);
    const size_t length = strlen(state->metric);
    if (state->type[0] == '\0' || strncmp(line, state->metric, length) != 0)
        return "a series that is not of the metric before it";
    char suffix[16];
    snprintf(suffix, sizeof(suffix), "%.*s", (int)(labels - line - (ptrdiff_t)length), line + length);
    if (strcmp(state->type, "histogram") == 0) return add_to_histogram(state, suffix, state->last, number);
    return suffix[0] == '\0' ? NULL : "a suffix";
}

const char *prometheus_mistake(const char *text) {
    state state = {0};
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        if (end == NULL) return "a last line without an end";
        char line[1024];
        if (end == text || (size_t)(end - text) >= sizeof(line)) return "an empty or long line";
        snprintf(line, sizeof(line), "%.*s", (int)(end - text), text);
        const char *mistake = strncmp(line, "# HELP ", 7) == 0   ? begin_metric(&state, line)
                              : strncmp(line, "# TYPE ", 7) == 0 ? set_type(&state, line)
                                                                 : add_value(&state, line);
        if (mistake != NULL) return TEXT("%s: %s", mistake, line);
        text = end + 1;
    }
    return NULL;
}

void prometheus_check(const char *text) {
    const char *mistake = prometheus_mistake(text);
    if (mistake != NULL) fprintf(stderr, "%s\n", mistake);
    CHECK(mistake == NULL);
}

uint64_t prometheus_sum(const char *metric, const char *labels, size_t *series) {
    OWN(kvmem_blob, blob, kvmem_statistics_text);
    prometheus_check(kvmem_blob_data(blob));
    uint64_t sum = 0;
    const char *line = kvmem_blob_data(blob), *start = TEXT("\n%s{", metric);
    for (*series = 0; (line = strstr(line, start)) != NULL; line++) {
        const char *end = strstr(line, "} "), *tail = end - strlen(labels);
        if (tail < line || strncmp(tail, labels, strlen(labels)) != 0) continue;
        sum += strtoull(end + 2, NULL, 10);
        ++*series;
    }
    return sum;
}
