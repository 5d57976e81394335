/* Prompts as they come in, and what is said about a text as JSON. */
#ifndef DRA_CLI_VERBS_GENERATE_PROMPT_RECORD_H
#define DRA_CLI_VERBS_GENERATE_PROMPT_RECORD_H

#include "io/model.h"

/* Reads a file, or stdin where the path is "-", whole. */
dra_status cli_input_read(const char *path, char **text, size_t *bytes, dra_error *err);

/* The ids of a prompt. An empty one starts where texts do: after the end of another, if there is
 * such a token. */
dra_status cli_prompt_encode(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                             dra_error *err);

/* Members of a record, each after a comma: "prompt" as the model has read it, "seed", "ids" and,
 * where they were asked for, "logprobs". */
void cli_record_members(const dra_tokenizer *t, const dra_ids *prompt, uint64_t seed,
                        const dra_generated *g, FILE *out);
/* The first of these alone: the text of ids as a JSON string; null, if the tokenizer, which may be
 * NULL, does not have them. */
void cli_record_prompt(const dra_tokenizer *t, const dra_ids *ids, FILE *out);
void cli_record_numbers(const dra_generated *g, uint64_t seed, FILE *out); /* the others */

#endif
