/* dra/data.h - training data: texts as one long stream of tokens, and the batches of it.
 *
 * Flow:    a dra_corpus holds the tokens of all documents, one after the other. A dra_feed cuts (a
 *          part of) it into batches: tokens, their targets, their marks. What step s reads follows
 *          from s and the seed alone, so a resumed run reads exactly what the first one would have
 *          read. dra_examples does the same for examples that are tensors. docs/data.md has the
 *          pictures.
 * Errors:  as in file.h; an error in a line of a file starts with "PATH:LINE: ".
 * Threads: all three are read-only once made and may be shared.
 * Files:   stay mapped. They may be replaced by a rename, but neither written to nor cut short
 *          while they are in use. */
#ifndef DRA_DATA_H
#define DRA_DATA_H

#include "dra/text.h"
DRA_BEGIN_C

/* ---- training a tokenizer -------------------------------------------------------------------- */

typedef struct dra_tokenizer_config {
    int n;
    /* As of a dra_corpus_config, but text only; so are format, text_key and separator. */
    const char *const *paths;
    const char        *format, *text_key, *separator;
    int32_t            size;      /* ids in total; fewer if no pair is left to merge */
    int64_t            min_count; /* a pair that is seen less often is not merged; 0: 2 */
    /* Special tokens, such as "<|endoftext|>": never part of a word. */
    int                n_special;
    const char *const *special;
    bool               nfc;     /* normalise text to Unicode's form C (NFC) */
    int                threads; /* 0: one per processor */
} dra_tokenizer_config;

/* Progress: first the bytes read, then the ids learned; both of `total`. */
typedef void (*dra_tokenizer_progress)(void *user, bool merging, int64_t done, int64_t total);

/* Byte-level BPE as of GPT-2, learned from texts: ids of special tokens come first, then 256 bytes,
 * then merges. The same texts give the same tokenizer with any number of threads, and the one that
 * Hugging Face's trainer makes of them. `fn` may be NULL. On failure *out is NULL. */
DRA_API dra_status dra_tokenizer_train(const dra_tokenizer_config *c, dra_tokenizer_progress fn,
                                       void *user, dra_tokenizer **out, dra_error *err);

/* ---- a corpus: tokens of documents ----------------------------------------------------------- */

typedef struct dra_corpus dra_corpus; /* opaque */

typedef struct dra_corpus_config {
    int n;
    /* One after the other. What each is follows from its first bytes, and from its name where they
     * do not say it:
     *   safetensors   `ids` (N) of U8, U16, I32 or I64, taken as they are, and perhaps `starts`
     *                 (documents) of I32 or I64: the first token of each; else one document
     *   NumPy, .npy   ids (N), or (documents, N), of any integers
     *   llm.c         a header and ids of 16 or 32 bits
     *   NAME.bin      that is no text, or has a NUL: ids of 16 bits, as nanoGPT writes them
     *   NAME.jsonl    an object in every line, a document in each; blank lines are left out
     *   a folder      its files, sorted by name, but nothing hidden, no folder, no NAME.tokens
     *   any other     text: UTF-8, or an encoding without NUL
     * Text, lines and ids may be compressed by gzip or zstd. All else is refused by its name. Of
     * NumPy's (N) and ids in a .bin the tokenizer's end of text is the last token of a document;
     * if there is none, they are one. A document without text is left out. */
    const char *const   *paths;
    const dra_tokenizer *tokenizer; /* borrowed until the call returns; NULL: tokens only */
    const char          *text_key;  /* of the text in a line of JSON; NULL: "text" */
    /* A line that separates the documents of a text, without its line end; "": an empty line. NULL:
     * a text is one document. */
    const char *separator;
    /* Folder that keeps the tokens of texts for the next time; created if it does not exist.
     * NULL: they are in temporary files. With a tokenizer of bytes, a text of one document needs
     * neither. */
    const char *cache;
    bool        no_end; /* do not put the tokenizer's end of text, if it has one, after documents */
    /* What all files are: "text", "bytes" (any, as they are), "jsonl", "safetensors", "npy",
     * "tokens-u16", "tokens-u32" (ids without a header), "llmc". NULL: recognise them. */
    const char *format;
} dra_corpus_config;

/* Bytes of files that are done, and of all files. */
typedef void (*dra_progress)(void *user, int64_t done, int64_t total);

/* Every token is read once, so an open corpus is known to be valid: the ids fit the tokenizer, and
 * a cached token file is as it was written; else it is written again. `fn` may be NULL. */
DRA_API dra_status dra_corpus_open(const dra_corpus_config *c, dra_progress fn, void *user,
                                   dra_corpus **out, dra_error *err);
DRA_API void       dra_corpus_close(dra_corpus *c); /* NULL is allowed */

/* Whether all these files, those of folders too, hold tokens, so that no tokenizer is needed.
 * `format` as above. */
DRA_API bool dra_corpus_is_tokens(int n, const char *const *paths, const char *format);
/* Adds to *lines whether some of them are lines of JSON, to *texts whether some are other texts. */
DRA_API void dra_corpus_find_texts(int n, const char *const *paths, const char *format, bool *lines,
                                   bool *texts);
/* Fails like dra_corpus_open if one of them is missing or is not data, so that this is known before
 * anything else is opened. */
DRA_API dra_status dra_corpus_look(int n, const char *const *paths, const char *format,
                                   dra_error *err);
/* Whether some of them hold tokens whose documents only a tokenizer's end of text separates. */
DRA_API bool dra_corpus_wants_end(int n, const char *const *paths, const char *format);
/* The formats that were recognised, if names do not tell: "tokens, 16 bits each (nanoGPT), 301966
 * of them", "text, gzip". NULL: nothing but plain text, .jsonl and .safetensors. */
DRA_API const char *dra_corpus_about(const dra_corpus *c);

/* Recognises a file as a corpus does and fails if it is not text. *fd is a new descriptor of the
 * decompressed text, from its start; -1: the file is plain, to be read as it is. */
DRA_API dra_status dra_data_text(const char *path, const char *format, int *fd, dra_error *err);

DRA_API int64_t dra_corpus_tokens(const dra_corpus *c);    /* at least 1 */
DRA_API int64_t dra_corpus_documents(const dra_corpus *c); /* at least 1 */
DRA_API int64_t dra_corpus_bytes(const dra_corpus *c);   /* of text; -1: ids came without a text */
DRA_API int32_t dra_corpus_largest(const dra_corpus *c); /* id */
/* A fingerprint of tokens and documents, independent of how they are stored. */
DRA_API uint64_t dra_corpus_fingerprint(const dra_corpus *c);
/* The first token of document i; the number of tokens for i = the number of documents. */
DRA_API int64_t dra_corpus_document(const dra_corpus *c, int64_t i);
/* Copies the tokens from .. from + n - 1, which must be there. */
DRA_API void dra_corpus_read(const dra_corpus *c, int64_t from, int64_t n, int32_t *ids);

/* ---- a feed: batches of a corpus ------------------------------------------------------------- */

typedef struct dra_feed dra_feed; /* opaque */

typedef struct dra_feed_config {
    const dra_corpus *corpus; /* borrowed until dra_feed_destroy */
    int64_t           B, T;
    uint64_t          seed; /* of the order; a feed that carries has only one */
    /* The part of the corpus, 0 <= from < to <= 1; to = 0 means 1. By tokens; where there are
     * several documents, a cut moves back to the start of the one it falls into. So 0 .. x and
     * x .. 1 have nothing in common and leave nothing out. */
    double from, to;
    /* Rows continue where they stopped, and their state is carried from step to step: the part is
     * cut into B lanes, step s is chunk s of each. Otherwise every row is a window of its own: the
     * part is cut into windows, and each epoch has them in another order. */
    bool carry;
    bool cross; /* documents are one text: neither resets nor missing targets between them */
    bool once;  /* one epoch, for measuring: after its end there are only pads */
} dra_feed_config;

DRA_API dra_status dra_feed_create(const dra_feed_config *c, dra_feed **out, dra_error *err);
DRA_API void       dra_feed_destroy(dra_feed *f); /* NULL is allowed */

/* Batch number `step`, from 0 on without end; (B, T) each, any may be NULL.
 *   ids      the tokens; 0 at pads
 *   targets  the next token of the same document; -1, which does not count, where there is none
 *   mark     DRA_MARK_RESET at the start of a document, a window, a lane; DRA_MARK_PAD after the
 *            end of the part or lane, always at the end of a row */
DRA_API void dra_feed_batch(const dra_feed *f, int64_t step, int32_t *ids, int32_t *targets,
                            int32_t *mark);
/* Rows first .. first + n - 1 of it alone; (n, T) each. */
DRA_API void dra_feed_rows(const dra_feed *f, int64_t step, int64_t first, int64_t n, int32_t *ids,
                           int32_t *targets, int32_t *mark);

/* The token of the corpus that row `row` of a batch starts with; -1: it has only pads. */
DRA_API int64_t dra_feed_start(const dra_feed *f, int64_t step, int64_t row);

DRA_API int64_t dra_feed_steps(const dra_feed *f);  /* until each token was read: an epoch */
DRA_API int64_t dra_feed_tokens(const dra_feed *f); /* of the part */
DRA_API int64_t dra_feed_epoch(const dra_feed *f, int64_t step); /* of its first row, from 0 on */
/* Whether there may be resets after the first token of a row. If there are none and every row
 * starts fresh, marks can be left out: pads come last and have no targets. */
DRA_API bool dra_feed_resets(const dra_feed *f);
/* Two feeds share it only if they read the same: a check for resumed runs. */
DRA_API uint64_t dra_feed_fingerprint(const dra_feed *f);

/* The index at place i of 0 .. n - 1 in the order of an epoch: a permutation without a table. */
DRA_API int64_t dra_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* ---- examples: rows of named tensors --------------------------------------------------------- */

/* Tensors that have the same first size N: input `x` of example i is row i of tensor `x`. They come
 * from files and folders of these, which are read by the order of their names:
 *   NAME.safetensors, NAME.npz   shards with the same tensors, one after the other
 *   NAME.npy                     a tensor `NAME` each, all of the same examples
 *   NAME.jsonl                   texts, an object in every line: see dra_example_text */
typedef struct dra_examples dra_examples; /* opaque */

enum { DRA_EXAMPLE_PAD = -100 }; /* in the place of an id: there is none */

/* An input made of the texts under a key of .jsonl: ids of any length, padded to the longest. */
typedef struct dra_example_text {
    const char          *name;      /* of the input, such as "src" */
    const char          *key;       /* of the text in a line; NULL: the name */
    const dra_tokenizer *tokenizer; /* borrowed until the call returns */
    /* The tokenizer's end of text, if it has one, stands before and after a text: a model that
     * reads all but the last id and predicts all but the first starts at [end] and stops there. */
    bool    ends;
    int32_t end; /* with `ends`, where the tokenizer has none: this token; 0: none */
} dra_example_text;

typedef struct dra_examples_config {
    const char *path;
    int64_t     B;
    uint64_t    seed;
    double      from, to; /* part of the examples, as in a feed */
    bool        once;     /* one epoch, for measuring: after its end there are no rows */
    /* Instead of path: several. */
    int                n_paths;
    const char *const *paths;
    /* Of .jsonl: which texts there are. */
    int                     n_texts;
    const dra_example_text *texts;
} dra_examples_config;

typedef struct dra_example_input {
    const char *name;
    const char *dtype_name; /* as in the file: "F32", "I64", ... */
    dra_dtype   dtype;      /* what to read it as: I32 for integers; DRA_DTYPE_COUNT: cannot be */
    dra_shape   shape;      /* of one example, without N */
    bool        real;       /* whether F32 and F64 can hold it: floats, and I8, U8, I16, U16 */
} dra_example_input;

DRA_API dra_status dra_examples_open(const dra_examples_config *c, dra_examples **out,
                                     dra_error *err);
DRA_API void       dra_examples_close(dra_examples *e); /* NULL is allowed */
/* The same examples with another B, seed and part, and once; what else a config says is not looked
 * at. `e` must outlive them. */
DRA_API dra_status dra_examples_share(const dra_examples *e, const dra_examples_config *c,
                                      dra_examples **out, dra_error *err);

DRA_API int64_t                  dra_examples_count(const dra_examples *e); /* of the part */
DRA_API int64_t                  dra_examples_steps(const dra_examples *e); /* of an epoch */
DRA_API int                      dra_examples_inputs(const dra_examples *e);
DRA_API const dra_example_input *dra_examples_at(const dra_examples *e, int i); /* NULL beyond */
DRA_API const dra_example_input *dra_examples_find(const dra_examples *e, const char *name);

/* The rows of step `step`: (B), each the number of an example; -1: none. */
DRA_API void dra_examples_rows(const dra_examples *e, int64_t step, int64_t *rows);
/* Copies those rows of an input to (n, ...): zeros for -1. To F32 and F64 from any of F16, BF16,
 * F32, F64, I8, U8, I16 and U16; to I32 from I8, U8, I16, U16, I32, I64 and BOOL, if they fit;
 * else the dtype of the file. */
DRA_API dra_status dra_examples_read(const dra_examples *e, const char *name, int64_t n,
                                     const int64_t *rows, dra_dtype dtype, void *to,
                                     dra_error *err);
/* Checks the numbers of all examples, once, and names the first wrong one: real ones must be
 * finite; integers from `least` to `most`, or DRA_EXAMPLE_PAD where that is allowed. */
DRA_API dra_status dra_examples_check_floats(const dra_examples *e, const char *name,
                                             dra_error *err);
DRA_API dra_status dra_examples_check_integers(const dra_examples *e, const char *name,
                                               int64_t least, int64_t most, bool pads,
                                               dra_error *err);
/* A fingerprint of all numbers, their names and their order, to check resumed runs. Reads all of
 * them. */
DRA_API uint64_t dra_examples_fingerprint(const dra_examples *e);
/* The first file, for errors. */
DRA_API const char *dra_examples_path(const dra_examples *e);
/* Whether these files hold examples: arrays of NumPy, or tensors. Not so `ids` (N), nor integers
 * (N) of NumPy and nothing else: those are tokens, for a corpus. Lines of JSON may be either and
 * are not looked at: false. */
DRA_API bool dra_examples_are(int n, const char *const *paths);

DRA_END_C
#endif
