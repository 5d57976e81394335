/* The table of mixers: memories x retrievals x options, each through all invariants. */
#include "mixers.h"

#define main example_main /* the memory of the example is a row like any other */
#include "../../examples/05_new_memory.c"
#undef main

#define SIZES .dim = 12, .heads = 3

static const mixer_row rows[] = {
    {"append time", {SIZES}},
    {"append time, bias, norms",
     {SIZES, .bias = true, .qk_norm = true, .norm = DRA_NORM_RMS, .residual = DRA_RESIDUAL_PRE}},
    {"append time, rotary, wide values", {SIZES, .rotary = true, .value_dim = 5}},
    {"append time, half shift", {SIZES, .shift = DRA_SHIFT_HALF}},
    {"append window", {SIZES, .a = {.retrieval = "window", .window = 4}}, .fixed = true},
    {"append window, rotary",
     {SIZES, .rotary = true, .a = {.retrieval = "window", .window = 7}},
     .fixed = true},
    {"append none", {SIZES, .shift = DRA_SHIFT_MIX, .a = {.retrieval = "none"}}, .fixed = true},

    {"ema time", {SIZES, .a = {"ema"}}},
    {"ema time, per channel, shared",
     {SIZES, .a = {"ema", .gamma = {DRA_PER_CHANNEL, .share = true}}}},
    {"ema time, 3 timescales", {SIZES, .a = {"ema", .timescales = 3}}},
    {"ema time, rotary, head norm", {SIZES, .rotary = true, .a = {"ema", .head_norm = true}}},
    {"ema window, 2 timescales, per channel",
     {SIZES, .a = {"ema", .retrieval = "window", .window = 3, .timescales = 2,
                   .gamma = {DRA_PER_CHANNEL}}},
     .fixed = true},
    {"ema none, 2 timescales",
     {SIZES, .value_dim = 5, .a = {"ema", .retrieval = "none", .timescales = 2}},
     .fixed = true},
    {"ema none, joined",
     {SIZES, .value_dim = 5, .a = {"ema", .retrieval = "none", .joined = true}},
     .fixed = true},
    {"ema time, joined, narrow", {SIZES, .a = {"ema", .joined = true, .dim = 3, .timescales = 2}}},
    {"ema joint", {SIZES, .a = {"ema", .retrieval = "joint", .window = 4}}, .fixed = true},

    {"gru time", {SIZES, .a = {"gru"}}},
    {"gru time, a cell for each head, per channel",
     {SIZES, .a = {"gru", .per_head = true, .gamma = {DRA_PER_CHANNEL}}}},
    {"gru time, wide values, rotary", {SIZES, .rotary = true, .value_dim = 5, .a = {"gru"}}},
    {"gru window", {SIZES, .a = {"gru", .retrieval = "window", .window = 5}}, .fixed = true},
    {"gru none", {SIZES, .a = {"gru", .retrieval = "none"}}, .fixed = true, .bound = 1},
    {"gru none, joined",
     {SIZES, .value_dim = 5, .a = {"gru", .retrieval = "none", .joined = true}},
     .fixed = true,
     .bound = 1},
    {"gru time, joined, narrow", {SIZES, .a = {"gru", .joined = true, .dim = 3}}},
    {"gru joint, as in ADR", {SIZES, .bias = true, .a = {"gru", .retrieval = "joint"}}},
    {"gru joint, window, rotary",
     {SIZES, .rotary = true, .a = {"gru", .retrieval = "joint", .window = 4}},
     .fixed = true},
    {"gru time, Law 5 after",
     {SIZES, .norm = DRA_NORM_LAYER, .residual = DRA_RESIDUAL_POST, .memory_residual = true,
      .a = {"gru"}}},
    {"gru none, Law 5 before, projected",
     {SIZES, .norm = DRA_NORM_RMS, .residual = DRA_RESIDUAL_PRE, .memory_residual = true,
      .project = true, .a = {"gru", .retrieval = "none"}},
     .fixed = true,
     .bound = 1},

    {"wkv", {SIZES, .a = {"wkv"}}, .fixed = true},
    {"wkv, mixed shift", {SIZES, .shift = DRA_SHIFT_MIX, .a = {"wkv"}}, .fixed = true},

    {"a memory from outside, time", {SIZES, .a = {.own = &peak}}},
    {"a memory from outside, none",
     {SIZES, .a = {.own = &peak, .retrieval = "none"}},
     .fixed = true},

    {"blend of append and gru",
     {SIZES, .a = {"append"}, .blend = DRA_BLEND_NUMBER, .blend_value = 0.7, .b = {"gru"}}},
    {"blend of gru and wkv, learned",
     {SIZES, .a = {"gru", .retrieval = "none"}, .blend = DRA_BLEND_LEARNED, .b = {"wkv"}},
     .fixed = true},
    {"blend of append and ema, only the first",
     {SIZES, .a = {"append"}, .blend = DRA_BLEND_NUMBER, .blend_value = 1, .b = {"ema"}}},
};

int main(void) { return mixers_main("mixers", rows, COUNT(rows)); }
