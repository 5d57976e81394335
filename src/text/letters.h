/* Letters of a text: UTF-8, kinds, and the byte alphabet that vocabularies are written in. */
#ifndef DRA_SRC_TEXT_LETTERS_H
#define DRA_SRC_TEXT_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DRA_BROKEN = -1, /* bytes that are no part of a letter */
    DRA_OPEN = -2    /* the text ends inside of a letter */
};

/* The letter that n > 0 bytes start with: its code point, or one of the above. Returns its bytes,
 * for broken ones the longest part that a letter could have started with, at least 1. */
size_t dra_utf8(const char *text, size_t n, int32_t *code);

/* The same backwards: where the last letter before `at` > 0 starts. */
size_t dra_utf8_before(const char *text, size_t at, int32_t *code);

size_t dra_utf8_write(int32_t code, char *out); /* 1 to 4 bytes */

/* SentencePiece writes U+2581 for a space. Both copy n bytes and return how many that makes: the
 * first at most n, the second at most 3 n. */
#define DRA_BLOCK "\xe2\x96\x81"
size_t dra_blocks_to_spaces(const char *text, size_t n, char *out);
size_t dra_spaces_to_blocks(const char *text, size_t n, char *out);

/* What a letter is to the pre-tokeniser; all that is broken is DRA_OTHER. */
typedef enum dra_kind {
    DRA_LETTER = 'L', /* general categories L* */
    DRA_NUMBER = 'N', /* N* */
    DRA_SPACE = 'S',  /* property White_Space */
    DRA_OTHER = 'O'
} dra_kind;

dra_kind dra_kind_of(int32_t code);

/* Whether n > 0 bytes start with a mark: general categories M*. */
bool dra_is_mark(const char *text, size_t n);

/* The kinds of ASCII, as letters of a text. */
extern const char dra_ascii_kinds[];

/* The kind of the letter that n > 0 bytes start with, and its bytes. */
static inline dra_kind dra_kind_at(const char *text, size_t n, size_t *bytes)
{
    const unsigned char first = (unsigned char)text[0];
    int32_t             code;
    if (first < 0x80) {
        *bytes = 1;
        return (dra_kind)dra_ascii_kinds[first];
    }
    *bytes = dra_utf8(text, n, &code);
    return dra_kind_of(code);
}

/* ---- the byte alphabet ----------------------------------------------------------------------- */

/* Vocabulary files write each byte as one printable letter: 0x21-0x7e, 0xa1-0xac and 0xae-0xff as
 * the letter of that number, the other 68, in order, as U+0100 and on. */
enum { DRA_ALPHABET = 0x144 };

typedef struct dra_alphabet {
    int32_t letter[256];
    int16_t byte[DRA_ALPHABET]; /* -1: not in the alphabet */
} dra_alphabet;

void dra_alphabet_make(dra_alphabet *a);

/* Writes the bytes that a text in the alphabet stands for, at most strlen(text). SIZE_MAX: a letter
 * is not of the alphabet. */
size_t dra_alphabet_read(const dra_alphabet *a, const char *text, char *out);

/* Writes n bytes in the alphabet, ended by a 0: at most 2 n + 1 bytes. Returns their number. */
size_t dra_alphabet_write(const dra_alphabet *a, const char *bytes, size_t n, char *out);

#endif
