/* The config of a model as tables: what JSON may say, and which field it fills. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dra/model.h"
#include "file/fail.h"
#include "file/fields.h"
#include "model/compose.h"
#include "formats/format.h"
#include "model/model.h"

/* ---- names ----------------------------------------------------------------------------------- */

#define DRA_MEMORY(name) #name,
static const char *const memories[] = {
#include "memory/memory.def"
    NULL};
#undef DRA_MEMORY
static const char *const retrievals[] = {"time", "window", "slots-own", "slots-all", "pooled",
                                         "none", "joint",  "formula",   NULL};
static const char *const per[] = {"head", "channel", NULL};
static const char *const starts[] = {"halflife", "efold", "const", NULL};
static const char *const phis[] = {"elu1", "relu", "exp", "favor", "identity", NULL};
static const char *const decays[] = {"none", "fixed", "data", NULL};
static const char *const decay_forms[] = {"sigmoid", "exp", "bounded", NULL};
static const char *const bonuses[] = {"none", "head", "channel", NULL};
static const char *const transitions[] = {"strength", "diagonal", NULL};
static const char *const gates[] = {"default", "fixed", "routed", "gated", NULL};
static const char *const candidates[] = {"token", "gru", NULL};
static const char *const recurrents[] = {"plain", "spectral", "weight", NULL};
static const char *const whose[] = {"own", "all", NULL};
static const char *const shifts[] = {"none", "half", "mix", "lerp", "data", NULL};
static const char *const blends[] = {"none", "number", "schedule", "learned", NULL};
static const char *const positions[] = {"none", "learned", NULL};
static const char *const norms[] = {"rms", "layer", "unit", NULL};
static const char *const gains[] = {"channel", "scalar", "none", "condition", NULL};
static const char *const places[] = {"pre", "post", "dual", NULL};
static const char *const joins[] = {"add", "gru", NULL};
static const char *const inners[] = {"gelu", "erf",  "relu", "relu2", "swiglu",
                                     "mix",  "none", "silu", NULL};
static const char *const ff_biases[] = {"default", "all", "none", "in", NULL};
static const char *const head_maps[] = {"div", "mod", NULL};
static const char *const qkv_norms[] = {"rms", "layer", "unit", NULL};
static const char *const qkv_gains[] = {"shared", "heads", "none", NULL};
static const char *const value_gates[] = {"none", "biased", "plain", "silu", "low-rank", NULL};
static const char *const value_residuals[] = {"none", "half", "learned", "channel", NULL};
static const char *const rotates[] = {"none", "rotary", "xpos", NULL};
static const char *const distances[] = {"none", "t5", "dynamic", "alibi", NULL};
static const char *const visibles[] = {"causal", "bidirectional", "prefix", NULL};
static const char *const embed_norms[] = {"same", "layer", NULL};
static const char *const inits[] = {"normal", "uniform", NULL};
static const char *const letters[] = {"afc", NULL};
static const char *const source_kinds[] = {"tokens", "vectors", "image", NULL};
static const char *const head_kinds[] = {"tokens", "classes", "vectors", "none", NULL};
static const char *const name_letters[] = {"abcdefghijklmnopqrstuvwxyz_0123456789", NULL};

/* ---- tables ---------------------------------------------------------------------------------- */

enum { MOST = 1 << 20 }; /* of every size */

/* Rows of the tables below: `start` says what a key that is not there stands for. */
#define INT(s, f, start, text)                                                                     \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_INT, .offset = offsetof(s, f), .max = MOST, .unset = start,  \
        .about = text                                                                              \
    }
#define REAL(s, f, lo, hi, start, text)                                                            \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_REAL, .offset = offsetof(s, f), .min = lo, .max = hi,        \
        .unset = start, .about = text                                                              \
    }
#define BOOL(s, f, text)                                                                           \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_BOOL, .offset = offsetof(s, f), .unset = "false",            \
        .about = text                                                                              \
    }
#define SWITCH(s, f, start, text)                                                                  \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_SWITCH, .offset = offsetof(s, f), .unset = start,            \
        .about = text                                                                              \
    }
#define CHOICE(s, f, list, text)                                                                   \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_CHOICE, .offset = offsetof(s, f), .choices = list,           \
        .about = text                                                                              \
    }
#define NAME(s, f, list, start, text)                                                              \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_NAME, .offset = offsetof(s, f), .choices = list,             \
        .unset = start, .about = text                                                              \
    }
#define OBJECT(s, f, table, text)                                                                  \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_OBJECT, .offset = offsetof(s, f), .fields = table,           \
        .about = text                                                                              \
    }

#define GAMMA(f) offsetof(dra_gamma_config, f)
static const dra_field gamma_fields[] = {
    CHOICE(dra_gamma_config, per, per,
           "what has a decay of its own: a head, or each of its channels"),
    {.name = "init",
     .kind = DRA_FIELD_CHOICE,
     .offset = GAMMA(start),
     .choices = starts,
     .about = "range is of half-lives, of times 1 / ln(1 / gamma), or all are value"},
    REAL(dra_gamma_config, value, 0, 1, "none", "gamma of all, with init const"),
    {.name = "range",
     .kind = DRA_FIELD_PAIR,
     .offset = GAMMA(range),
     .given = GAMMA(ranged),
     .unset = "by the retrieval",
     .about = "log2 of the shortest and the longest of them, in tokens"},
    {.name = "depth",
     .kind = DRA_FIELD_PAIR,
     .offset = GAMMA(depth),
     .unset = "[0, 0]",
     .about = "log2 of how much longer they are in the first and the last layer"},
    SWITCH(dra_gamma_config, learn, "true", "decays are trained"),
    BOOL(dra_gamma_config, share, "ema: keys and values have the same decays"),
    {0},
};

static const dra_field memory_fields[] = {
    {.name = "memory",
     .kind = DRA_FIELD_NAME,
     .offset = offsetof(dra_memory_config, memory),
     .choices = memories,
     .given = offsetof(dra_memory_config, own),
     .also = "attention",
     .unset = "append",
     .about =
         "what is kept of the past; append, or attention: all of it, as softmax attention does"},
    NAME(dra_memory_config, retrieval, retrievals, "the first that the memory has",
         "how a query reads what is kept"),
    INT(dra_memory_config, window, "none", "retrieval window: how many of the last items it sees"),
    OBJECT(dra_memory_config, gamma, gamma_fields, NULL),
    BOOL(dra_memory_config, joined, "keys and values share one state"),
    INT(dra_memory_config, dim, "both widths", "joined: the width of that state"),
    SWITCH(dra_memory_config, head_norm, "true for moment without normalise",
           "normalise the output of each head"),
    CHOICE(dra_memory_config, joint, whose, "retrieval joint: slots of the own head, or of all"),
    BOOL(dra_memory_config, steps, "run token by token, by definition, instead of the fused form"),
    INT(dra_memory_config, timescales, "1", "ema: averages at several speeds"),
    INT(dra_memory_config, modes, "4", "ssm: modes of each channel"),
    BOOL(dra_memory_config, per_head, "gru, lstm: a cell for each head"),
    CHOICE(dra_memory_config, phi, phis, "moment: feature map of queries and keys"),
    INT(dra_memory_config, features, "2 key_dim", "moment: features of favor"),
    SWITCH(dra_memory_config, normalise, "true but for identity",
           "moment: divide by the sum of the weights"),
    CHOICE(dra_memory_config, decay, decays,
           "moment, delta: none, learned numbers, or decided by each token"),
    INT(dra_memory_config, slots, "1", "slots: how many there are for each head"),
    CHOICE(dra_memory_config, gate, gates,
           "slots: how a write is shared among them; default: fixed for one slot, else routed"),
    CHOICE(dra_memory_config, candidate, candidates,
           "slots: what is written, the token or the output of a GRU"),
    REAL(dra_memory_config, tau, 0, 1e6, "4", "slots: temperature of routed gates"),
    BOOL(dra_memory_config, tau_learned, "slots: tau is trained"),
    BOOL(dra_memory_config, slot_decay, "slots: what is not written fades"),
    BOOL(dra_memory_config, pi, "slots are read through learned maps, the same for all heads"),
    BOOL(dra_memory_config, norm, "normalise items and slots as they are read"),
    CHOICE(dra_memory_config, recurrent, recurrents, "gru, lstm: bounds of the recurrent matrices"),
    BOOL(dra_memory_config, maps, "items and slots are read through learned maps of each head"),
    CHOICE(dra_memory_config, norm_kind, norms, "how norm does it"),
    CHOICE(dra_memory_config, decay_form, decay_forms,
           "moment, delta: how a decay is made of what is learned"),
    INT(dra_memory_config, decay_rank, "a full matrix",
        "moment, delta: rank of the map that makes decays"),
    CHOICE(dra_memory_config, bonus, bonuses,
           "moment, delta: learned weight of the token that reads itself"),
    BOOL(dra_memory_config, bonus_exp, "moment: that weight is e to the power of what is learned"),
    CHOICE(dra_memory_config, transition, transitions, "delta: its own rule, or that of RWKV-7"),
    INT(dra_memory_config, rate_rank, "a full matrix", "delta: rank of the map that makes rates"),
    REAL(dra_memory_config, head_norm_eps, 0, 1, "1e-5", "epsilon of head_norm"),
    {0},
};

static const dra_field mixer_fields[] = {
    INT(dra_mixer_config, heads, "the model's", "heads of this mixer"),
    INT(dra_mixer_config, key_dim, "dim / heads", "width of a head's queries and keys"),
    INT(dra_mixer_config, value_dim, "key_dim", "width of a head's values"),
    CHOICE(dra_mixer_config, shift, shifts,
           "how queries, keys and values also see the token before"),
    BOOL(dra_mixer_config, qk_norm, "normalise queries and keys"),
    BOOL(dra_mixer_config, v_norm, "normalise values"),
    REAL(dra_mixer_config, key_std, 0, 1e6, "1 / sqrt(dim)",
         "standard deviation of the initial key matrix"),
    BOOL(dra_mixer_config, rotary, "rotate queries and items by position"),
    REAL(dra_mixer_config, score_scale, 0, 1e6, "1 / sqrt(key_dim)", "factor of all scores"),
    {.name = "",
     .kind = DRA_FIELD_INLINE,
     .offset = offsetof(dra_mixer_config, a),
     .fields = memory_fields},
    CHOICE(dra_mixer_config, blend, blends,
           "add a second memory, mixer.b, with this kind of weight"),
    {.name = "blend_value",
     .kind = DRA_FIELD_REAL,
     .offset = offsetof(dra_mixer_config, blend_value),
     .max = 1,
     .given = offsetof(dra_mixer_config, blend_given),
     .unset = "0; of a schedule 0.7",
     .about = "weight of the first memory"},
    {.name = "b",
     .kind = DRA_FIELD_OBJECT,
     .offset = offsetof(dra_mixer_config, b),
     .fields = memory_fields,
     .about = "the second memory of a blend, with keys as mixer's: mixer.b.memory, ..."},
    INT(dra_mixer_config, kv_heads, "heads",
        "heads of keys and values, shared by those of queries"),
    CHOICE(dra_mixer_config, kv_order, head_maps,
           "kv_heads: query head h reads head h / (H/K), or h mod K"),
    CHOICE(dra_mixer_config, qkv_norm, qkv_norms, "how qk_norm and v_norm do it"),
    CHOICE(dra_mixer_config, qkv_gain, qkv_gains,
           "gains of qk_norm: shared by heads, one set for each, none"),
    REAL(dra_mixer_config, qk_gain_start, 0, 1e6, "1", "first value of these gains"),
    INT(dra_mixer_config, qk_groups, "1",
        "qkv_norm unit: parts of a head that are normalised by themselves"),
    INT(dra_mixer_config, mem_kv, "0", "learned keys and values that every query sees"),
    BOOL(dra_mixer_config, mem_whole, "mem_kv: their keys are normalised as a whole"),
    INT(dra_mixer_config, topk, "all", "only the k largest scores count"),
    BOOL(dra_mixer_config, topk_straight, "topk: the gradient is as if all counted"),
    BOOL(dra_mixer_config, hard, "only the largest score counts"),
    BOOL(dra_mixer_config, talk_before, "heads mix their scores"),
    BOOL(dra_mixer_config, talk_after, "heads mix their weights"),
    BOOL(dra_mixer_config, residual_scores, "add the scores of the attention sublayer before"),
    REAL(dra_mixer_config, softcap, 0, 1e6, "none", "scores s become c tanh(s / c)"),
    BOOL(dra_mixer_config, head_scale, "a learned factor for the output of each head"),
    CHOICE(dra_mixer_config, gate_values, value_gates, "multiply heads by a gate"),
    BOOL(dra_mixer_config, out_glu, "a gated linear unit at the output"),
    INT(dra_mixer_config, context_dim, "dim", "cross: width of the context"),
    BOOL(dra_mixer_config, softcap_late, "softcap comes after biases and residual scores"),
    BOOL(dra_mixer_config, sink, "attention sink: a learned logit of each head in the denominator"),
    CHOICE(dra_mixer_config, value_residual, value_residuals,
           "mix in the values of the first mixer that says so"),
    BOOL(dra_mixer_config, forget, "forgetting attention: scores decay by learned gates"),
    INT(dra_mixer_config, latent_kv, "none",
        "multi-latent attention: width of what keys and values are made of"),
    INT(dra_mixer_config, latent_q, "none", "latent_kv: width of what queries are made of"),
    INT(dra_mixer_config, latent_rope, "0",
        "latent_kv: heads whose keys are made of the token and rotate"),
    INT(dra_mixer_config, shift_rank, "none", "shift data: rank of its maps"),
    INT(dra_mixer_config, gate_rank, "none", "gate_values low-rank: its rank"),
    INT(dra_mixer_config, value_rank, "a full matrix", "value_residual channel: its rank"),
    {0},
};

static const dra_field block_fields[] = {
    CHOICE(dra_block_config, norm, places,
           "where the norm stands: before a sublayer, after it, or both ways"),
    BOOL(dra_block_config, memory_residual, "add the values of the memory to the stream"),
    BOOL(dra_block_config, project, "memory_residual: through a learned matrix"),
    BOOL(dra_block_config, branch_norm, "normalise what a sublayer adds, too"),
    CHOICE(dra_block_config, residual, joins,
           "add what a sublayer gives, or let a GRU cell take it in"),
    BOOL(dra_block_config, residual_scale, "a learned factor of the stream for each channel"),
    REAL(dra_block_config, dual_scale, 0, 1, "1", "norm dual: factor of its sum"),
    BOOL(dra_block_config, macaron, "feed-forwards add half"),
    INT(dra_block_config, shift, "0", "channels in shift + 1 parts, part i from i tokens before"),
    REAL(dra_block_config, drop, 0, 0.999, "0",
         "share of training steps in which a sublayer is left out"),
    BOOL(dra_block_config, branch_scale,
         "a learned factor of what a sublayer adds, for each channel"),
    REAL(dra_block_config, branch_scale_start, -1e6, 1e6, "0", "first value of these factors"),
    BOOL(dra_block_config, branch_scale_offset, "these factors are stored as factor - 1"),
    BOOL(dra_block_config, zero_out, "output matrices start as 0"),
    INT(dra_block_config, streams, "1", "residual streams (hyper-connections)"),
    BOOL(dra_block_config, branch_gate,
         "multiply what a sublayer adds by a gate made of the condition"),
    {0},
};

static const dra_field ff_fields[] = {
    CHOICE(dra_ff_config, kind, inners, "activation of feed-forwards"),
    INT(dra_ff_config, dim, "4 dim; swiglu: 8/3 dim, up to a multiple of 64", "inner width"),
    BOOL(dra_ff_config, gated, "a gated linear unit; swiglu is one anyway"),
    CHOICE(dra_ff_config, bias, ff_biases, "which matrices have biases"),
    BOOL(dra_ff_config, act_norm, "a layer norm after the activation"),
    REAL(dra_ff_config, dropout, 0, 0.999, "0", "dropout of the inner values, when training"),
    BOOL(dra_ff_config, lerp, "mix: mu is the share of the token before"),
    SWITCH(dra_ff_config, receptance, "true", "mix: multiply by a receptance gate"),
    {0},
};

static const dra_field position_fields[] = {
    CHOICE(dra_position_config, rotate, rotates, "rotate queries and keys by position"),
    INT(dra_position_config, width, "all", "rotate: channels of a head"),
    INT(dra_position_config, heads, "all", "rotate: the last heads only"),
    REAL(dra_position_config, base, 0, 1e12, "10000", "rotate: base of its frequencies"),
    REAL(dra_position_config, xpos_base, 0, 1e12, "512", "xpos: base of its scales"),
    CHOICE(dra_position_config, distance, distances, "what a distance adds to scores"),
    INT(dra_position_config, buckets, "32", "t5: buckets of distances"),
    INT(dra_position_config, max_distance, "128", "t5: distance from which on all are alike"),
    REAL(dra_position_config, distance_scale, 0, 1e6, "1", "t5: factor"),
    INT(dra_position_config, layers, "2", "dynamic: hidden layers of its network"),
    BOOL(dra_position_config, log, "dynamic: it sees the logarithm of the distance"),
    INT(dra_position_config, slopes, "all", "alibi: the first heads only"),
    REAL(dra_position_config, scale, 0, 1e6, "1", "factor of learned positions"),
    {0},
};

static const dra_field source_fields[] = {
    CHOICE(dra_source_config, kind, source_kinds, "what the model reads"),
    {.name = "input",
     .kind = DRA_FIELD_TEXT,
     .offset = offsetof(dra_source_config, input),
     .choices = name_letters,
     .most = DRA_STACK_NAME,
     .unset = "ids, x or img",
     .about = "name of the input"},
    INT(dra_source_config, dim, "dim", "vectors: their width"),
    INT(dra_source_config, length, "any", "vectors that are prepended: how many"),
    INT(dra_source_config, size, "required", "image: pixels of a side"),
    INT(dra_source_config, patch, "required", "image: pixels of a side of a patch"),
    INT(dra_source_config, channels, "3", "image: colours"),
    BOOL(dra_source_config, numbers, "tokens: numbers are a second input (xVal)"),
    INT(dra_source_config, number_token, "0", "numbers: the token that stands for a number"),
    BOOL(dra_source_config, shared, "tokens: the table is that of the context's stack"),
    {0},
};

static const char *const pools[] = {"mean", "cls", "last", NULL};
static const dra_field   head_fields[] = {
      CHOICE(dra_head_config, kind, head_kinds, "what the model puts out"),
      INT(dra_head_config, dim, "dim", "vectors: their width; classes: how many"),
      BOOL(dra_head_config, bias, "tokens, vectors: the head has a bias"),
      BOOL(dra_head_config, numbers, "tokens: put out numbers, too (xVal)"),
      CHOICE(dra_head_config, pool, pools, "classes: what stands for the text"),
      BOOL(dra_head_config, no_bias, "classes: the head has no bias"),
      {0},
};
static const dra_field condition_fields[] = {
    INT(dra_condition_config, dim, "dim", "width of the condition"),
    INT(dra_condition_config, expand, "as it is",
        "the condition becomes silu(W c), this many times as wide"),
    {0},
};
static const dra_field xl_fields[] = {
    INT(dra_xl_config, memory, "none",
        "Transformer-XL: positions of earlier segments that attention sees"),
    INT(dra_xl_config, down, "0", "it reads what came into the sublayer this many above"),
    {0},
};

#define MODEL(f) offsetof(dra_model_config, f)
#define NUMBERS(f, count, k, hi, start, text)                                                      \
    {                                                                                              \
        .name = #f, .kind = k, .offset = MODEL(f), .given = MODEL(count), .max = hi,               \
        .most = DRA_SUBLAYERS_MOST, .unset = start, .about = text                                  \
    }
static const dra_field model_fields[] = {
    INT(dra_model_config, vocab, "required", "tokens that the model knows"),
    INT(dra_model_config, dim, "required", "width of the stream"),
    INT(dra_model_config, depth, "required", "blocks"),
    INT(dra_model_config, heads, "1", "heads of attention"),
    INT(dra_model_config, key_dim, "dim / heads", "width of a head's queries and keys"),
    INT(dra_model_config, value_dim, "key_dim", "width of a head's values"),
    INT(dra_model_config, context, "256",
        "learned positions; tokens of a training row; with xl, of a segment"),
    CHOICE(dra_model_config, positions, positions,
           "learned positions that are added to the embedding"),
    CHOICE(dra_model_config, norm, norms, "kind of all norms"),
    BOOL(dra_model_config, bias, "biases in all projections"),
    SWITCH(dra_model_config, tied, "true", "the head shares the embedding"),
    BOOL(dra_model_config, embed_norm, "a norm after the embedding"),
    REAL(dra_model_config, norm_eps, 0, 1, "1e-5", "epsilon of norms"),
    REAL(dra_model_config, final_eps, 0, 1, "norm_eps", "epsilon of the last norm"),
    INT(dra_model_config, rescale_every, "never",
        "when reading, halve the stream every this many layers"),
    BOOL(dra_model_config, layer_scale, "divide the scores of layer l by l + 1"),
    REAL(dra_model_config, dropout, 0, 0.999, "0", "dropout of what sublayers add, when training"),
    REAL(dra_model_config, attention_dropout, 0, 0.999, "0",
         "dropout of attention weights, when training"),
    REAL(dra_model_config, embed_dropout, 0, 0.999, "0", "dropout of embeddings, when training"),
    {.name = "block", .kind = DRA_FIELD_OBJECT, .offset = MODEL(block), .fields = block_fields},
    {.name = "ff", .kind = DRA_FIELD_OBJECT, .offset = MODEL(ff), .fields = ff_fields},
    {.name = "mixer",
     .kind = DRA_FIELD_LIST,
     .offset = MODEL(mixer),
     .fields = mixer_fields,
     .given = MODEL(mixers),
     .size = sizeof(dra_mixer_config),
     .most = DRA_MIXERS_MOST},
    CHOICE(dra_model_config, norm_gain, gains,
           "gains of norms: for each channel, one for all, none, made of the condition"),
    SWITCH(dra_model_config, norm_bias, "true", "layer norms have biases"),
    BOOL(dra_model_config, norm_offset, "gains are stored as gain - 1"),
    {.name = "layout",
     .kind = DRA_FIELD_TEXT,
     .offset = MODEL(layout),
     .choices = letters,
     .most = DRA_SUBLAYERS_MOST + 1,
     .unset = "af; with a context acf",
     .about = "sublayers of a block: a attention, c attention over a context, f feed-forward"},
    INT(dra_model_config, sandwich, "0", "the first feed-forwards, this many, move to the end"),
    BOOL(dra_model_config, tied_layers, "one block of parameters, run depth times"),
    NUMBERS(order, n_order, DRA_FIELD_INTS, DRA_SUBLAYERS_MOST - 1, "all in order",
            "which sublayers run, from 0, in this order; repeats are allowed"),
    NUMBERS(shifts, n_shifts, DRA_FIELD_INTS, MOST, "block.shift", "block.shift of each sublayer"),
    NUMBERS(drops, n_drops, DRA_FIELD_REALS, 0.999, "block.drop", "block.drop of each sublayer"),
    CHOICE(dra_model_config, visible, visibles,
           "what a token sees: those before it, the whole text, a prefix and those before"),
    {.name = "position",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(position),
     .fields = position_fields},
    INT(dra_model_config, embed_dim, "dim", "width of the embedding, which is mapped to dim"),
    BOOL(dra_model_config, embed_unit, "rows of the embedding have length 1"),
    CHOICE(dra_model_config, embed_norm_kind, embed_norms,
           "embed_norm: as the other norms, or a layer norm"),
    INT(dra_model_config, memory_tokens, "0", "learned vectors that every text begins with"),
    CHOICE(dra_model_config, init, inits, "initial matrices: normal, or uniform as in PyTorch"),
    {.name = "source", .kind = DRA_FIELD_OBJECT, .offset = MODEL(source), .fields = source_fields},
    {.name = "head", .kind = DRA_FIELD_OBJECT, .offset = MODEL(head), .fields = head_fields},
    {.name = "cross",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(cross),
     .fields = mixer_fields,
     .about = "attention over a context, with keys as mixer's: cross.heads, ..."},
    {.name = "xl", .kind = DRA_FIELD_OBJECT, .offset = MODEL(xl), .fields = xl_fields},
    REAL(dra_model_config, output_softcap, 0, 1e6, "none",
         "what the layers put out becomes c tanh(x / c)"),
    {.name = "condition",
     .kind = DRA_FIELD_OBJECT,
     .offset = MODEL(condition),
     .fields = condition_fields},
    {0},
};

const dra_field *dra_model_fields(void) { return model_fields; }

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The format that model_type names; NULL: none, see the error. */
static const dra_format *format_of(const char *place, json_t *object, dra_error *err)
{
    const char       *type = json_string_value(json_object_get(object, "model_type"));
    const dra_format *f = dra_format_named(object);
    if (!json_is_object(object)) {
        dra_fail(err, DRA_ERR_FORMAT, "%.120s: JSON is no object", place);
        return NULL;
    }
    if (f) return f;
    dra_fail(err, DRA_ERR_VALUE,
             "%.120s: model_type is %.40s, expected dra, gpt2, rwkv, rwkv5, rwkv6, rwkv7 or "
             "x-transformers%s",
             place, type ? type : "missing",
             type ? "; other models, such as Llama, Qwen and Mamba, are not supported yet" : "");
    return NULL;
}

/* Of dra's own config, what is no field. */
static dra_status drop_others(const char *place, json_t *object, dra_error *err)
{
    const json_t *kept = json_object_get(object, DRA_KEPT_KEYS);
    if (kept && !json_is_object(kept))
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: " DRA_KEPT_KEYS " is no object", place);
    dra_json_delete(object, DRA_KEPT_KEYS);
    dra_json_delete(object, "model_type");
    return DRA_OK;
}

/* A dra_memory begins with its name, as what a dra_field_own lists does. */
static dra_status read_fields(const char *place, json_t *object, const dra_memory *const *own,
                              dra_model_config *out, dra_error *err)
{
    static_assert(offsetof(dra_memory, name) == 0, "a dra_field_own");
    return dra_fields_read_own(model_fields, place, object, (dra_field_own)own, out, err);
}

/* dra's own config: one stack, or several. */
static dra_status read_own(const char *place, json_t *object, const dra_memory *const *own,
                           dra_model_config *out, dra_error *err)
{
    const json_t *stacks = json_object_get(object, "stacks");
    if (!stacks) return read_fields(place, object, own, out, err);
    if (json_object_size(object) > 1)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: stacks: expected no other key but model_type next to it", place);
    return dra_stacks_read(place, stacks, read_fields, own, out, err);
}

dra_status dra_model_config_parse(const char *place, const char *text, size_t bytes,
                                  dra_model_config *out, dra_error *err)
{
    return dra_model_config_parse_own(place, text, bytes, NULL, out, err);
}

dra_status dra_model_config_parse_own(const char *place, const char *text, size_t bytes,
                                      const dra_memory *const *own, dra_model_config *out,
                                      dra_error *err)
{
    json_t   *object;
    dra_error why = {0};
    *out = (dra_model_config){0};
    dra_status st = dra_json_parse(place, text, bytes, (dra_json_rules){.depth = 16}, &object, err);
    if (st != DRA_OK) return st;
    const dra_format *f = format_of(place, object, &why);
    if (!f) {
        st = dra_fail(err, why.code, "%s", why.text);
    } else if (f->read) {
        st = dra_format_read(f, place, object, out, err);
    } else {
        st = drop_others(place, object, err);
        if (st == DRA_OK) st = read_own(place, object, own, out, err);
    }
    json_decref(object);
    return st;
}

dra_status dra_model_config_set(dra_model_config *config, const char *name, const char *value,
                                dra_error *err)
{
    const dra_model_config **others[] = {&config->context_stack, &config->prepend_stack};
    for (int i = 0; i < 2; i++) {
        const size_t n = *others[i] ? strlen((*others[i])->name) : 0;
        if (!n || strncmp(name, (*others[i])->name, n) != 0 || name[n] != '.') continue;
        dra_model_config        other = **others[i];
        const dra_status        st = dra_model_config_set(&other, name + n + 1, value, err);
        const dra_model_config *same = st == DRA_OK ? dra_config_keep(&other) : NULL;
        if (st == DRA_OK && !same) return dra_fail(err, DRA_ERR_MEMORY, "config: out of memory");
        if (same) *others[i] = same;
        return st;
    }
    return dra_fields_set(model_fields, config, name, value, err);
}

static void name_value(const dra_field *f, char *text, size_t size)
{
    static const char *const by_kind[] = {
        [DRA_FIELD_INT] = "N",           [DRA_FIELD_REAL] = "X",
        [DRA_FIELD_BOOL] = "true|false", [DRA_FIELD_SWITCH] = "true|false",
        [DRA_FIELD_PAIR] = "[X,X]",      [DRA_FIELD_INTS] = "[N,...]",
        [DRA_FIELD_REALS] = "[X,...]",   [DRA_FIELD_TEXT] = "TEXT"};
    const bool chosen = f->kind == DRA_FIELD_CHOICE || f->kind == DRA_FIELD_NAME;
    size_t     n = 0;
    snprintf(text, size, "%s", f->fields || chosen ? "" : by_kind[f->kind]);
    for (int i = 0; chosen && f->choices[i] && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "|" : "", f->choices[i]);
}

bool dra_config_key_at(size_t i, dra_config_key *out)
{
    const dra_field *f;
    *out = (dra_config_key){0};
    if (!dra_fields_at(model_fields, i, out->name, sizeof out->name, &f)) return false;
    name_value(f, out->value, sizeof out->value);
    out->unset = f->unset || f->fields ? f->unset : f->choices[0];
    out->about = f->about;
    return true;
}

/* A mixer alone names itself and says what it otherwise takes from the model. Heads play no
 * part in wkv, only all their channels do. */
static void spell_out(const dra_model_config *c, dra_mixer_config *m)
{
    if (!m->a.memory) m->a.memory = memories[0];
    const dra_memory *memory = m->a.own ? m->a.own : dra_memory_find(m->a.memory);
    if (!m->a.retrieval && memory) m->a.retrieval = memory->retrievals[0];
    if (!m->heads) m->heads = c->heads;
    const bool wkv = !m->a.own && strcmp(m->a.memory, "wkv") == 0;
    if (wkv && !m->key_dim && !c->key_dim && c->dim % m->heads) m->heads = 1;
    if (!m->key_dim) m->key_dim = c->key_dim ? c->key_dim : c->dim / m->heads;
    if (!m->value_dim) m->value_dim = c->value_dim ? c->value_dim : m->key_dim;
    if (!wkv) return;
    m->key_dim = m->value_dim = m->key_dim * m->heads;
    m->heads = 1;
}

/* The config as JSON in dra's own names. That a blend's value was given is said of schedules alone:
 * any other is 0 by default. */
static json_t *write_fields(dra_json *j, const dra_model_config *c)
{
    dra_model_config same = *c;
    for (int i = 0; i < same.mixers; i++)
        if (same.mixer[i].blend != DRA_BLEND_INPUT) same.mixer[i].blend_given = false;
    return dra_fields_write(j, model_fields, &same);
}

/* The same with everything filled in. */
static json_t *write_all(dra_json *j, const dra_model_config *c)
{
    dra_model_config full = *c;
    dra_model_config_complete(&full);
    for (int i = 0; i < full.mixers; i++) spell_out(&full, &full.mixer[i]);
    if (full.context_stack) spell_out(&full, &full.cross);
    full.heads = full.key_dim = full.value_dim = 0;
    return write_fields(j, &full);
}

json_t *dra_model_config_object(const dra_model_config *c)
{
    dra_json j = {0};
    json_t  *object = dra_has_stacks(c) ? dra_stacks_write(&j, c, write_all) : write_all(&j, c);
    return dra_json_whole(&j, object);
}

static dra_status write_own(dra_json *j, const char *place, const dra_model_config *c,
                            json_t *object, dra_error *err)
{
    json_t *fields = dra_has_stacks(c) ? dra_stacks_write(j, c, write_fields) : write_fields(j, c);
    dra_json_set(j, object, "model_type", dra_json_text(j, "dra"));
    dra_json_update(j, object, fields);
    json_decref(fields);
    if (j->not_finite) return dra_fail_at(err, DRA_ERR_VALUE, place, "a number is not finite");
    return dra_json_check(j, place, err);
}

char *dra_model_config_dump(const char *place, const dra_model_config *c, json_t *object,
                            dra_error *err)
{
    dra_json   j = {.failed = !object};
    char      *text = NULL;
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK)
        st = dra_format_of(c)->read ? dra_format_write(place, c, object, err)
                                    : write_own(&j, place, c, object, err);
    if (st == DRA_OK)
        dra_json_dump(&j, object, JSON_INDENT(2) | JSON_REAL_PRECISION(17), place, &text, NULL,
                      err);
    return text;
}

size_t dra_model_config_text(const dra_model_config *config, char *text, size_t size)
{
    dra_json     j = {0};
    json_t      *object = dra_json_object(&j);
    char        *dump = dra_model_config_dump("config", config, object, NULL);
    const size_t n = dump ? strlen(dump) : 0;
    json_decref(object);
    if (size > 0) {
        const size_t take = n < size ? n : size - 1;
        if (take) memcpy(text, dump, take);
        text[take] = '\0';
    }
    free(dump);
    return n;
}
