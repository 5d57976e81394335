#include "text/spell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 3, NUMBERS = 16 }; /* bytes of a spelling for one; of one that is a number */

bool dra_speller_make(dra_speller *s, const dra_tokenizer *t)
{
    *s = (dra_speller){.t = t, .room = malloc(2 * (WIDEST * (size_t)t->longest + NUMBERS))};
    dra_alphabet_make(&s->alphabet);
    return s->room;
}

void dra_speller_free(dra_speller *s) { free(s->room); }

size_t dra_spell_token(const dra_speller *s, int32_t id, char *out)
{
    const dra_token *k = &s->t->token[id];
    size_t           n = k->bytes;
    if (k->kind == DRA_TOKEN_BYTE)
        return (size_t)snprintf(out, NUMBERS, "<0x%02X>", (unsigned)(unsigned char)k->text[0]);
    if (k->kind == DRA_TOKEN_BYTES && s->t->how.split)
        return dra_alphabet_write(&s->alphabet, k->text, n, out);
    if (k->kind == DRA_TOKEN_BYTES)
        n = dra_spaces_to_blocks(k->text, n, out);
    else
        memcpy(out, k->text, n);
    out[n] = 0;
    return n;
}

size_t dra_spell_merge(const dra_speller *s, size_t i)
{
    size_t n = dra_spell_token(s, s->t->merge[i].left, s->room);
    s->room[n++] = ' ';
    return n + dra_spell_token(s, s->t->merge[i].right, s->room + n);
}
