/* The files config.json and generation_config.json, as far as they say how a model writes: the same
 * bytes are tried as both. What must hold: they are accepted, or refused by one line. */
#include <sys/stat.h>

#include "dra/generate.h"
#include "file/fail.h"
#include "harness.h"

static const char *const names[] = {"config.json", "generation_config.json"};

static char folder[FUZZ_PATH], path[COUNT(names)][2 * FUZZ_PATH];

static void make(fuzz_bytes *b)
{
    static const char *const members[] = {"\"do_sample\": true",
                                          "\"temperature\": 0.5",
                                          "\"top_k\": 3",
                                          "\"top_p\": 0.9",
                                          "\"min_p\": 0",
                                          "\"no_repeat_ngram_size\": 3",
                                          "\"min_new_tokens\": 2",
                                          "\"max_new_tokens\": 7",
                                          "\"max_length\": 9",
                                          "\"eos_token_id\": [1,2]",
                                          "\"num_beams\": 4",
                                          "\"stop_strings\": [\"x\"]",
                                          "\"repetition_penalty\": 1.5"};
    const char              *comma = "";
    say(b, "{");
    for (size_t i = 0; i < COUNT(members); i++) {
        if (below(2)) continue;
        say(b, comma);
        say(b, members[i]);
        comma = ", ";
    }
    say(b, "}");
}

int harness(const uint8_t *data, size_t bytes)
{
    char                  shown[DRA_BRIEF];
    dra_generation_config c;
    dra_error             err = {0};
    int                   accepted = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        put_file(path[i], data, bytes);
        if (dra_generation_config_read(folder, &c, &err) == DRA_OK)
            accepted++;
        else
            expect_line(&err, dra_brief(path[i], shown));
        unlink(path[i]);
    }
    return accepted == COUNT(names);
}

static void begin(void)
{
    fuzz_path(folder);
    if (mkdir(folder, 0700) != 0) broken("cannot make a folder");
    for (size_t i = 0; i < COUNT(names); i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
}

static void end(void) { rmdir(folder); }

static const char *const words[] = {
    FUZZ_JSON,          "null",     "-1",      "1e308", "2147483648", "true",
    "\"eos_token_id\"", "\"kept\"", "\\u001b", "0.5",   NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
