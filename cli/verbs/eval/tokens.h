/* What a model thinks of every token that counts, as lines of JSON or an array of NumPy. */
#ifndef DRA_CLI_VERBS_EVAL_TOKENS_H
#define DRA_CLI_VERBS_EVAL_TOKENS_H

#include "io/model.h"

typedef struct cli_token_score {
    int64_t at; /* token of the corpus */
    double  logprob;
    int32_t id;
} cli_token_score;

typedef struct cli_token_scores {
    size_t           n, room;
    cli_token_score *score;
} cli_token_scores; /* starts as {0} */

dra_status cli_token_scores_add(cli_token_scores *s, int64_t at, int32_t id, double logprob,
                                dra_error *err);
/* Writes them in the order of the corpus: a name that ends with .npy is an array with the fields
 * document, position, id and logprob, all else lines of JSON, which also have the text of each. */
dra_status cli_token_scores_write(cli_token_scores *s, const char *path, const dra_corpus *corpus,
                                  const dra_tokenizer *tokenizer, dra_error *err);
void       cli_token_scores_free(cli_token_scores *s);

#endif
