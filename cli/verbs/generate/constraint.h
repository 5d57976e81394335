/* Which tokens may follow, as options: a bias for some of them, a grammar or a JSON schema. */
#ifndef DRA_CLI_VERBS_GENERATE_CONSTRAINT_H
#define DRA_CLI_VERBS_GENERATE_CONSTRAINT_H

#include "io/model.h"

/* Rows of an option table, for a struct with a cli_sampling called `how`, and one with texts
 * `grammar` and `schema`. */
#define CLI_BIAS_OPTION(type)                                                                      \
    {                                                                                              \
        "logit-bias", CLI_LIST, offsetof(type, how.bias), 0, 0,                                    \
            "add X to the logit of a token, by its id or its text; -inf forbids it",               \
            "ID=X[,ID=X]|TEXT=X"                                                                   \
    }
#define CLI_GRAMMAR_OPTIONS(type)                                                                  \
    {"grammar", CLI_TEXT, offsetof(type, grammar), 0, 0, "write only texts of a GBNF grammar",     \
     "FILE"},                                                                                      \
    {                                                                                              \
        "json-schema", CLI_TEXT, offsetof(type, schema), 0, 0, "write only JSON of a schema",      \
            "FILE"                                                                                 \
    }

typedef struct cli_biases {
    int64_t         n;
    dra_token_bias *list;
} cli_biases; /* starts as {0} */

/* Whether all are a token and a number: else misuse, as cli_misused(). */
int cli_bias_check(const char *verb, const cli_list *bias);
/* A text must be one token. NULL: there is no tokenizer. Vocabulary: V. */
dra_status cli_biases_open(const cli_list *bias, const dra_tokenizer *tokenizer, int64_t V,
                           cli_biases *out, dra_error *err);
void       cli_biases_close(cli_biases *b);

/* The grammar of one of two files, or NULL where both are NULL. */
dra_status cli_grammar_open(const char *grammar, const char *schema, dra_grammar **out,
                            dra_error *err);

#endif
