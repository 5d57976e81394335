/* dra forward, in parts: what is asked for, reading, writing. */
#ifndef DRA_CLI_VERBS_FORWARD_FORWARD_H
#define DRA_CLI_VERBS_FORWARD_FORWARD_H

#include "io/inputs.h"

typedef struct forward_args {
    cli_source  from;
    const char *tokens, *inputs, *resets, *chunks, *state_in, *rwkv_state, *cache, *state_out, *out,
        *outputs, *positions;
    cli_list text;
    int64_t  keep;
    bool     unpadded;
} forward_args;

typedef struct forward_stack { /* an output of every layer or sublayer, (n, B, T, C) */
    const char *each, *all;
    bool        wanted;
    int64_t     n;
    dra_real   *data;
} forward_stack;

typedef struct forward_head { /* an output of a head other than logits of tokens */
    const char *name;
    bool        wanted, there; /* asked for; the model has it */
    bool        pooled;        /* one for each row, not for each token */
    int64_t     width;         /* 0: single numbers */
    int64_t     each;          /* numbers of a row */
    dra_real   *data;
} forward_head;

enum { FORWARD_OUT, FORWARD_NUMBERS, FORWARD_CLASSES, FORWARD_HEADS };
enum { FORWARD_STREAMS, FORWARD_BRANCHES, FORWARD_HIDDENS, FORWARD_ADDS, FORWARD_STACKS };

typedef struct forward_work {
    const forward_args *a;
    cli_model           m;
    bool          logits, hidden, maps, scores, state, rwkv_state, cache; /* what is asked for */
    bool          loss, tokens; /* the loss is asked for; the head is one of tokens */
    forward_stack stack[FORWARD_STACKS];
    forward_head  head[FORWARD_HEADS];
    cli_inputs    in;
    int           chunks;
    int64_t      *chunk;
    int64_t       V, C, keep; /* logits of the last `keep` tokens go out, or */
    dra_ids       positions;  /* of these */
    int32_t      *picks;      /* (B, view.picks): those of a chunk */
    dra_view      view;
    dra_reader   *reader;
    dra_context   context;
    dra_real     *out_logits, *out_hidden; /* (B, keep, V), (B, T, C) */
    dra_real      out_loss;
    bool          unpadded; /* maps without columns that are spare */
} forward_work;

/* Opens model, inputs, state and reader. */
dra_status forward_open(forward_work *w, dra_error *err);
/* Reads everything, chunk by chunk. */
dra_status forward_read(forward_work *w, dra_error *err);
/* Writes the outputs, then the state. */
dra_status forward_write(const forward_work *w, dra_error *err);
void       forward_close(forward_work *w);

/* Heads other than that of tokens: which there are and what is asked of them, by default too;
 * whether any must be computed; room; what a chunk gave; as tensors, how many; the loss. */
dra_status forward_heads_open(forward_work *w, dra_error *err);
bool       forward_heads_made(const forward_work *w);
dra_status forward_heads_room(forward_work *w, dra_error *err);
/* A result of the call just read; NULL: there is none, or no memory for it, which is remembered. */
const dra_real *forward_result(const forward_work *w, const char *name);

void   forward_heads_keep(forward_work *w, int64_t from, int64_t n);
size_t forward_heads_list(const forward_work *w, dra_tensor_item *items);
void   forward_heads_close(forward_work *w);
void   forward_loss(forward_work *w);

/* Texts of --text: reads them as rows of a batch; how many tokens a row has, of any input; puts 0
 * after the end of the shorter ones. */
dra_status forward_texts_read(forward_work *w, dra_error *err);
int64_t    forward_length(const forward_work *w, int64_t b);
void       forward_texts_clear(const forward_work *w);

typedef struct forward_maps { /* what the layers have shown of the one chunk, as tensors */
    char (*name)[48];
    dra_tensor_item *item;
    size_t           n;
    dra_real       **own; /* (n): data to be freed, or NULL */
} forward_maps;

dra_status forward_maps_list(const forward_work *w, forward_maps *m, dra_error *err);
void       forward_maps_free(forward_maps *m);

/* RWKV-4's state as Hugging Face has it, tensors state.0 to state.4 (B, channels, L): puts those of
 * --rwkv-state into the states; makes tensor `which` of the states, whose data is to be freed. */
dra_status forward_rwkv_read(forward_work *w, dra_error *err);
dra_status forward_rwkv_write(const forward_work *w, int which, dra_tensor_item *item,
                              dra_error *err);

/* The same as a cache of transformers: puts that of --cache into the states; makes tensor `which`,
 * whose name and data are to be freed. */
dra_status forward_cache_read(forward_work *w, dra_error *err);
dra_status forward_cache_write(const forward_work *w, int which, dra_tensor_item *item,
                               dra_error *err);

#endif
