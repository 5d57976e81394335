/* Pre-tokenisers: a text is cut into pieces that are encoded one by one. */
#ifndef DRA_SRC_TEXT_SPLIT_H
#define DRA_SRC_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dra_splitter {
    const char *name;
    const char *pattern; /* in tokenizer.json; NULL: that of ByteLevel, GPT-2's */
    uint8_t     numbers; /* a piece has so many at most, and nothing else; 0: any */
    bool        binds;   /* letters take a sign in front along, signs line ends behind */
    bool        marks;   /* marks are letters */
    bool        digits;  /* numbers are cut out before the rest is looked at */
} dra_splitter;

enum {
    DRA_SPLITTER_GPT2,
    DRA_SPLITTER_DIGITS,
    DRA_SPLITTER_LLAMA3,
    DRA_SPLITTER_QWEN2,
    DRA_SPLITTER_QWEN35
};
extern const dra_splitter dra_splitters[];

/* The one with this pattern; NULL: none has. */
const dra_splitter *dra_splitter_of(const char *pattern);

/* The bytes of the piece that a text of `bytes` > 0 starts with. */
size_t dra_split_piece(const dra_splitter *s, const char *text, size_t bytes);

#endif
