/* dra/model.h - language models: a config, its blocks, its weights, its folder.
 *
 * Flow:    a dra_model_config (a struct, or JSON with the same names) makes a dra_model, which
 *          knows its parameters and its state. A dra_view of it is a module: what a reader reads,
 *          what a trainer differentiates. Weights are drawn from a seed or read from a folder.
 * Model:   x = embedding[id] (+ position);  blocks;  logits = head norm(x)
 *          block, norm before:  x = x + mixer(norm x) (+ P h);  x = x + ff(norm x)
 *          block, norm after:   x = norm(x + mixer x (+ P h));  x = norm(x + ff x)
 * Folder:  config.json, model.safetensors (or shards with an index), tokenizer.json where there is
 *          one. Its `model_type` says in which format it is: dra's own, or that of GPT-2 or RWKV
 *          as Hugging Face has it; see docs/convert.md.
 * Threads: a model is read-only once created. */
#ifndef DRA_MODEL_H
#define DRA_MODEL_H

#include "dra/stack.h"
#include "dra/text.h"
DRA_BEGIN_C

/* ---- config: zero is the default of every field ---------------------------------------------- */

typedef enum dra_positions_kind {
    DRA_POSITIONS_NONE,
    DRA_POSITIONS_LEARNED,
    DRA_POSITIONS_COUNT
} dra_positions_kind;
typedef enum dra_rotate_kind {
    DRA_ROTATE_NONE,
    DRA_ROTATE_ROTARY,
    DRA_ROTATE_XPOS,
    DRA_ROTATE_COUNT
} dra_rotate_kind;
typedef enum dra_distance_kind {
    DRA_DISTANCE_NONE,
    DRA_DISTANCE_T5,      /* a learned number for each bucket of distances     */
    DRA_DISTANCE_DYNAMIC, /* a small network of the distance                   */
    DRA_DISTANCE_ALIBI,   /* - slope |distance|, a fixed slope for each head   */
    DRA_DISTANCE_COUNT
} dra_distance_kind;
typedef enum dra_visible_kind {
    DRA_VISIBLE_CAUSAL,        /* a token sees itself and those before: a decoder    */
    DRA_VISIBLE_BIDIRECTIONAL, /* it sees the whole text: an encoder, without a state */
    DRA_VISIBLE_PREFIX, /* causal, but tokens of a prefix see all of it, see DRA_MARK_PREFIX */
    DRA_VISIBLE_COUNT
} dra_visible_kind;
typedef enum dra_embed_norm_kind {
    DRA_EMBED_NORM_SAME,  /* as all norms                                  */
    DRA_EMBED_NORM_LAYER, /* a layer norm with gains, without bias         */
    DRA_EMBED_NORM_COUNT
} dra_embed_norm_kind;

/* Options of each way in which a distance counts. */
typedef struct dra_t5_options {
    int64_t buckets, max_distance; /* 0: 32, 128 */
    double  scale;                 /* times this; 0: 1. JSON: "distance_scale" */
} dra_t5_options;

typedef struct dra_dynamic_options {
    int64_t layers; /* hidden ones; 0: 2           */
    bool    log;    /* it sees sign(n) ln(|n| + 1) */
} dra_dynamic_options;

typedef struct dra_alibi_options {
    int64_t slopes; /* only the first heads have one; 0: all */
} dra_alibi_options;

/* Positions of the attention sublayers of a stack, besides learned ones. */
typedef struct dra_position_config {
    dra_rotate_kind     rotate;   /* queries and keys */
    int64_t             heads;    /* only the last ones are rotated; 0: all        */
    dra_rotary_config   turn;     /* how; xpos_base of xpos, 0: 512; as in a dra_mixer_config */
    dra_distance_kind   distance; /* what a distance adds to scores */
    dra_t5_options      t5;
    dra_dynamic_options dynamic;
    dra_alibi_options   alibi;
    double              scale; /* of learned positions; 0: 1 */
} dra_position_config;

enum {
    DRA_MIXERS_MOST = 16,
    DRA_SUBLAYERS_MOST = 256,
    DRA_DEPTH_MOST = 1 << 15,
    DRA_STACK_NAME = 32
};

/* What a stack reads, and what is made of what it puts out. */
typedef enum dra_source_kind {
    DRA_SOURCE_TOKENS,  /* input "ids": rows of a table                                        */
    DRA_SOURCE_VECTORS, /* input "x" (B, T, source.dim), through a learned map                 */
    DRA_SOURCE_IMAGE,   /* input "img" (B, channels, size, size), cut into patches row by row: each
                           (row, column, channel), normed, mapped and normed again. An encoder. */
    DRA_SOURCE_COUNT
} dra_source_kind;

typedef struct dra_source_config {
    dra_source_kind kind;
    char            input[DRA_STACK_NAME]; /* its name; "": as above */
    int64_t         dim;                   /* of vectors; 0: as wide as the embedding, not mapped */
    int64_t         length;                /* of vectors that are prepended: how many there are */
    int64_t         size, patch, channels; /* of images; channels 0: 3 */
    /* xVal: input "nums" (B, T); the row of token number_token is multiplied by its number. */
    bool    numbers;
    int64_t number_token;
    bool    shared; /* tokens: the table is that of the context's stack */
} dra_source_config;

typedef enum dra_head_kind {
    DRA_HEAD_TOKENS,  /* "logits" (B, T, V)                                     */
    DRA_HEAD_CLASSES, /* "logits" (B, dim) of one vector for the text, see pool */
    DRA_HEAD_VECTORS, /* "out" (B, T, dim)                                      */
    DRA_HEAD_NONE,    /* "hidden" (B, T, C) is all there is                     */
    DRA_HEAD_COUNT
} dra_head_kind;

/* Pooling over the tokens of a text that are not padding. */
typedef enum dra_pool_kind {
    DRA_POOL_MEAN, /* the mean of all                                                       */
    DRA_POOL_CLS,  /* what a learned vector before the first becomes; of encoders, as BERT has it */
    DRA_POOL_LAST, /* the last                                                              */
    DRA_POOL_COUNT
} dra_pool_kind;

typedef struct dra_head_config {
    dra_head_kind kind;
    int64_t       dim;  /* of vectors: 0: C, not mapped; of classes: 0: the mean itself is "out" */
    bool          bias; /* of tokens and vectors; classes have one */
    bool          numbers;    /* tokens: "numbers" (B, T) as well, by a map with a bias (xVal) */
    dra_pool_kind pool;       /* of classes */
    bool          no_bias;    /* classes: none */
    bool          sigsoftmax; /* tokens: logits z become z + ln sigmoid(z) [Kanai et al. 2018] */
    /* Tokens: logits are those of a mixture of this many softmaxes, each of a map of hidden [Yang
     * et al. 2017]; 0: of one. */
    int64_t mixture;
} dra_head_config;

/* How a folder says what it holds; its "model_type". Models are the same whatever it is. */
#define DRA_FORMAT_ROW(kind, table, name) DRA_FORMAT_##kind,
typedef enum dra_format_kind {
#include "dra/formats.def"
    DRA_FORMAT_COUNT
} dra_format_kind;
#undef DRA_FORMAT_ROW

/* As in formats.def, which is what `dra convert --as` calls it; NULL: there is no such format. */
DRA_API const char *dra_format_name(dra_format_kind format);

/* What only folders of x-transformers say; it changes nothing in the model. */
typedef enum dra_xt_release {
    DRA_XT_E, /* as release 2.1.37 */
    DRA_XT_N  /* as later ones     */
} dra_xt_release;

/* What stands around the model there; names of parameters begin with "net." then. */
typedef enum dra_xt_loss {
    DRA_XT_LOSS_NONE,
    DRA_XT_LOSS_TOKENS, /* AutoregressiveWrapper */
    DRA_XT_LOSS_XL,
    DRA_XT_LOSS_CONTINUOUS,
    DRA_XT_LOSS_XVAL,
    DRA_XT_LOSS_MASKED /* NonAutoregressiveWrapper */
} dra_xt_loss;

typedef struct dra_xt_config {
    dra_xt_release release; /* whose meaning options have */
    bool           flash;   /* attn_flash: dra picks the way to compute itself */
    dra_xt_loss    loss;
    int64_t        mask_id; /* of the loss masked: the token that stands for a hidden one */
} dra_xt_config;

/* Transformer-XL: a text is read in segments of `context` tokens; attention sees its own segment
 * and the last `memory` positions before it, as they came into its sublayer, without a gradient to
 * them. Learned positions start over in every segment, so that a text may have any length. */
typedef struct dra_xl_config {
    int64_t memory; /* M; 0: attention sees all */
    int64_t down;   /* the memory of a sublayer is that of the attention sublayer `down` later */
} dra_xl_config;

/* A vector for each text, the input "condition" (B, dim), by which norms (norm_gain condition) and
 * branches (block.branch_gate) are adapted: a class, a time, a style. */
typedef struct dra_condition_config {
    int64_t dim;    /* 0: as wide as the stream, where something needs it */
    int64_t expand; /* it becomes silu(W c), this many times as wide; 0: it is taken as it is */
    bool    add;    /* it is added to what each sublayer reads, as wide as that */
} dra_condition_config;

/* Only products of two matrices of low rank learn, added to matrices that stay as they are: W + s B
 * A with A (r, I), B (O, r) and s = alpha / r [Hu et al. 2022]. */
typedef struct dra_lora_config {
    int64_t rank;        /* r; 0: everything learns */
    double  alpha;       /* 0: r, so that s is 1 */
    char    targets[96]; /* last parts of the names of matrices, without W_: "q,k,v,o"; all: of
                          * every layer; "": q,k,v,o */
} dra_lora_config;

/* A C program writes initialisers, `.mixer = &(dra_mixer_config){.heads = 8}`: what a config points
 * to is borrowed, and dra_model_create() copies all of it. */
typedef struct dra_model_config {
    dra_format_kind    format;                   /* of its folder */
    int64_t            vocab, dim, depth, heads; /* V, C, L, H */
    int64_t            key_dim, value_dim;       /* of a head; 0: C / H, and key_dim */
    int64_t            context; /* rows of learned positions; what training reads at a time */
    dra_positions_kind positions;
    dra_norm_kind      norm;
    bool               bias;        /* of all projections                          */
    dra_switch         tied;        /* the head is the embedding; default on       */
    bool               embed_norm;  /* normalises what is embedded (RWKV)          */
    bool               layer_scale; /* scores of layer l are divided by l + 1 */
    double             norm_eps;    /* of all norms; 0: 1e-5                       */
    double             final_eps;   /* of the norm before the head; 0: norm_eps    */
    /* When reading, not learning, the stream is halved every rescale_every layers, and with it what
     * later layers add (RWKV-4 in half precision); 0: never. Norms undo it but for their eps, so
     * that is all that changes: norm(x / c; eps) = norm(x; c^2 eps), c = 2^(l / rescale_every), the
     * exponent rounded down. */
    int64_t rescale_every;
    /* When training: of what mixers and ff add, of attention's weights over items of the past, of
     * what is embedded. */
    double   dropout, attention_dropout, embed_dropout;
    uint32_t aux;  /* bits 1 << dra_aux_kind, of layers that have it; not in files */
    bool     maps; /* of layers that have any, for dra_view.maps; not in files       */
    /* Nor this: nothing learns but what states start from, see dra_tune_state(). */
    bool tune_state;
    /* Nor this: a model to be run, not trained, whose cache of keys and values (the items of its
     * state, which grow with the text) is kept in bf16. All calls read what was rounded, so that a
     * text gives the same numbers whole, in parts and from a file; they are not those of a cache in
     * full precision, nor are states and fingerprint. Refused where there is no such cache. */
    bool             bf16_cache;
    dra_block_config block;
    dra_ff_config    ff;
    /* Layer l has mixer l mod `mixers`: one for all, or a pattern. What the model knows (dim, bias,
     * norm, residual, memory_residual, project, and heads, key_dim, value_dim where they are 0)
     * need not be said again. */
    int                     mixers; /* 0: one */
    const dra_mixer_config *mixer;  /* NULL: one that says nothing */

    /* ---- norms, besides their kind and eps */
    dra_gain_kind norm_gain;
    dra_switch    norm_bias;
    bool          norm_offset;
    /* What is embedded is added through a map to what each sublayer reads, not to the stream, with
     * a gate made of it [Bai et al. 2019; Fan et al. 2024]. */
    bool reinject, reinject_gate;
    bool unet; /* layer l of the latter half reads W [x_(L-1-l); x], x_i the input of i */
    /* Recycling [Jumper et al. 2021]: all layers run so many times, each time with states of their
     * own, on what was embedded and a map of what came out, normed, of the time before, through
     * which no gradient goes. 0: once. */
    int64_t recycle;
    double  norm_alpha; /* of norm tanh; 0: 1 */

    /* ---- which sublayers there are: `layout` is one block, `depth` says how often it is repeated;
     * a: attention (a mixer), c: attention over the context, f: a feed-forward. Mixers are counted
     * by attention sublayers (a). */
    const char    *layout;   /* NULL, "": "af", without ff.kind "a" */
    int64_t        sandwich; /* the first `sandwich` feed-forwards move to the end: "af", "faf" */
    bool           tied_layers; /* one block of parameters, executed `depth` times */
    int            n_order;     /* 0: all in order, else which sublayer is executed when, from 0 */
    const int64_t *order;
    int            n_shifts; /* block.shift of each sublayer; 0: the same for all */
    const int64_t *shifts;
    int            n_drops; /* block.drop likewise */
    const double  *drops;

    dra_visible_kind    visible;
    dra_position_config position;
    int64_t             embed_dim;  /* width of the embedding, projected to dim; 0: dim       */
    bool                embed_unit; /* rows of tokens and positions have length 1       */
    dra_embed_norm_kind embed_norm_kind; /* of embed_norm                                    */
    int64_t             memory_tokens;   /* learned vectors that every text starts with      */
    dra_init_kind       init;
    dra_xt_config       xt; /* not in dra's own files */

    /* ---- compositions, in JSON {"stacks": {"encoder": {...}, "decoder": {..., "context":
     * "encoder"}}}. The stack that no other reads is the model; parameters of others begin with
     * their name and a dot. */
    dra_source_config source;
    dra_head_config   head;
    char              name[DRA_STACK_NAME]; /* of this stack; "": there is no other          */
    const struct dra_model_config
        *context_stack; /* what cross-attention (c) reads: its hidden    */
    const struct dra_model_config
                           *prepend_stack; /* an encoder's: its hidden comes before tokens  */
    const dra_mixer_config *cross;         /* of cross-attention sublayers; NULL: it says nothing */
    dra_xl_config           xl;
    double
        output_softcap; /* what layers put out becomes c tanh(x / c) before the last norm; 0: no */
    dra_condition_config condition;

    int n_pattern; /* 0: attention sublayer l has mixer l mod `mixers`, else which it has */
    const int64_t *pattern;
    double         embed_scale; /* what is embedded is multiplied by it; 0: 1 */
    double         logit_scale; /* logits of tokens are multiplied by it; 0: 1 */

    /* Not in files: a model to train by LoRA. The weights that stay are those of lora_base, a
     * folder or file; dra_weights_load() reads the factors; from lora_base itself it draws them. */
    const dra_lora_config *lora;
    const char            *lora_base;
    struct dra_arena      *own; /* private: memory of a config that was copied or read; else NULL */
} dra_model_config;

/* A config of its own, with a copy of all that the other one points to; tables of memories and
 * strings are borrowed. */
DRA_API dra_status dra_model_config_copy(const dra_model_config *config, dra_model_config **out,
                                         dra_error *err);
DRA_API void       dra_model_config_destroy(dra_model_config *config); /* NULL is allowed */

/* 4 to 7: layers and feed-forwards are those of this version of RWKV; 0: of none. */
DRA_API int dra_model_config_rwkv(const dra_model_config *c);

/* The format of Hugging Face's that has words for it, which the format it has goes before; of
 * RWKV that of its version. DRA_FORMAT_DRA: there is none. */
DRA_API dra_format_kind dra_model_config_class(const dra_model_config *c);

/* From JSON: {"model_type": "dra", "dim": 128, "mixer": {"memory": "gru", ...}, ...}. The fields of
 * a mixer's first memory stand in the mixer itself, those of a second one in its "b". `place`
 * begins every error: a file's name. The config is the caller's, see dra_model_config_destroy(), as
 * are all that are read; of a failure it is NULL. */
DRA_API dra_status dra_model_config_parse(const char *place, const char *text, size_t bytes,
                                          dra_model_config **out, dra_error *err);
/* The same in a program with memories of its own, NULL at the end, whose tables are in `a.own` or
 * `b.own` of a mixer: a config says them as "memory": "own:NAME", and one whose name is not among
 * them is refused. They must outlive the config and models of it. */
DRA_API dra_status dra_model_config_parse_own(const char *place, const char *text, size_t bytes,
                                              const dra_memory *const *own, dra_model_config **out,
                                              dra_error *err);
/* Sets one field by its dotted name, "mixer.gamma.range", from JSON or a bare word. What is set,
 * fitted and grafted is a config that was read or copied. */
DRA_API dra_status dra_model_config_set(dra_model_config *config, const char *name,
                                        const char *value, dra_error *err);
/* The same with memories of the program's own, as of dra_model_config_parse_own(). */
DRA_API dra_status dra_model_config_set_own(dra_model_config *config, const dra_memory *const *own,
                                            const char *name, const char *value, dra_error *err);
/* For a preset in which the `n` keys of `set` were set. Where one of them gives a mixer another
 * memory, so that no model can be made: drops what mixers say besides and the memory does not have,
 * as little as will do, but none of these keys. `dropped` gets the names, with commas between them,
 * as far as they fit; "": none, because nothing needs to go or because dropping does not help. */
DRA_API dra_status dra_model_config_fit(dra_model_config *config, size_t n, const char *const *set,
                                        char *dropped, size_t size, dra_error *err);
/* As JSON, what is not default; as snprintf. 0: out of memory. */
DRA_API size_t dra_model_config_text(const dra_model_config *config, char *text, size_t size);

/* A key of such a config, for help and completion. */
typedef struct dra_config_key {
    char        name[64];   /* dotted: "mixer.gamma.range" */
    char        value[120]; /* how it is written: "N", "rms|layer|unit"; "": it has keys itself */
    const char *unset;      /* what stands for a key that is not there; NULL: it has keys itself */
    const char *about;      /* what it is */
} dra_config_key;

/* In the order of the file, those of one object together. false: beyond the last. */
DRA_API bool dra_config_key_at(size_t i, dra_config_key *out);

typedef struct dra_preset {
    const char *name, *json;
} dra_preset;

DRA_API const dra_preset *dra_preset_at(size_t i); /* by name; NULL beyond the last */
/* The config of a preset; an unknown name is an error that suggests the nearest. */
DRA_API dra_status dra_preset_config(const char *name, dra_model_config **out, dra_error *err);

/* ---- a model --------------------------------------------------------------------------------- */

typedef struct dra_model dra_model; /* opaque */

/* Impossible choices are refused here, by name. The config is copied. */
DRA_API dra_status dra_model_create(const dra_model_config *config, dra_model **out,
                                    dra_error *err);
DRA_API void       dra_model_destroy(dra_model *m); /* NULL is allowed */

DRA_API const dra_model_config *dra_model_config_of(const dra_model *m); /* all filled in */
DRA_API const dra_specs        *dra_model_params(const dra_model *m);
DRA_API const dra_specs        *dra_model_state(const dra_model *m);
DRA_API int64_t dra_model_layers(const dra_model *m);    /* of different numbers N in "layers.N." */
DRA_API int64_t dra_model_sublayers(const dra_model *m); /* that are executed */
/* Attention sublayers in the order in which they are executed; NULL, -1 beyond the last. */
DRA_API int64_t          dra_model_attentions(const dra_model *m);
DRA_API const dra_mixer *dra_model_mixer(const dra_model *m, int64_t i);
/* N in the names of its states and maps, and in those of its parameters: others may share them. */
DRA_API int64_t dra_model_attention_layer(const dra_model *m, int64_t i);
DRA_API int64_t dra_model_attention_params(const dra_model *m, int64_t i);
DRA_API int64_t dra_model_param_count(const dra_model *m); /* numbers in all */
/* Those that a token meets: of experts only the ones that it has. */
DRA_API int64_t dra_model_active_count(const dra_model *m);
/* A number that two models share only if configs and shapes are equal. */
DRA_API uint64_t dra_model_fingerprint(const dra_model *m);
/* On a CPU, a text that is read in parts gives the same bits as read at once where all cuts are at
 * multiples of this many tokens from its beginning. 1: any cut; 0: none, they are equal within
 * rounding. */
DRA_API int64_t dra_model_cut(const dra_model *m);
/* Tokens that a text may have, INT32_MAX where nothing limits them, and whether it may have n more
 * after the first `before`. */
DRA_API int64_t    dra_model_positions(const dra_model *m);
DRA_API dra_status dra_model_check_positions(const dra_model *m, int64_t before, int64_t n,
                                             dra_error *err);

/* ---- what it reads and what it is made of ---------------------------------------------------- */

/* A language model: it reads ids and nothing else, and puts out logits of them. */
DRA_API bool dra_model_config_is_language(const dra_model_config *c);

typedef struct dra_model_input {
    const char      *name;      /* "ids", "src", "x", "img", "nums", ... */
    const dra_model *model;     /* whose it is: the model itself or one of its stacks */
    dra_source_kind  kind;      /* of its source */
    bool             numbers;   /* the numbers of xVal: one for each token of its source */
    bool             context;   /* of the text that is read first, see dra_context_text */
    bool             prepended; /* it comes before the other input of its text */
    bool             condition; /* (B, width): one vector for the text, not for its tokens */
    int64_t          vocab;     /* of tokens: ids are less */
    int64_t          length;    /* tokens it stands for; 0: any number */
    int64_t          width;     /* of vectors */
} dra_model_input;

/* Those of its own text first, in their order. false: beyond the last. */
DRA_API bool dra_model_input_at(const dra_model *m, int i, dra_model_input *out);
/* How wide the rows are that the head puts out: logits, vectors, hidden. */
DRA_API int64_t dra_model_head_width(const dra_model *m);

/* The stack that cross-attention reads, and the one that is prepended; NULL: there is none. */
DRA_API const dra_model *dra_model_context_stack(const dra_model *m);
DRA_API const dra_model *dra_model_prepend_stack(const dra_model *m);

typedef struct dra_model_step { /* a sublayer that is executed */
    const dra_sublayer *sublayer;
    int64_t             layer, params; /* N in names of its states, and of its parameters */
} dra_model_step;

/* Of this model, without its other stacks. false: beyond the last of dra_model_sublayers(). */
DRA_API bool dra_model_step_at(const dra_model *m, int64_t i, dra_model_step *out);

/* ---- what to compute ------------------------------------------------------------------------- */

/* A view: the model as a module with input "ids" i32 (B, T), or what they stand for, and the
 * outputs that are wanted. */
typedef struct dra_view {
    const dra_model *model;
    bool             logits; /* "logits" (B, keep, V)                                        */
    int64_t          keep;   /* of the last `keep` tokens; 0: of all                         */
    int64_t picks;    /* or "logits" (B, picks, V) of those in the input "picks", i32 (B, picks):
                      numbers of tokens of the call, in any order; below 0: of none; 0: as above */
    bool    losses;   /* "losses" (B, T) with input "targets" i32 (B, T); -1: does not count */
    bool    hidden;   /* "hidden" (B, T, C): what the head reads */
    bool    embedded; /* input "x" (B, T, C) instead of ids, in place of rows of the embedding */
    bool    streams;  /* "stream.0" (B, T, C): what is embedded; "stream.1", ...: after each layer,
                      divided as rescale_every says */
    bool branches; /* "branch.0" (B, T, C), ...: what the mixer of each layer adds, divided alike */
    bool maps;     /* "layers.0.attention", ...: see dra_show_kind; of a blend's memories
                                "layers.0.a.attention", ...; the model must be made with maps */
    bool scores;   /* "layers.0.scores", ... likewise, which maps leaves out */
    /* Of every executed sublayer, in order; a text's memory tokens are left out. */
    bool hiddens; /* "hidden.0" (B, T, C): what is embedded; "hidden.1", ...: after each of them */
    bool adds;    /* "add.0" (B, T, C), ...: what each core adds, o of docs/stacks.md */
    bool outs;    /* of other heads than tokens: "logits" of classes, "out", "numbers" */
} dra_view;

DRA_API dra_module dra_view_module(const dra_view *view); /* the view is borrowed */

typedef struct dra_model_result {
    dra_value hidden;             /* (B, T, C), ready for the head */
    dra_value head;               /* (V, C), or that of the head it has; none: it is not mapped */
    dra_value head_bias;          /* (V), or none */
    double    logit_scale;        /* of the config */
    bool      sigsoftmax;         /* likewise      */
    dra_value mixture_W;          /* (K C, C), and */
    dra_value mixture_w;          /* (K, C): of a mixture of softmaxes, or none */
    dra_value numbers;            /* (B, T), with head.numbers */
    dra_value pooled;             /* (B, C): what stands for a text, with head classes */
    dra_value dual;               /* ResiDual's second stream, before the norm; else none */
    dra_value aux[DRA_AUX_COUNT]; /* the mean over the layers that have it; else none */
} dra_model_result;

/* The model as part of a larger graph; ids i32 (B, T), or real (B, T, C) in place of rows of the
 * embedding. recompute: nothing inside layers is kept for the gradient, it is computed again. */
DRA_API dra_model_result dra_model_build(dra_graph *g, const dra_model *m,
                                         const dra_module_call *call, dra_value ids, bool recompute,
                                         dra_value *state_out);

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct dra_weights dra_weights; /* opaque: a value for each parameter of a model */

/* First values, drawn from a seed. */
DRA_API dra_status dra_weights_draw(const dra_model *m, uint64_t seed, dra_weights **out,
                                    dra_error *err);
/* The same of an RWKV model as its original trainer has it: blocks start as the identity. */
DRA_API dra_status dra_weights_draw_rwkv(const dra_model *m, uint64_t seed, dra_weights **out,
                                         dra_error *err);
/* From a safetensors file or a checkpoint of PyTorch, the index of several, a folder with either,
 * or an rwkv.cpp file: by the names of the config's format, all of them and no other. Tensors that
 * the mapped file stores as real numbers, or in a layout that products take, are used in place;
 * others are converted. */
DRA_API dra_status dra_weights_load(const dra_model *m, const char *path, dra_weights **out,
                                    dra_error *err);
typedef struct dra_weights_config {
    const char *path;
    /* Files of dra have a hash of all their bytes, which is checked unless this is set. */
    bool     skip_hash;
    uint64_t seed; /* of factors that are drawn, see dra_lora_config */
} dra_weights_config;
DRA_API dra_status dra_weights_load_with(const dra_model *m, const dra_weights_config *config,
                                         dra_weights **out, dra_error *err);
/* How many numbers of a model's weights are NaN or infinite, and the name of the first tensor with
 * one; NULL: none. Reads all of them, as they are stored. */
DRA_API int64_t    dra_weights_not_finite(const dra_weights *w, const char **first);
DRA_API dra_status dra_weights_save(const dra_weights *w, const char *path, dra_error *err);
/* A number for each weight, such as its gradient, and further tensors: under the names and in the
 * shapes of the file that the weights were loaded from, of drawn ones in those of dra_weights_save.
 * What files store instead of a parameter (e^p, p / 2) is not made of these numbers. */
DRA_API dra_status dra_weights_save_like(const dra_weights *w, const dra_real *const *values,
                                         size_t n_extra, const dra_tensor_item *extra,
                                         const char *path, dra_error *err);
DRA_API void       dra_weights_destroy(dra_weights *w); /* NULL is allowed */

/* Weight i as dense real numbers. One stored otherwise is copied when it is first asked for, and is
 * dense from then on; threads may ask at the same time. NULL: out of memory. */
DRA_API const dra_real *dra_weights_at(const dra_weights *w, int i);
/* Casts weights of products and embeddings to bf16, rounded to nearest even: half the bytes, for
 * reading and generating. Tensors that are bf16 in the file are used in place. */
DRA_API dra_status dra_weights_to_bf16(dra_weights *w, dra_error *err);
/* The tensor that weight i is stored in, and its layout there. */
DRA_API const void *dra_weights_stored(const dra_weights *w, int i, dra_param_layout *form);
/* The same as dra_weights_at to write to: a mapped tensor is copied first. NULL: out of memory. */
DRA_API dra_real *dra_weights_edit(dra_weights *w, int i);
/* In readers that they are bound to from now on, products with quantised matrices round their other
 * factor to blocks of 8 bits (DRA_PRECISION_Q8): faster, less exact. Refused where no matrix is in
 * blocks of 32 numbers. */
DRA_API dra_status dra_weights_round_activations(dra_weights *w, dra_error *err);
/* Binds all to a reader of a view of the model; they must outlive it. */
DRA_API dra_status dra_weights_bind(const dra_weights *w, dra_reader *r, dra_error *err);

/* ---- model folders --------------------------------------------------------------------------- */

/* Reads config.json; `folder` may also be a file with RWKV: of rwkv.cpp, or one that has the
 * names of the original checkpoints. */
DRA_API dra_status dra_folder_config(const char *folder, dra_model_config **out, dra_error *err);
/* The same with memories of the program's own, as of dra_model_config_parse_own(). */
DRA_API dra_status dra_folder_config_own(const char *folder, const dra_memory *const *own,
                                         dra_model_config **out, dra_error *err);
/* Whether a folder holds an adapter, factors of low rank (dra_lora_config, or those of Hugging
 * Face's PEFT): everywhere it stands for the model that they are added to, whose path `base`
 * receives. */
DRA_API bool dra_folder_adapts(const char *folder, char *base, size_t size);
/* Writes config.json; makes the folder where there is none. Where a config of Hugging Face of the
 * same model_type is replaced, its other keys stay; its dtype becomes that of real numbers, as that
 * of drawn or trained weights is. */
DRA_API dra_status dra_folder_save_config(const char *folder, const dra_model_config *config,
                                          dra_error *err);
/* The same with further keys from the config of another folder, which the model was made from;
 * NULL: without. */
DRA_API dra_status dra_folder_save_config_like(const char *folder, const dra_model_config *config,
                                               const char *like, dra_error *err);
/* Writes the tokenizer of a model with `vocab` tokens under the name it has in folders. A model
 * with 256 tokens needs no file for bytes: they are its default. NULL: none. */
DRA_API dra_status dra_folder_save_tokenizer(const char *folder, const dra_tokenizer *t,
                                             int64_t vocab, dra_error *err);
/* The name of its config or its weights, whichever is there first; NULL: there is no model. */
DRA_API const char *dra_folder_model(const char *folder);
/* Makes room for another model: removes config, weights with their index and shards, tokenizer and
 * settings of generating, by the names such files have in folders. All other files stay. */
DRA_API dra_status dra_folder_clear(const char *folder, dra_error *err);
/* Replaces the model of a folder: the new one is written into a folder inside of it, whose path
 * `stage` receives, and when it is whole takes the place of what dra_folder_clear() removes. Until
 * then the old model stays as it is; stopped in between, there is none, never parts of both.
 * dra_folder_drop(): it is given up. */
DRA_API dra_status dra_folder_stage(const char *folder, char *stage, size_t size, dra_error *err);
DRA_API dra_status dra_folder_replace(const char *folder, const char *stage, dra_error *err);
DRA_API void       dra_folder_drop(const char *stage);
/* Model and weights of a folder; weights NULL: the model alone. */
DRA_API dra_status dra_folder_load(const char *folder, dra_model **model, dra_weights **weights,
                                   dra_error *err);

/* ---- RWKV's state in Hugging Face's layout --------------------------------------------------- */

/* The layer fastest. Version 4 has five tensors: what each feed-forward (0) and each mixer (1) saw
 * last, (B, C, L), and A, B and p (2, 3, 4), (B, channels of the attention, L). Later ones have
 * three: what each mixer saw last (0), the matrices (1), (B, H, D, E, L), keys before values, and
 * what each feed-forward saw last (2). */
enum { DRA_RWKV_STATES = 5 }; /* at most */

DRA_API int dra_rwkv_state_count(const dra_model *m);
/* Of one for B rows; of no axes: there is none. */
DRA_API dra_shape dra_rwkv_state_shape(const dra_model *m, int64_t B, int which);

DRA_API dra_status dra_rwkv_state_get(const dra_model *m, const dra_states *s, int which,
                                      dra_real *to, size_t count, dra_error *err);
/* A row that has read nothing then counts as one that has read a token. */
DRA_API dra_status dra_rwkv_state_set(const dra_model *m, dra_states *s, int which,
                                      const dra_real *from, size_t count, dra_error *err);

/* What RWKV's trainers learn as the state to start from, blocks.N.att.time_state in a checkpoint of
 * PyTorch or safetensors, into row 0; other states stay. */
DRA_API dra_status dra_rwkv_time_state(const dra_model *m, const char *path, dra_states *s,
                                       dra_error *err);

/* ---- the state as a cache of transformers ---------------------------------------------------- */

/* Tensors of layer L, called as the attributes of cache.layers[L] are: layers.L.keys and .values
 * (B, K, T, D), .conv_states (B, channels, W), .recurrent_states (B, H, D, E), of Mamba-2 (B, H, E,
 * D). Models of attention over the whole text, delta, moment and shortconv have this form. */
typedef struct dra_cache_tensor {
    char      name[64];
    dra_shape shape;
    bool      items; /* it grows with the text: axis 2 counts tokens */
} dra_cache_tensor;

/* How many tensors there are; 0: the model has no such form, and err names a state without one. */
DRA_API int dra_cache_count(const dra_model *m, dra_error *err);
/* Tensor `which` of B rows that hold T tokens. */
DRA_API dra_status dra_cache_at(const dra_model *m, int which, int64_t B, int64_t T,
                                dra_cache_tensor *out, dra_error *err);
/* Its numbers, of rows that hold as many tokens, and back into rows that dra_states_place() has
 * made hold them (1 where nothing grows). */
DRA_API dra_status dra_cache_get(const dra_model *m, const dra_states *s, int which, dra_real *to,
                                 size_t count, dra_error *err);
DRA_API dra_status dra_cache_set(const dra_model *m, dra_states *s, int which, const dra_real *from,
                                 size_t count, dra_error *err);

/* ---- from one format to another -------------------------------------------------------------- */

/* Grafts a second memory of this kind onto every layer, blended with what it has (attention):
 * y = a y_first + (1-a) y_second, a = 1 at first, so that the model still does what it did.
 * Training takes a to 0. The config becomes one of dra's own. */
DRA_API dra_status dra_model_config_graft(dra_model_config *config, const char *memory,
                                          dra_error *err);

typedef struct dra_convert_row {   /* of a tensor that is written */
    const char *from, *from_dtype; /* where its first numbers are; NULL: drawn */
    const char *to, *dtype;
    dra_shape   from_shape, shape;
} dra_convert_row;

typedef struct dra_convert_config {
    const char *from; /* a folder, or a file with RWKV or GGUF                                   */
    const char *to;   /* a folder that is not there yet; of the format GGUF, a file              */
    const dra_model_config *config; /* what it shall be; NULL: the same. Parameters that the first
                                       does not have are drawn; of another vocabulary the tokens
                                       that both have are kept                                   */
    uint64_t                seed;   /* of what is drawn                                          */
    bool                    cpp;    /* `to` becomes a file of rwkv.cpp                           */
    size_t    shard_bytes;          /* of a folder's files; an index says which is where; 0: one */
    dra_dtype dtype; /* of matrices: F32 (real), F16, BF16, or quantised; vectors: F32. What is
                        quantised are the weights of products whose rows are whole blocks; not in
                        folders of other programs */
    bool      keep_head, keep_embedding; /* these stay F32 where others are quantised */
    bool      dry_run;   /* says what would be done and writes nothing               */
    bool      skip_hash; /* of `from`, as in dra_weights_config                    */
    /* To write next to the weights, instead of the one that comes with `from`; NULL: that one. The
     * new vocabulary must be large enough for it. */
    const dra_tokenizer *tokenizer;
    /* Each of these may be NULL. */
    void (*row)(void *user, const dra_convert_row *row);
    bool (*stop)(void *user); /* asked before every tensor: true gives up */
    /* Looks at what was made before it gets its name: a failure leaves nothing. */
    dra_status (*check)(void *user, const char *path, dra_error *err);
    void *user; /* of these */
} dra_convert_config;

/* Tensor by tensor: no more than two are in memory. A failure leaves nothing behind. */
DRA_API dra_status dra_convert(const dra_convert_config *config, dra_error *err);

DRA_END_C
#endif
