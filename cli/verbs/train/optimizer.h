/* Options of the optimizer, its schedule and a blend, for dra train and dra probe.
 * at(FIELD): where a field of the verb's dra_train_config is. */
#ifndef DRA_CLI_VERBS_TRAIN_OPTIMIZER_H
#define DRA_CLI_VERBS_TRAIN_OPTIMIZER_H

#include "options/options.h"

#include "dra/train.h"

CLI_CHOICES(schedules, DRA_SCHEDULE_COUNT, "cosine", "linear", "constant", "exponential", "wsd");
CLI_CHOICES(anneals, DRA_ANNEAL_COUNT, "linear", "cosine");
CLI_CHOICES(optimizers, DRA_OPTIMIZER_COUNT, "adamw", "sgd", "lion", "muon"); /* their kinds */

#define CLI_SCHEDULE_OPTIONS(at)                                                                   \
    {"schedule",          CLI_CHOICE, at(schedule), 0, 0, "schedule of lr after warm-up",          \
     .choices = schedules},                                                                        \
        {"schedule-end",                                                                           \
         CLI_INT,                                                                                  \
         at(schedule_end),                                                                         \
         1,                                                                                        \
         1e12,                                                                                     \
         "step after which lr stays at --min-lr",                                                  \
         .unset = "the last step"},                                                                \
        {"decay-steps",                                                                            \
         CLI_INT,                                                                                  \
         at(decay_steps),                                                                          \
         1,                                                                                        \
         1e12,                                                                                     \
         "schedule wsd: steps at the end in which lr decays to --min-lr, after it was constant",   \
         .unset = "a fifth of the steps"},                                                         \
        {"optimizer",                                                                              \
         CLI_CHOICE,                                                                               \
         at(optimizer),                                                                            \
         0,                                                                                        \
         0,                                                                                        \
         "muon: for matrices of hidden layers, adamw for the rest",                                \
         .choices = optimizers},                                                                   \
        {"momentum",                                                                               \
         CLI_REAL,                                                                                 \
         at(momentum),                                                                             \
         0,                                                                                        \
         0.999999,                                                                                 \
         "momentum of sgd and muon",                                                               \
         .unset = "0.9; muon: 0.95",                                                               \
         .flags = CLI_ZERO},                                                                       \
        {"nesterov", CLI_FLAG, at(nesterov), 0, 0, "Nesterov momentum for sgd; muon has it"},      \
    {                                                                                              \
        "muon-rate", CLI_REAL, at(muon_rate), 0, 1e6,                                              \
            "muon: learning rate of its matrices, as a multiple of lr", .unset = "20",             \
                                                                        .flags = CLI_ZERO          \
    }

#define CLI_MOMENT_OPTIONS(at)                                                                     \
    {"beta1",        CLI_REAL,                                                                     \
     at(beta1),      0,                                                                            \
     0.999999,       "decay of AdamW's first moment; lion: weight of the moment in a step",        \
     .unset = "0.9", .flags = CLI_ZERO},                                                           \
        {"beta2",                                                                                  \
         CLI_REAL,                                                                                 \
         at(beta2),                                                                                \
         0,                                                                                        \
         0.999999,                                                                                 \
         "decay of AdamW's second moment; lion: of its moment",                                    \
         .unset = "0.95; lion: 0.99",                                                              \
         .flags = CLI_ZERO},                                                                       \
    {                                                                                              \
        "eps", CLI_REAL, at(eps), 0, 1, "epsilon of AdamW", .unset = "1e-8", .flags = CLI_ZERO     \
    }

#define CLI_BLEND_OPTIONS(at)                                                                      \
    {"blend-steps",                                                                                \
     CLI_INT,                                                                                      \
     at(blend_steps),                                                                              \
     1,                                                                                            \
     1e12,                                                                                         \
     "steps until a scheduled blend reaches 0",                                                    \
     .unset = "half of the steps"},                                                                \
    {                                                                                              \
        "blend-anneal", CLI_CHOICE, at(blend_anneal), 0, 0, "shape of that schedule",              \
            .choices = anneals                                                                     \
    }

#endif
