/* What a tokenizer is inside: tokens by id, merges by rank, added tokens. */
#ifndef DRA_SRC_TEXT_TOKENIZER_H
#define DRA_SRC_TEXT_TOKENIZER_H

#include "base/error.h"
#include "dra/text.h"
#include "text/added.h"
#include "text/merge.h"
#include "text/split.h"

/* More ids than any vocabulary has; a bound on what a file can make us reserve. */
enum { DRA_MOST_IDS = 1 << 22, DRA_AROUND = 4 };

#define DRA_END_OF_TEXT "<|endoftext|>"

typedef enum dra_token_kind {
    DRA_TOKEN_NONE,    /* no such id */
    DRA_TOKEN_BYTES,   /* of the vocabulary */
    DRA_TOKEN_LITERAL, /* of the vocabulary, but not in the byte alphabet: text never becomes it */
    DRA_TOKEN_ADDED,   /* of the added tokens alone */
    DRA_TOKEN_BYTE     /* one byte of a character that has no token */
} dra_token_kind;

typedef struct dra_token {
    const char *text;
    uint32_t    bytes;
    uint8_t     kind;
    bool        special;
} dra_token;

/* Where a space is put in front of text, if there is none. */
typedef enum dra_prefix {
    DRA_PREFIX_NONE,
    DRA_PREFIX_EACH,  /* of every text between added tokens */
    DRA_PREFIX_FIRST, /* of the text that starts there */
    DRA_PREFIX_ALWAYS /* of every text between added tokens found in raw text, even a second one */
} dra_prefix;

/* What decoding takes away at the start of a text. */
typedef enum dra_strip { DRA_STRIP_NONE, DRA_STRIP_ONE, DRA_STRIP_TOKEN } dra_strip;

/* Tokens that are put around a text. */
typedef struct dra_around {
    int32_t id[DRA_AROUND];
    uint8_t n;
} dra_around;

/* How text becomes pieces and pieces symbols. A tokenizer of characters writes U+2581 for a space
 * in its files; here it is a space, in tokens and in text. */
typedef struct dra_layout {
    const dra_splitter *split;     /* NULL: symbols are characters, which these are about: */
    bool                early;     /* spaces are normalised before added tokens are looked for */
    bool                at_spaces; /* every space starts a piece, even where a merge would cross */
    bool                fallback;  /* a character without a token becomes its bytes */
    bool                fuse;      /* characters without a token in a row become one `unknown` */
    int32_t             unknown;   /* -1: they are an error */
    bool                has_bytes; /* tokens <0x00> to <0xFF> are bytes when decoded */
    bool                by_score; /* merges of equal rank make the same token, the leftmost first */
    bool                nfc, whole; /* a piece that is a token is not merged */
    uint8_t             prefix, strip;
    dra_around          before, behind;
} dra_layout;

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
    bool            breaks[256]; /* a piece of characters may end between this and a space */
    dra_layout      how;
    bool            is_bytes;
    bool            has_end;       /* its file says which token it is */
    bool            longest_first; /* added tokens are all there is: they cover any text */
    uint64_t        fingerprint;
};

/* Makes what follows from tokens, merges and added tokens. */
dra_status dra_tokenizer_finish(dra_tokenizer *t, const char *path, dra_error *err);

/* What its file calls an added token that the vocabulary does not have: without the space that is
 * in front of all normalised text. */
const char *dra_added_name(const dra_tokenizer *t, const dra_added *a, size_t *bytes);

/* The token that merging makes of these bytes, where it is known to make just one; else -1. */
int32_t dra_word_find(const dra_tokenizer *t, const char *text, size_t bytes);

/* The symbols of a piece, as many as it has bytes at most. SIZE_MAX: the byte at *at has no
 * token. */
size_t dra_symbols_make(const dra_tokenizer *t, dra_symbol *symbol, const char *text, size_t bytes,
                        size_t *at);

/* The bytes of the piece that a text of `bytes` > 0 starts with, merged by itself. */
size_t dra_piece_next(const dra_tokenizer *t, const char *text, size_t bytes);

/* How much of a text to take next, about `part` bytes: up to the last place where it may be cut, or
 * all of it. Where there is no such place (a very long word) more is looked at. */
size_t dra_cut_next(const dra_tokenizer *t, const char *text, size_t bytes, size_t part);

/* Opens a tokenizer.json of these bytes, or a vocabulary with its merges as GPT-2's. */
dra_status dra_tokenizer_read_json(const char *path, const char *text, size_t bytes,
                                   dra_tokenizer **out, dra_error *err);
dra_status dra_tokenizer_read_pair(const char *vocab, const char *merges, dra_tokenizer **out,
                                   dra_error *err);

#endif
