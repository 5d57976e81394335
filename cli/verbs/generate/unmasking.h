/* dra generate of encoders: filling in hidden tokens, round by round. */
#ifndef DRA_CLI_VERBS_GENERATE_UNMASKING_H
#define DRA_CLI_VERBS_GENERATE_UNMASKING_H

#include "sampling.h"

typedef struct cli_unmasking {
    int64_t steps; /* 0: not asked for */
    int64_t mask_token;
    int     schedule; /* of cli_unmask_schedules */
    bool    remask;
} cli_unmasking;

extern const char *const cli_mask_schedules[];   /* as dra_mask_schedule */
extern const char *const cli_unmask_schedules[]; /* the same without constant */

/* Rows of an option table, for a struct with a cli_unmasking called `unmask`. */
#define CLI_UNMASKING_OPTIONS(type)                                                                \
    {"unmask",                                                                                     \
     CLI_INT,                                                                                      \
     offsetof(type, unmask.steps),                                                                 \
     1,                                                                                            \
     1 << 20,                                                                                      \
     "encoder: fill in hidden tokens in N rounds, most confident first: --tokens after the "       \
     "prompt, and those in --prompt-tokens that are the mask token; prints all of the text",       \
     .unset = "off",                                                                               \
     .group = "Unmasking"},                                                                        \
        {"schedule",                                                                               \
         CLI_CHOICE,                                                                               \
         offsetof(type, unmask.schedule),                                                          \
         0,                                                                                        \
         0,                                                                                        \
         "with --unmask: how many tokens stay hidden after each round",                            \
         "NAME",                                                                                   \
         .choices = cli_unmask_schedules},                                                         \
        {"remask", CLI_FLAG, offsetof(type, unmask.remask),                                        \
         0,        0,        "with --unmask: tokens found in earlier rounds may be hidden again"}, \
    {                                                                                              \
        "mask-token", CLI_INT, offsetof(type, unmask.mask_token), 0, INT32_MAX,                    \
            "with --unmask: id of the mask token",                                                 \
            .unset = "as trained, or the last of the vocabulary", .flags = CLI_ZERO                \
    }

typedef struct cli_unmask_task {
    const cli_model     *m;
    const cli_source    *from;
    const cli_sampling  *how; /* tokens below 0: not said */
    const cli_unmasking *unmask;
    size_t               prompts;
    const dra_ids       *prompt;
    int64_t              count; /* samples of each */
    bool                 json;
    bool (*step)(void *user); /* false: shall end */
} cli_unmask_task;

/* Whether the options go together: else misuse, as cli_misused(). */
int cli_unmask_check(const cli_unmasking *u, const cli_source *from);
/* Fills in all texts and prints them. */
dra_status cli_unmask(const cli_unmask_task *t, dra_error *err);

#endif
