/* dra/text.h - text to token ids and back: bytes, BPE over bytes as of GPT-2, Llama 3 and Qwen or
 *          over characters as of SentencePiece, and the vocabulary of RWKV World.
 * Errors:  those of files start with the path. DRA_ERR_FORMAT also means a tokenizer.json that asks
 *          for something dra cannot do exactly; the line names it.
 * Threads: a tokenizer is read-only once made and may be shared. A list of ids and a decoder belong
 *          to one thread at a time.
 * Text is UTF-8, but any bytes are taken: what is not UTF-8 counts as characters of one byte each,
 * and its bytes are kept. */
#ifndef DRA_TEXT_H
#define DRA_TEXT_H

#include "dra/base.h"
DRA_BEGIN_C

/* ---- tokenizers ------------------------------------------------------------------------------ */

typedef struct dra_tokenizer dra_tokenizer; /* opaque */

/* A token for each byte, ids 0 to 255, no end of text. On failure *out is NULL, as below. */
DRA_API dra_status dra_tokenizer_bytes(dra_tokenizer **out, dra_error *err);

/* From one tokenizer.json or the text file of RWKV World, or from a folder with tokenizer.json,
 * else vocab.json and merges.txt, else encoder.json and vocab.bpe, else rwkv_vocab_v20230424.txt.
 * The two files of a pair are read as GPT-2's. */
DRA_API dra_status dra_tokenizer_open(const char *path, dra_tokenizer **out, dra_error *err);

/* The tokenizer of a model's folder, for a vocabulary of `vocab` tokens, 0: of any size. That of
 * the files above, else bytes if the vocabulary has 256 tokens, which are never guessed to be
 * something else. `folder` NULL: the model has none. DRA_ERR_VALUE: there is no tokenizer, or it
 * has more tokens than the vocabulary. */
DRA_API dra_status dra_tokenizer_open_folder(const char *folder, int64_t vocab, dra_tokenizer **out,
                                             dra_error *err);

DRA_API bool dra_tokenizer_is_in(const char *folder); /* with the files of one of these */

/* Writes a tokenizer.json, whole or not at all, that opens here and in Hugging Face's tokenizers as
 * the same tokenizer; equal tokenizers give equal bytes. One of RWKV World becomes the text file it
 * came from, as tokenizer.json cannot express it. */
DRA_API dra_status dra_tokenizer_save(const dra_tokenizer *t, const char *path, dra_error *err);

/* The name that file has in folders: "tokenizer.json", "rwkv_vocab_v20230424.txt". */
DRA_API const char *dra_tokenizer_file(const dra_tokenizer *t);

DRA_API void dra_tokenizer_destroy(dra_tokenizer *t); /* NULL is allowed */

/* The largest id + 1: the least size of a model's vocabulary. Ids below it may have no token. */
DRA_API int32_t dra_tokenizer_size(const dra_tokenizer *t);

/* The token that ends a text, -1: none: what its file says, else the first of "<|endoftext|>",
 * "<|end_of_text|>", "</s>" and "<eos>" that there is. And the one that the tokenizer puts in front
 * of a text (DRA_ENCODE_BEGIN), -1: none. */
DRA_API int32_t dra_tokenizer_end(const dra_tokenizer *t);
DRA_API int32_t dra_tokenizer_begin(const dra_tokenizer *t);

/* The token with exactly these bytes, ended by a 0; -1: none. */
DRA_API int32_t dra_tokenizer_id(const dra_tokenizer *t, const char *text);

/* The bytes of a token, perhaps a part of a character, not ended by a 0, good until the tokenizer
 * is destroyed. NULL and 0: no such token. */
DRA_API const char *dra_tokenizer_piece(const dra_tokenizer *t, int32_t id, size_t *bytes);

DRA_API bool dra_tokenizer_is_special(const dra_tokenizer *t, int32_t id); /* as end of text is */
DRA_API bool dra_tokenizer_is_bytes(const dra_tokenizer *t); /* made by dra_tokenizer_bytes() */

/* Of all that decides about ids: equal for tokenizers that give equal ids, however they are stored,
 * and the same on every machine. */
DRA_API uint64_t dra_tokenizer_fingerprint(const dra_tokenizer *t);

/* ---- encoding -------------------------------------------------------------------------------- */

typedef struct dra_ids { /* a list that grows: start with {0}, end with dra_ids_free() */
    int32_t *data;
    size_t   n, room;
} dra_ids;

DRA_API void dra_ids_free(dra_ids *ids); /* leaves an empty list */

/* Appends the ids of a text. A special token written out in the text, such as "<|endoftext|>",
 * becomes that token; dra_encode_plain() takes it as ordinary text, for untrusted text. Fails when
 * memory runs out or, with DRA_ERR_VALUE, at a byte the vocabulary has no token for, which
 * vocabularies without all 256 bytes may meet in what is not UTF-8; then `out` is as before. */
DRA_API dra_status dra_encode(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                              dra_error *err);
DRA_API dra_status dra_encode_plain(const dra_tokenizer *t, const char *text, size_t bytes,
                                    dra_ids *out, dra_error *err);

/* How a text is encoded, any of these joined by |. */
enum {
    DRA_ENCODE_PLAIN = 1, /* special tokens written out in it are ordinary text */
    DRA_ENCODE_BEGIN = 2, /* the tokens that belong in front of a text, unless it starts so */
    DRA_ENCODE_END = 4,   /* those that belong behind it */
    DRA_ENCODE_REST = 8   /* it follows a cut: it is not the start of a text */
};

/* dra_encode() and dra_encode_plain() put no tokens around a text, which is right where it comes
 * from a chat template or continues another one. A prompt or a document that starts a text wants
 * DRA_ENCODE_BEGIN: many models have seen every text begin with the same token. */
DRA_API dra_status dra_encode_as(const dra_tokenizer *t, const char *text, size_t bytes,
                                 unsigned how, dra_ids *out, dra_error *err);

/* Where a text may be cut when these are its first bytes and more may follow: the ids of
 * text[0, cut) and then, with DRA_ENCODE_REST, those of the rest are the ids of the whole, whatever
 * comes. The last such place found; 0: none, so more is needed. At the end of a text encode all
 * that is left instead. A text is read in pieces like this: append what is read, cut, encode what
 * comes before the cut, keep the rest. */
DRA_API size_t dra_encode_cut(const dra_tokenizer *t, const char *text, size_t bytes);

/* ---- decoding -------------------------------------------------------------------------------- */

/* The bytes of tokens, concatenated, are the text: dra_tokenizer_piece() gives them exactly. A
 * decoder makes valid UTF-8 of them as they come: it holds back a character until it is whole, and
 * puts U+FFFD for each longest part that cannot become one. */
typedef struct dra_decoder dra_decoder; /* opaque; borrows its tokenizer */

/* With `skip_special`, special tokens give no text. On failure *out is NULL. */
DRA_API dra_status dra_decoder_create(const dra_tokenizer *t, bool skip_special, dra_decoder **out,
                                      dra_error *err);
DRA_API void       dra_decoder_destroy(dra_decoder *d); /* NULL is allowed */

/* The next token starts a text: the space that a tokenizer of characters puts in front of a text is
 * left out. A decoder that is new continues one, where a space is a space. */
DRA_API void dra_decoder_start(dra_decoder *d);

/* What is ready after one more token, perhaps nothing: *text has a 0 after its *bytes and is good
 * until the next call. DRA_ERR_INDEX: no such token, and the decoder is as before. */
DRA_API dra_status dra_decoder_push(dra_decoder *d, int32_t id, const char **text, size_t *bytes,
                                    dra_error *err);

/* The bytes of a token as they are, for a decoder that only this is asked of: *text is good until
 * the next call, without a 0. */
DRA_API dra_status dra_decoder_bytes(dra_decoder *d, int32_t id, const char **text, size_t *bytes,
                                     dra_error *err);

/* The end: what is held back becomes U+FFFD. The decoder is then as new. */
DRA_API void dra_decoder_flush(dra_decoder *d, const char **text, size_t *bytes);

DRA_END_C
#endif
