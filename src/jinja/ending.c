/* How answers end by a template: what it writes between an answer and the next question. */
#include "dra/template.h"

#include <stdlib.h>
#include <string.h>

#include "file/fail.h"

/* Stand for what is said, in templates that may trim but not change it. */
static const char asked[] = "(what is asked)", answered[] = "(what was answered)";

/* A usual conversation as a text; *from and *end: what stands after the answer, NULL: the template
 * leaves the answer out. */
static dra_status render_usual(const dra_template *t, char **text, char **from, char **end,
                               dra_error *err)
{
    const dra_message said[] = {{"user", asked, sizeof asked - 1},
                                {"assistant", answered, sizeof answered - 1},
                                {"user", asked, sizeof asked - 1}};
    size_t            bytes;
    const dra_status  st = dra_template_chat(t, said, 3, false, text, &bytes, err);
    char             *at = st == DRA_OK ? strstr(*text, answered) : NULL;
    *from = at ? at + sizeof answered - 1 : NULL;
    *end = at ? strstr(*from, asked) : NULL;
    if (at && !*end) *end = *from; /* nothing is known of what comes then */
    return st;
}

/* The first special token of a text; -1: there is none. */
static dra_status find_special(const dra_tokenizer *tokenizer, const char *text, size_t bytes,
                               int32_t *id, dra_error *err)
{
    dra_ids          ids = {0};
    const dra_status st = dra_encode(tokenizer, text, bytes, &ids, err);
    for (size_t i = 0; i < ids.n && *id < 0; i++)
        if (dra_tokenizer_is_special(tokenizer, ids.data[i])) *id = ids.data[i];
    dra_ids_free(&ids);
    return st;
}

/* The text goes without blanks at its end, which a token may hold with what follows. */
dra_status dra_template_ending(const dra_template *t, const dra_tokenizer *tokenizer, int32_t *id,
                               char **text, dra_error *err)
{
    char      *sample = NULL, *from, *end;
    dra_status st = render_usual(t, &sample, &from, &end, err);
    *id = -1;
    *text = NULL;
    if (st == DRA_OK && from) st = find_special(tokenizer, from, (size_t)(end - from), id, err);
    if (st == DRA_OK && from && *id < 0) {
        while (end > from && strchr(" \t\n", end[-1])) end--;
        *end = '\0';
        if (end > from && !(*text = strdup(from)))
            st = dra_fail(err, DRA_ERR_MEMORY, "out of memory for what ends answers");
    }
    free(sample);
    return st;
}
