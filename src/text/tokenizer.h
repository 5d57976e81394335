/* What a tokenizer is inside: tokens by id, merges by rank, added tokens. */
#ifndef DRA_SRC_TEXT_TOKENIZER_H
#define DRA_SRC_TEXT_TOKENIZER_H

#include "base/error.h"
#include "dra/text.h"
#include "text/added.h"
#include "text/merge.h"

/* More ids than any vocabulary has; a bound on what a file can make us reserve. */
enum { DRA_MOST_IDS = 1 << 22 };

#define DRA_END_OF_TEXT "<|endoftext|>"

typedef enum dra_token_kind {
    DRA_TOKEN_NONE,    /* no such id */
    DRA_TOKEN_BYTES,   /* of the vocabulary */
    DRA_TOKEN_LITERAL, /* of the vocabulary, but not in the byte alphabet: text never becomes it */
    DRA_TOKEN_ADDED    /* of the added tokens alone */
} dra_token_kind;

typedef struct dra_token {
    const char *text;
    uint32_t    bytes;
    uint8_t     kind;
    bool        special;
} dra_token;

typedef struct dra_merge_rule {
    int32_t left, right, id;
} dra_merge_rule;

typedef struct dra_word {
    uint32_t hash;
    int32_t  id; /* < 0: a free slot */
} dra_word;

struct dra_tokenizer {
    dra_arena       arena; /* of all that follows */
    dra_token      *token; /* `size` */
    int32_t         size, end;
    uint32_t        longest;      /* bytes of a token */
    int32_t         byte_id[256]; /* -1: none */
    dra_merge_rule *merge;        /* by rank */
    size_t          merges;
    dra_pairs       pairs;
    dra_word       *word; /* a hash table of the tokens that merging gives for their own bytes */
    unsigned        word_shift;
    dra_added      *added; /* by id */
    size_t          n_added;
    dra_matcher     raw, normal;         /* added tokens found before normalisation, and after it */
    uint8_t         joins[256][256 / 8]; /* two bytes stand side by side in an added token */
    bool            nfc, prefix_space, is_bytes;
    bool            longest_first; /* added tokens are all there is: they cover any text */
    uint64_t        fingerprint;
};

/* Makes what follows from tokens, merges and added tokens. */
dra_status dra_tokenizer_finish(dra_tokenizer *t, const char *path, dra_error *err);

/* The token that merging makes of these bytes, where it is known to make just one; else -1. */
int32_t dra_word_find(const dra_tokenizer *t, const char *text, size_t bytes);

/* How much of a text to take next, about `part` bytes: up to the last place where it may be cut, or
 * all of it. Where there is no such place (a very long word) more is looked at. */
size_t dra_cut_next(const dra_tokenizer *t, const char *text, size_t bytes, size_t part);

/* Opens a tokenizer.json of these bytes, or a vocabulary with its merges as GPT-2's. */
dra_status dra_tokenizer_read_json(const char *path, const char *text, size_t bytes,
                                   dra_tokenizer **out, dra_error *err);
dra_status dra_tokenizer_read_pair(const char *vocab, const char *merges, dra_tokenizer **out,
                                   dra_error *err);

#endif
