/* Mixers that cannot be: every impossible choice is refused when the mixer is created, by one line
 * that names it. */
#include "sequence/reading.h"

#include <math.h>

#define ALL "append, ema, ssm, gru, lstm, moment, delta, wkv, slots, shortconv"
#define STREAMS "time, window, slots-own, slots-all, pooled, none, joint"
#define SIZES .dim = 12, .heads = 3

typedef struct bad {
    dra_mixer_config config;
    dra_status       code; /* DRA_OK stands for DRA_ERR_VALUE, the common one */
    const char      *text;
} bad;

static void expect_all_refused(size_t n, const bad *cases)
{
    for (size_t i = 0; i < n; i++) {
        dra_error        err = {0};
        dra_mixer       *m = (dra_mixer *)&err; /* must be cleared */
        const dra_status st = dra_mixer_create(&cases[i].config, &m, &err);
        expect_refused(st, &err, cases[i].code ? cases[i].code : DRA_ERR_VALUE, cases[i].text);
        assert_null(m);
        assert_int_not_equal(dra_mixer_create(&cases[i].config, &m, NULL), DRA_OK);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static const bad names[] = {
    {{SIZES, .a = {"emma"}}, DRA_ERR_NAME, "memory is emma, expected one of " ALL},
    {{SIZES, .a = {""}}, DRA_ERR_NAME, "memory is , expected one of " ALL},
    {{SIZES, .a = {.memory = "a memory with a name of more than forty letters"}},
     DRA_ERR_NAME,
     "memory is a memory with a name of more than forty , expected one of " ALL},
    {{SIZES, .blend = DRA_BLEND_LEARNED, .b = {"rnn"}},
     DRA_ERR_NAME,
     "memory is rnn, expected one of " ALL},
    {{SIZES, .a = {.retrieval = "tme"}},
     DRA_ERR_NAME,
     "retrieval of append is tme, expected one of time, window, none"},
    {{SIZES, .a = {"append", .retrieval = "formula"}},
     DRA_ERR_NAME,
     "retrieval of append is formula, expected one of time, window, none"},
    {{SIZES, .a = {"append", .retrieval = "joint"}},
     DRA_ERR_NAME,
     "retrieval of append is joint, expected one of time, window, none"},
    {{SIZES, .a = {"ema", .retrieval = "formula"}},
     DRA_ERR_NAME,
     "retrieval of ema is formula, expected one of " STREAMS},
    {{SIZES, .a = {"ema", .retrieval = "slots"}},
     DRA_ERR_NAME,
     "retrieval of ema is slots, expected one of " STREAMS},
    {{SIZES, .a = {"gru", .retrieval = "formula"}},
     DRA_ERR_NAME,
     "retrieval of gru is formula, expected one of " STREAMS},
    {{SIZES, .a = {"wkv", .retrieval = "time"}},
     DRA_ERR_NAME,
     "retrieval of wkv is time, expected one of formula"},
    {{SIZES, .a = {"wkv", .retrieval = "window", .window = 3}},
     DRA_ERR_NAME,
     "retrieval of wkv is window, expected one of formula"},
    {{SIZES, .a = {"wkv", .retrieval = "none"}},
     DRA_ERR_NAME,
     "retrieval of wkv is none, expected one of formula"},
    {{SIZES, .a = {"shortconv", .retrieval = "time"}},
     DRA_ERR_NAME,
     "retrieval of shortconv is time, expected one of formula"},
    {{SIZES, .a = {"wkv", .retrieval = "joint"}},
     DRA_ERR_NAME,
     "retrieval of wkv is joint, expected one of formula"},
};

static void refuses_unknown_names(void **state) { expect_all_refused(COUNT(names), names); }

/* Every memory with every retrieval there is: created, or refused by the list of the others. */
static void knows_every_pair(void **state)
{
    static const char *const retrievals[] = {"time",  "window",    "none",      "formula",
                                             "joint", "slots-own", "slots-all", "pooled"};
    int                      legal = 0;
    for (size_t i = 0; dra_memory_at(i); i++) {
        const dra_memory *memory = dra_memory_at(i);
        assert_ptr_equal(dra_memory_find(memory->name), memory);
        for (size_t k = 0; k < COUNT(retrievals); k++) {
            const dra_mixer_config c = {
                SIZES, .a = {memory->name, .retrieval = retrievals[k], .window = k == 1}};
            bool       listed = false;
            dra_mixer *m = NULL;
            dra_error  err = {0};
            for (const char *const *r = memory->retrievals; *r; r++)
                listed = listed || strcmp(*r, retrievals[k]) == 0;
            const dra_status st = dra_mixer_create(&c, &m, &err);
            if (st != (listed ? DRA_OK : DRA_ERR_NAME))
                fail_msg("%s with %s: %s", memory->name, retrievals[k], err.text);
            dra_mixer_destroy(m);
            legal += listed;
        }
    }
    assert_int_equal(legal, 3 + 4 * 7 + 4 * 1 + 4);
    assert_null(dra_memory_find("none"));
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static const bad sizes[] = {
    {{.heads = 3}, 0, "mixer: dim is 0, expected 1 to 1048576"},
    {{.dim = -12, .heads = 3}, 0, "mixer: dim is -12, expected 1 to 1048576"},
    {{.dim = INT64_MAX, .heads = 1}, 0, "mixer: dim is 9223372036854775807, expected 1 to 1048576"},
    {{.dim = 12}, 0, "mixer: heads is 0, expected 1 to 1048576"},
    {{.dim = 12, .heads = -1}, 0, "mixer: heads is -1, expected 1 to 1048576"},
    {{.dim = 12, .heads = 5}, 0, "mixer: 5 heads do not divide dim 12"},
    {{.dim = 12, .heads = 5, .a = {"wkv"}, .blend = DRA_BLEND_LEARNED, .b = {"ema"}},
     0,
     "mixer: 5 heads do not divide dim 12"},
    {{SIZES, .key_dim = -1}, 0, "mixer: key_dim is -1, expected 0 to 1048576"},
    {{SIZES, .value_dim = -4}, 0, "mixer: value_dim is -4, expected 0 to 1048576"},
    {{SIZES, .key_dim = 3, .rotary = true},
     0,
     "mixer: rotary turns pairs of channels, key_dim is 3"},
    {{SIZES, .a = {.window = 4}}, 0, "append: window is 4, but retrieval time has none"},
    {{SIZES, .a = {.window = -4}}, 0, "append: window is -4, expected 0 to 1048576"},
    {{SIZES, .a = {"gru", .retrieval = "none", .window = 4}},
     0,
     "gru: window is 4, but retrieval none has none"},
    {{SIZES, .a = {"wkv", .window = 1}}, 0, "wkv: window is 1, but retrieval formula has none"},
    {{SIZES, .a = {.retrieval = "window"}}, 0, "append: window is 0, expected 1 or more"},
    {{SIZES, .a = {"ema", .retrieval = "window", .window = -2}},
     0,
     "ema: window is -2, expected 0 to 1048576"},
    {{SIZES, .a = {"ema", .retrieval = "joint", .window = -2}},
     0,
     "ema: window is -2, expected 0 to 1048576"},
    {{SIZES, .a = {"ema", .ema.timescales = -1}},
     0,
     "ema: timescales is -1, expected 0 to 1048576"},
    {{SIZES, .a = {"append", .ema.timescales = 2}},
     0,
     "append: timescales is set, which only ema has"},
    {{SIZES, .a = {"gru", .ema.timescales = 3}}, 0, "gru: timescales is set, which only ema has"},
    {{SIZES, .a = {"wkv", .ema.timescales = 3}}, 0, "wkv: timescales is set, which only ema has"},
    {{SIZES, .a = {"ssm", .ssm.modes = -1}}, 0, "ssm: modes is -1, expected 0 to 1048576"},
    {{SIZES, .a = {"ema", .ssm.modes = 2}}, 0, "ema: modes is set, which only ssm has"},
    {{SIZES, .a = {"slots", .slots.count = -3}}, 0, "slots: slots is -3, expected 0 to 1048576"},
    {{SIZES, .a = {"gru", .slots.count = 3}}, 0, "gru: slots is set, which only slots has"},
    {{SIZES, .a = {"moment", .moment.features = 5}},
     0,
     "moment: features is 5, which only favor has"},
    {{SIZES, .a = {"slots", .slots.tau = -1}}, 0, "slots: tau is -1, expected 0 to 1e+06"},
    {{SIZES, .a = {"slots", .slots.tau = 2}}, 0, "slots: tau is 2, which only routed gates have"},
    {{SIZES, .a = {"slots", .slots.count = 2, .slots.tau = -1}},
     0,
     "slots: tau is -1, expected 0 to 1e+06"},
    {{SIZES, .key_std = -0.5}, 0, "mixer: key_std is -0.5, expected 0 to 1e+06"},
    {{SIZES, .key_std = INFINITY}, 0, "mixer: key_std is inf, expected 0 to 1e+06"},
    {{SIZES, .key_std = NAN}, 0, "mixer: key_std is nan, expected 0 to 1e+06"},
    {{SIZES, .a = {"ema", .joined = true, .dim = -1}}, 0, "ema: dim is -1, expected 0 to 1048576"},
    {{SIZES, .a = {"ema", .dim = 4}}, 0, "ema: dim is 4, which only a joined state has"},
    {{SIZES, .blend = DRA_BLEND_LEARNED, .b = {"gru", .dim = 4}},
     0,
     "gru: dim is 4, which only a joined state has"},
};

static void refuses_wrong_sizes(void **state) { expect_all_refused(COUNT(sizes), sizes); }

/* Within every limit, and still more than memory can hold. */
static void refuses_sizes_beyond_memory(void **state)
{
    const int64_t          most = 1 << 20;
    const dra_mixer_config c = {.dim = most,
                                .heads = most,
                                .key_dim = most,
                                .a = {"ema", .ema.timescales = most, .gamma = {DRA_PER_CHANNEL}}};
    dra_mixer             *m = NULL;
    dra_error              err = {0};
    expect_refused(dra_mixer_create(&c, &m, &err), &err, DRA_ERR_MEMORY,
                   "tensor beta_k: out of memory");
    assert_null(m);
}

/* ---- choices --------------------------------------------------------------------------------- */

static const bad choices[] = {
    {{SIZES, .shift = (dra_shift_kind)5}, 0, "mixer: shift is 5, expected 0 to 4"},
    {{SIZES, .shift = (dra_shift_kind)-1}, 0, "mixer: shift is -1, expected 0 to 4"},
    {{SIZES, .blend = (dra_blend_kind)4}, 0, "mixer: blend is 4, expected 0 to 3"},
    {{SIZES, .attention.softcap_late = true}, 0, "mixer: softcap_late without softcap"},
    {{SIZES, .attention.sink = true, .a = {"delta"}},
     0,
     "retrieval formula: sink is set, which only time, window have"},
    {{SIZES, .attention.forget = true, .a = {"gru", .retrieval = "joint"}},
     0,
     "retrieval joint: forget is set, which only time, window have"},
    {{SIZES, .attention.forget = true, .whole = true},
     0,
     "mixer: forget needs causal attention, not whole"},
    {{SIZES, .value_residual = (dra_value_residual)4},
     0,
     "mixer: value_residual is 4, expected 0 to 3"},
    {{SIZES, .value_residual = DRA_VALUES_LEARNED, .kv_heads = 1},
     0,
     "mixer: value_residual learned needs 3 kv_heads, one for each head, found 1"},
    {{SIZES, .latent.kv = -1}, 0, "mixer: latent_kv is -1, expected 0 to 1048576"},
    {{SIZES, .latent.kv = 5, .qk_norm = true},
     0,
     "mixer: latent_kv and qk_norm exclude each other"},
    {{SIZES, .latent.kv = 5, .attention.mem_kv = 1},
     0,
     "mixer: latent_kv and mem_kv exclude each other"},
    {{SIZES, .latent.q = 5, .bias = true}, 0, "mixer: latent_q and bias exclude each other"},
    {{SIZES, .latent.kv = 5, .latent.rope = 3},
     0,
     "mixer: latent_rope is 3, expected fewer than 3 heads, with latent_kv"},
    {{SIZES, .latent.rope = 1},
     0,
     "mixer: latent_rope is 1, expected fewer than 3 heads, with latent_kv"},
    {{SIZES, .latent.kv = 5, .rotary = true},
     0,
     "mixer: latent_kv with rotary needs latent_rope heads that alone rotate"},
    {{SIZES, .latent.kv = 5, .a = {"gru"}},
     0,
     "mixer: latent_kv needs memory append with retrieval time or window"},
    {{SIZES, .a = {"ema", .gamma.per = (dra_gamma_per)2}}, 0, "gamma.per is 2, expected 0 to 1"},
    {{SIZES, .a = {"ema", .gamma.start = (dra_gamma_start)3}},
     0,
     "gamma.start is 3, expected 0 to 2"},
    {{SIZES, .a = {"ema", .gamma.learn = (dra_switch)-1}}, 0, "gamma.learn is -1, expected 0 to 2"},
    {{SIZES, .a = {"append", .cell.per_head = true}},
     0,
     "append: per_head is set, which only gru, lstm, slots have"},
    {{SIZES, .a = {"ema", .cell.per_head = true}},
     0,
     "ema: per_head is set, which only gru, lstm, slots have"},
    {{SIZES, .a = {"wkv", .cell.per_head = true}},
     0,
     "wkv: per_head is set, which only gru, lstm, slots have"},
    {{SIZES, .a = {"append", .joined = true}},
     0,
     "append: there is no state that keys and values could share"},
    {{SIZES, .a = {"wkv", .joined = true}}, 0, "wkv: keys and values cannot share one state"},
    {{SIZES, .a = {"moment", .joined = true}}, 0, "moment: keys and values cannot share one state"},
    {{SIZES, .a = {"delta", .joined = true}}, 0, "delta: keys and values cannot share one state"},
    {{SIZES, .a = {"slots", .joined = true}}, 0, "slots: keys and values cannot share one state"},
    {{SIZES, .a = {"moment", .moment.phi = (dra_phi_kind)5}},
     0,
     "moment: phi is 5, expected 0 to 4"},
    {{SIZES, .a = {"moment", .lambda.decay = (dra_decay_kind)3}},
     0,
     "moment: decay is 3, expected 0 to 2"},
    {{SIZES, .a = {"gru", .lambda.decay = DRA_DECAY_FIXED}},
     0,
     "gru: decay is set, which only moment, delta have"},
    {{SIZES, .a = {"moment", .moment.phi = DRA_PHI_IDENTITY, .moment.normalise = DRA_ON}},
     0,
     "moment: phi identity has no normalisation"},
    {{SIZES, .a = {"moment", .moment.phi = DRA_PHI_EXP, .moment.normalise = DRA_OFF}},
     0,
     "moment: phi exp and favor need normalisation"},
    {{SIZES, .a = {"moment", .gamma = {DRA_PER_CHANNEL}}},
     0,
     "moment: gamma is per channel, but there is no decay"},
    {{SIZES, .a = {"delta", .gamma = {DRA_PER_CHANNEL}}},
     0,
     "delta: gamma is per channel, but there is no decay"},
    {{SIZES, .a = {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_FIXED,
                   .gamma = {DRA_PER_CHANNEL}}},
     0,
     "moment: gamma is per head with phi exp and favor, found per channel"},
    {{SIZES, .a = {"moment", .lambda.decay_form = DRA_FORM_EXP}},
     0,
     "moment: decay_form is set, but there is no decay"},
    {{SIZES,
      .a = {"moment", .lambda.decay = DRA_DECAY_DATA, .lambda.decay_form = (dra_decay_form)4}},
     0,
     "moment: decay_form is 4, expected 0 to 3"},
    {{SIZES, .a = {"ema", .lambda.decay_form = DRA_FORM_EXP}},
     0,
     "ema: decay_form is set, which only moment, delta have"},
    {{SIZES, .a = {"delta", .lambda.decay = DRA_DECAY_FIXED, .lambda.decay_rank = 2}},
     0,
     "delta: decay_rank is 2, which only decay data has"},
    {{SIZES, .a = {"moment", .lambda.bonus = DRA_BONUS_HEAD}},
     0,
     "moment: bonus and normalisation exclude each other"},
    {{SIZES, .a = {"moment", .moment.phi = DRA_PHI_IDENTITY, .lambda.bonus_exp = true}},
     0,
     "moment: bonus_exp is set, but there is no bonus"},
    {{SIZES, .a = {"gru", .lambda.bonus = DRA_BONUS_HEAD}},
     0,
     "gru: bonus is set, which only moment, delta have"},
    {{SIZES, .a = {"delta", .lambda.bonus = DRA_BONUS_CHANNEL}},
     0,
     "delta: bonus is set, which only transition diagonal has"},
    {{SIZES, .conv.width = 9, .a = {"delta"}}, 0, "mixer: conv is 9, expected 0 to 8"},
    {{SIZES, .conv.width = 1, .a = {"delta"}}, 0, "mixer: conv is 1, expected 2 to 8"},
    {{SIZES, .conv.bias = true, .a = {"delta"}},
     0,
     "mixer: conv_bias is set, but there is no conv"},
    {{SIZES, .conv.width = 4, .a = {"gru"}},
     0,
     "mixer: conv is set, which only moment and delta have, found gru"},
    {{SIZES, .key_heads = 1},
     0,
     "mixer: key_heads is set, which only moment and delta have, found append"},
    {{SIZES, .key_heads = 2, .a = {"delta"}}, 0, "mixer: key_heads 2 do not divide 3 heads"},
    {{SIZES, .key_heads = 1, .kv_heads = 1, .a = {"delta"}},
     0,
     "mixer: key_heads and kv_heads exclude each other"},
    {{SIZES, .out_norm.groups = 2, .a = {"delta"}},
     0,
     "mixer: out_norm_groups is set, but there is no out_norm"},
    {{SIZES, .out_norm.place = DRA_OUT_NORM_AFTER, .a = {"delta"}},
     0,
     "mixer: out_norm is after, but there is no gate"},
    {{SIZES, .out_norm = {DRA_OUT_NORM_BEFORE, 5}, .a = {"delta"}},
     0,
     "mixer: out_norm_groups 5 do not divide the 12 channels of all heads"},
    {{SIZES, .out_norm.place = DRA_OUT_NORM_BEFORE, .a = {"delta", .head_norm = DRA_ON}},
     0,
     "mixer: out_norm and head_norm exclude each other"},
    {{SIZES, .a = {"moment", .lambda.decay = DRA_DECAY_DATA, .lambda.rate_values = true}},
     0,
     "moment: rate_values is set, which only decay_form softplus has"},
    {{SIZES, .a = {"delta", .lambda.decay = DRA_DECAY_DATA, .lambda.decay_form = DRA_FORM_SOFTPLUS,
                   .lambda.rate_values = true}},
     0,
     "delta: rate_values is set, which only moment has"},
    {{SIZES,
      .a = {"delta", .lambda.decay = DRA_DECAY_FIXED, .lambda.decay_form = DRA_FORM_SOFTPLUS}},
     0,
     "delta: decay_form softplus is of heads, by data and a full matrix, found decay fixed"},
    {{SIZES, .a = {"delta", .delta.strength = 2, .delta.transition = DRA_TRANSITION_DIAGONAL}},
     0,
     "delta: strength is set, which transition diagonal has not"},
    {{SIZES, .a = {"delta", .delta.strength = 3}}, 0, "delta: strength is 3, expected 0 to 2"},
    {{SIZES, .a = {"delta", .delta.rate_rank = 2}},
     0,
     "delta: rate_rank is set, which only transition diagonal has"},
    {{SIZES,
      .a = {"delta", .delta.transition = DRA_TRANSITION_DIAGONAL, .lambda.bonus = DRA_BONUS_HEAD}},
     0,
     "delta: bonus is per channel, found per head"},
    {{SIZES, .a = {"delta", .delta.transition = (dra_transition_kind)2}},
     0,
     "delta: transition is 2, expected 0 to 1"},
    {{SIZES, .a = {"moment", .delta.transition = DRA_TRANSITION_DIAGONAL}},
     0,
     "moment: transition is set, which only delta has"},
    {{SIZES, .a = {"delta", .head_norm_eps = 1e-3}},
     0,
     "delta: head_norm_eps is set, but head_norm is off"},
    {{SIZES, .a = {"delta", .head_norm = DRA_ON, .head_norm_eps = -1}},
     0,
     "delta: head_norm_eps is -1, expected 0 to 1"},
    {{SIZES, .shift = DRA_SHIFT_DATA}, 0, "mixer: shift_rank is 0, expected 1 to 1048576"},
    {{SIZES, .shift = DRA_SHIFT_LERP, .shift_rank = 2},
     0,
     "mixer: shift_rank is 2, but only shift data has one"},
    {{SIZES, .gate_values = DRA_GATE_RANK}, 0, "mixer: gate_rank is 0, expected 1 to 1048576"},
    {{SIZES, .gate_values = DRA_GATE_SILU, .gate_rank = 2},
     0,
     "mixer: gate_rank is 2, but only gate_values low-rank and plain have one"},
    {{SIZES, .value_rank = 2},
     0,
     "mixer: value_rank is 2, but only value_residual channel has one"},
    {{SIZES, .a = {"slots", .gamma = {DRA_PER_CHANNEL}}},
     0,
     "slots: gamma is per slot, found per channel"},
    {{SIZES, .a = {"slots", .slots.gate = (dra_gate_kind)4}},
     0,
     "slots: gate is 4, expected 0 to 3"},
    {{SIZES, .a = {"slots", .slots.slot_decay = true}}, 0, "slots: slot_decay is for routed gates"},
    {{SIZES, .a = {"slots", .cell.per_head = true}},
     0,
     "slots: per_head asks for cells, which only candidate gru has"},
    {{SIZES, .a = {"ema", .head_norm = (dra_switch)3}}, 0, "ema: head_norm is 3, expected 0 to 2"},
    {{SIZES, .a = {"ema", .retrieval = "joint", .joint = (dra_slots_kind)2}},
     0,
     "ema: joint is 2, expected 0 to 1"},
    {{SIZES, .a = {"ema", .joint = DRA_SLOTS_ALL}}, 0, "ema: joint is 1, but retrieval is time"},
    {{SIZES, .a = {"ema", .retrieval = "pooled"}, .blend = DRA_BLEND_NUMBER, .blend_value = 0.5,
      .b = {"gru"}},
     0,
     "mixer: pooled blends only with pooled"},
    {{SIZES, .value_dim = 5, .a = {"wkv"}}, 0, "wkv: keys of 4 and values of 5 channels differ"},
    {{SIZES, .value_dim = 5, .a = {"shortconv"}},
     0,
     "shortconv: keys of 4 and values of 5 channels differ"},
    {{SIZES, .a = {"shortconv", .shortconv.taps = 1}}, 0, "shortconv: taps is 1, expected 2 to 8"},
    {{SIZES, .a = {"shortconv", .shortconv.taps = 9}}, 0, "shortconv: taps is 9, expected 0 to 8"},
    {{SIZES, .a = {"shortconv", .joined = true}},
     0,
     "shortconv: keys and values cannot share one state"},
    {{SIZES, .a = {"wkv", .shortconv.taps = 3}}, 0, "wkv: taps is set, which only shortconv has"},
    {{SIZES, .rotary = true, .a = {"gru", .retrieval = "none"}},
     0,
     "retrieval none: rotary is set, which only time, window, joint have"},
    {{SIZES, .rotary = true, .a = {"wkv"}},
     0,
     "retrieval formula: rotary is set, which only time, window, joint have"},
    {{SIZES, .score_scale = 2, .a = {"gru", .retrieval = "none"}},
     0,
     "retrieval none: score_scale is set, which only time, window, joint, slots-own, "
     "slots-all, pooled have"},
    {{SIZES, .score_scale = 2, .a = {"delta"}},
     0,
     "retrieval formula: score_scale is set, which only time, window, joint, slots-own, "
     "slots-all, pooled have"},
    {{SIZES, .qk_norm = true, .a = {"gru", .retrieval = "none"}},
     0,
     "retrieval none: qk_norm is set, which only time, window, formula, joint, "
     "slots-own, slots-all, pooled have"},
    {{SIZES, .blend_value = 0.5}, 0, "mixer: blend_value is 0.5 without a blend"},
    {{SIZES, .a = {"append", .gamma.depth = {0, 2}}},
     0,
     "append: gamma.depth is set, but it has no gamma"},
    {{SIZES, .a = {"slots", .slots.count = 2, .gamma.learn = DRA_OFF}},
     0,
     "slots: gamma.learn is set, but it has no gamma"},
    {{SIZES, .a = {"moment", .lambda.decay = DRA_DECAY_DATA, .gamma.learn = DRA_OFF}},
     0,
     "moment: gamma.learn is off, but decay data is learned"},
    {{SIZES, .a = {"gru", .gamma.share = true}}, 0, "gru: gamma.share is set, which only ema has"},
    {{SIZES, .a = {"ssm", .gamma = {DRA_PER_CHANNEL}}},
     0,
     "ssm: gamma is per mode, found per channel"},
    {{SIZES, .attention_dropout = 0.1, .a = {"slots"}},
     0,
     "mixer: attention_dropout needs a retrieval over time, found slots-own"},
    {{SIZES, .attention_dropout = 0.1, .a = {"moment"}},
     0,
     "mixer: attention_dropout needs a retrieval over time, found formula"},
};

/* ---- the stability kit and what is shown ----------------------------------------------------- */

#define AUX(kind) .aux = 1u << DRA_AUX_##kind

static const bad kit[] = {
    {{SIZES, .a = {"moment", .norm = true}},
     0,
     "moment: norm is for items and slots, but retrieval is formula"},
    {{SIZES, .a = {"wkv", .norm = true}},
     0,
     "wkv: norm is for items and slots, but retrieval is formula"},
    {{SIZES, .a = {"gru", .norm_kind = DRA_ITEM_LAYER}},
     0,
     "gru: norm_kind is set, but norm is off"},
    {{SIZES, .a = {"gru", .norm = true, .norm_kind = (dra_item_norm)2}},
     0,
     "gru: norm_kind is 2, expected 0 to 1"},
    {{SIZES, .a = {"moment", .maps = true}},
     0,
     "moment: maps are for items and slots, but retrieval is formula"},
    {{SIZES, .a = {"wkv", .maps = true}},
     0,
     "wkv: maps are for items and slots, but retrieval is formula"},
    {{SIZES, .a = {"ema", .joined = true, .dim = 3, .maps = true}},
     0,
     "ema: maps is set, but dim brings maps of its own"},
    {{SIZES, .a = {"gru", .pi = true}}, 0, "gru: pi is for reading slots, but retrieval is time"},
    {{SIZES, .a = {"ema", .retrieval = "none", .pi = true}},
     0,
     "ema: pi is for reading slots, but retrieval is none"},
    {{SIZES, .a = {"delta", .pi = true}},
     0,
     "delta: pi is for reading slots, but retrieval is formula"},
    {{SIZES, .a = {"gru", .cell.recurrent = (dra_recurrent_kind)4}},
     0,
     "gru: recurrent is 4, expected 0 to 3"},
    {{SIZES, .a = {"ema", .cell.recurrent = DRA_RECURRENT_SPECTRAL}},
     0,
     "ema: recurrent is set, which only gru, lstm, slots have"},
    {{SIZES, .a = {"slots", .slots.count = 2, .cell.recurrent = DRA_RECURRENT_WEIGHT}},
     0,
     "slots: recurrent is 2, but only candidate gru has recurrent matrices"},
    {{SIZES, .a = {"gru"}, .aux = 256}, 0, "mixer: aux is 0x100, expected bits below 0x100"},
    {{SIZES, AUX(DRIFT)}, 0, "mixer: aux asks for drift, which append does not have"},
    {{SIZES, AUX(SIZE)}, 0, "mixer: aux asks for size, which append does not have"},
    {{SIZES, AUX(BUDGET), .a = {"moment", .lambda.decay = DRA_DECAY_DATA}},
     0,
     "mixer: aux asks for budget, which moment does not have"},
    {{SIZES, AUX(DIVERSITY), .a = {"wkv"}},
     0,
     "mixer: aux asks for diversity, which wkv does not have"},
    {{SIZES, AUX(ENTROPY), .a = {"ema", .retrieval = "slots-own"}},
     0,
     "mixer: aux asks for entropy, which ema does not have"},
    {{SIZES, AUX(SPECTRAL), .a = {"slots"}, .blend = DRA_BLEND_LEARNED, .b = {"ema"}},
     0,
     "mixer: aux asks for spectral, which slots with ema does not have"},
    {{SIZES, .maps = true, .a = {"delta"}},
     0,
     "mixer: maps are of attention and slots, but retrieval is formula"},
    {{SIZES, .maps = true, .a = {"gru", .retrieval = "none"}},
     0,
     "mixer: maps are of attention and slots, but retrieval is none"},
};

static void refuses_what_is_not_there(void **state) { expect_all_refused(COUNT(kit), kit); }

static void refuses_wrong_choices(void **state) { expect_all_refused(COUNT(choices), choices); }

static const bad gammas[] = {
    {{SIZES, .a = {"ema", .gamma = {.start = DRA_GAMMA_CONST}}},
     0,
     "gamma.value is 0, expected 0 < gamma < 1"},
    {{SIZES, .a = {"ema", .gamma.value = 0.5}},
     0,
     "gamma.value is 0.5, but gamma.init is not const"},
    {{SIZES, .a = {"ema", .gamma = {.start = DRA_GAMMA_CONST, .value = 0.5, .ranged = true}}},
     0,
     "gamma.range is set, but gamma.init is const"},
    {{SIZES, .a = {"ema", .gamma = {.start = DRA_GAMMA_CONST, .value = 1}}},
     0,
     "gamma.value is 1, expected 0 < gamma < 1"},
    {{SIZES, .a = {"gru", .gamma = {.start = DRA_GAMMA_CONST, .value = -0.5}}},
     0,
     "gamma.value is -0.5, expected 0 < gamma < 1"},
    {{SIZES, .a = {"gru", .gamma = {.start = DRA_GAMMA_CONST, .value = NAN}}},
     0,
     "gamma.value is nan, expected 0 < gamma < 1"},
    {{SIZES, .a = {"ema", .gamma = {.ranged = true, .range = {0, INFINITY}}}},
     0,
     "gamma.range is 0, inf, expected -64 to 64"},
    {{SIZES, .a = {"ema", .gamma = {.ranged = true, .range = {-65, 4}}}},
     0,
     "gamma.range is -65, 4, expected -64 to 64"},
    {{SIZES, .a = {"ema", .gamma = {.ranged = true, .range = {8, 1}}}},
     0,
     "gamma.range is 8, 1, expected the lower one first"},
    {{SIZES, .a = {"ema", .gamma.depth = {NAN, 0}}},
     0,
     "gamma.depth is nan, 0, expected -64 to 64"},
    {{SIZES, .a = {"ema", .gamma = {.layer = 2, .layers = 2}}}, 0, "gamma.layer is 2 of 2 layers"},
    {{SIZES, .a = {"ema", .gamma = {.layer = -1, .layers = 2}}},
     0,
     "gamma.layer is -1 of 2 layers"},
    {{SIZES, .a = {"ema", .gamma.layers = -1}}, 0, "gamma.layer is 0 of -1 layers"},
    {{SIZES, .value_dim = 5, .a = {"ema", .gamma = {DRA_PER_CHANNEL, .share = true}}},
     0,
     "ema: a gamma per channel for keys and values needs equal widths, found 4 and 5"},
    {{SIZES, .value_dim = 5, .a = {"gru", .gamma = {DRA_PER_CHANNEL}}},
     0,
     "gru: a gamma per channel for keys and values needs equal widths, found 4 and 5"},
};

static void refuses_wrong_gammas(void **state) { expect_all_refused(COUNT(gammas), gammas); }

static const bad sums[] = {
    /* blends and residuals */
    {{SIZES, .blend = DRA_BLEND_NUMBER, .blend_value = 1.5, .b = {"ema"}},
     0,
     "mixer: blend_value is 1.5, expected 0 to 1"},
    {{SIZES, .blend = DRA_BLEND_NUMBER, .blend_value = -0.1, .b = {"ema"}},
     0,
     "mixer: blend_value is -0.1, expected 0 to 1"},
    {{SIZES, .blend = DRA_BLEND_NUMBER, .blend_value = NAN, .b = {"ema"}},
     0,
     "mixer: blend_value is nan, expected 0 to 1"},
    {{SIZES, .b = {"ema"}}, 0, "mixer: a second memory without a blend"},
    {{SIZES, .gives_memory = true, .a = {"wkv"}},
     0,
     "mixer: memory_residual needs a memory of items, found wkv"},
};

static void refuses_wrong_sums(void **state) { expect_all_refused(COUNT(sums), sums); }

/* What stands around a mixer. */
static void refuses_wrong_blocks(void **state)
{
    const struct {
        dra_sublayer_config config;
        const char         *text;
    } cases[] = {
        {{.norm.kind = DRA_NORM_NONE, .block.norm = DRA_PLACE_POST, .mixer = {SIZES}},
         "mixer: a norm after the residual needs a norm"},
        {{.block = {.memory_residual = true, .residual = DRA_JOIN_NONE},
          .mixer = {SIZES, .a = {"gru"}}},
         "mixer: memory_residual without a residual"},
        {{.block.project = true, .mixer = {SIZES, .a = {"gru"}}},
         "mixer: project without memory_residual"},
        {{.block.memory_residual = true, .mixer = {SIZES, .a = {"wkv"}}},
         "mixer: memory_residual needs a memory of items, found wkv"},
        {{.block.memory_residual = true, .mixer = {SIZES, .value_dim = 5, .a = {"gru"}}},
         "mixer: memory_residual without project: 3 heads of 5 channels are not dim 12"},
        {{.block = {.norm = DRA_PLACE_POST, .branch_norm = true}, .mixer = {SIZES}},
         "block: branch_norm needs norm pre or none"},
        {{.block.dual_scale = 0.5, .mixer = {SIZES}}, "block: dual_scale without norm dual"},
        {{.block.branch_scale_start = 0.5, .mixer = {SIZES}},
         "block: branch_scale_start without branch_scale"},
        {{.block.streams = 65, .mixer = {SIZES}}, "block: streams is 65, expected 0 to 64"},
        {{.block = {.streams = 2, .residual = DRA_JOIN_GRU}, .mixer = {SIZES}},
         "block: streams and another residual than add exclude each other"},
        {{.block = {.streams = 2, .residual_scale = true}, .mixer = {SIZES}},
         "block: streams and residual_scale exclude each other"},
        {{.block = {.streams = 2, .norm = DRA_PLACE_DUAL}, .mixer = {SIZES}},
         "block: streams and norm dual exclude each other"},
        {{.block.shift = 12, .mixer = {SIZES}}, "block: shift is 12, but there are 12 channels"},
        {{.block.drop = 1, .mixer = {SIZES}}, "block: drop is 1, expected 0 <= p < 1"},
        {{.kind = DRA_SUBLAYER_FF,
          .ff = {.kind = DRA_FF_MIX, .dim = 8, .gated = true},
          .mixer = {SIZES}},
         "ff: kind mix has no gate"},
        {{.norm.kind = (dra_norm_kind)5, .mixer = {SIZES}}, "norm: kind is 5, expected 0 to 4"},
        {{.block.residual = (dra_join_kind)-1, .mixer = {SIZES}},
         "block: residual is -1, expected 0 to 2"},
        {{.kind = DRA_SUBLAYER_FF, .mixer = {SIZES}}, "ff: dim is 0, expected 1 to 1048576"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_error        err = {0};
        dra_sublayer    *s = (dra_sublayer *)&err; /* must be cleared */
        const dra_status st = dra_sublayer_create(&cases[i].config, &s, &err);
        expect_refused(st, &err, DRA_ERR_VALUE, cases[i].text);
        assert_null(s);
    }
}

/* ---- tables from outside --------------------------------------------------------------------- */

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    dra_specs_add(params, prefix, &(dra_spec){.name = "W_q"}); /* a name the mixer has already */
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r) {}

static void refuses_incomplete_tables(void **state)
{
    static const char *const none[] = {NULL}, *const wrong[] = {"sideways", NULL},
                             *const time[] = {"time", NULL};
    const dra_memory                tables[] = {
                       {NULL, time, NULL, declare, step},   {"mine", NULL, NULL, declare, step},
                       {"mine", none, NULL, declare, step}, {"mine", time, NULL, NULL, step},
                       {"mine", time, NULL, declare, NULL}, {"mine", wrong, NULL, declare, step},
                       {"mine", time, NULL, declare, step},
    };
    const char needs[] = "memory mine: a table needs name, retrievals, declare, step";
    const bad  cases[] = {
         {{SIZES, .a = {.own = &tables[0]}},
          0,
          "memory without a name: a table needs name, retrievals, declare, step"},
         {{SIZES, .a = {.own = &tables[1]}}, 0, needs},
         {{SIZES, .a = {.own = &tables[2]}}, 0, needs},
         {{SIZES, .a = {.own = &tables[3]}}, 0, needs},
         {{SIZES, .a = {.own = &tables[4]}}, 0, needs},
         {{SIZES, .a = {.own = &tables[5]}},
          DRA_ERR_NAME,
          "memory mine: no retrieval is called sideways"},
         {{SIZES, .a = {.own = &tables[6]}}, DRA_ERR_NAME, "tensor W_q: the name is used twice"},
    };
    expect_all_refused(COUNT(cases), cases);
}

/* A step that forgets an item is named when the first text is read. */
static void declare_nothing(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                            dra_specs *state)
{}

static void remember_nothing(dra_graph *g, const dra_memory_call *c, dra_memory_result *r) {}

static void refuses_steps_without_items(void **state)
{
    static const char *const time[] = {"time", NULL};
    const dra_memory         mine = {"mine", time, NULL, declare_nothing, remember_nothing};
    const dra_real           x[12] = {0};
    dra_error                err = {0};
    reading                  r = open_reading(&(dra_mixer_config){SIZES, .a = {.own = &mine}});
    dra_states              *s = new_states(r.module->state, 1);
    const dra_named          in = {"x", (void *)x, sizeof x};
    expect_refused(dra_reader_read(r.reader, s, 1, NULL, 1, &in, &err), &err, DRA_ERR_VALUE,
                   "mine: the step sets no item[0]");
    dra_states_destroy(s);
    close_reading(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_unknown_names),       cmocka_unit_test(knows_every_pair),
        cmocka_unit_test(refuses_wrong_sizes),         cmocka_unit_test(refuses_wrong_choices),
        cmocka_unit_test(refuses_sizes_beyond_memory), cmocka_unit_test(refuses_wrong_gammas),
        cmocka_unit_test(refuses_wrong_sums),          cmocka_unit_test(refuses_wrong_blocks),
        cmocka_unit_test(refuses_incomplete_tables),   cmocka_unit_test(refuses_what_is_not_there),
        cmocka_unit_test(refuses_steps_without_items),
    };
    return check_main("config", NULL, 0, tests, COUNT(tests));
}
