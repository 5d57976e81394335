/* Tokens as vocabulary files write them. */
#ifndef DRA_SRC_TEXT_SPELL_H
#define DRA_SRC_TEXT_SPELL_H

#include "text/letters.h"
#include "text/tokenizer.h"

typedef struct dra_speller {
    const dra_tokenizer *t;
    dra_alphabet         alphabet;
    char                *room; /* for two tokens, a space and a 0 */
} dra_speller;

bool dra_speller_make(dra_speller *s, const dra_tokenizer *t); /* false: no memory */
void dra_speller_free(dra_speller *s);

/* The spelling of a token, ended by a 0, goes to `out`; returns its bytes. */
size_t dra_spell_token(const dra_speller *s, int32_t id, char *out);
/* "left right" of a merge, in the room. */
size_t dra_spell_merge(const dra_speller *s, size_t i);

#endif
