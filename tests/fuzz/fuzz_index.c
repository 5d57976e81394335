/* Indices of shards. What must hold:
 *   - an index as made is accepted;
 *   - any other is accepted and all its tensors can be touched, or refused by one line. */
#include <sys/stat.h>

#include "tensor_files.h"

static const char *const names[] = {"model.safetensors.index.json", "one.safetensors",
                                    "two.safetensors"};

static char folder[FUZZ_PATH], path[COUNT(names)][2 * FUZZ_PATH];

static void make(fuzz_bytes *b)
{
    say(b, "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {");
    say(b, below(2) ? "\"a\": \"one.safetensors\"" : "\"b\": \"two.safetensors\"");
    say(b, below(2) ? ", \"c\": \"two.safetensors\"}}" : "}}");
}

int harness(const uint8_t *data, size_t bytes)
{
    put_file(path[0], data, bytes);
    return tensor_files_try(path[0], folder);
}

static void begin(void)
{
    static const float    x[2];
    const dra_tensor_item a = {"a", DRA_F32, DRA_SHAPE(2), x},
                          b[] = {{"b", DRA_F32, {0}, x}, {"c", DRA_F32, {0}, x}};
    dra_error err = {0};
    fuzz_path(folder);
    if (mkdir(folder, 0700) != 0) broken("cannot make a folder");
    for (size_t i = 0; i < COUNT(names); i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    must(dra_tensors_write(path[1], &a, 1, NULL, 0, &err), &err);
    must(dra_tensors_write(path[2], b, 2, NULL, 0, &err), &err);
}

static void end(void)
{
    for (size_t i = 0; i < COUNT(names); i++) unlink(path[i]);
    rmdir(folder);
}

static const char *const words[] = {FUZZ_JSON,
                                    "/",
                                    "..",
                                    "a",
                                    "b",
                                    "c",
                                    "\\u0000",
                                    "\\u001b",
                                    "null",
                                    "\"weight_map\"",
                                    "\"metadata\"",
                                    "one.safetensors",
                                    "two.safetensors",
                                    "model.safetensors.index.json",
                                    ".",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
