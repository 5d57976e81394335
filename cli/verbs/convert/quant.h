/* What quantising loses: perplexity before and after, and the parts that lose most. */
#ifndef DRA_CLI_VERBS_CONVERT_QUANT_H
#define DRA_CLI_VERBS_CONVERT_QUANT_H

#include "io/model.h"

typedef struct cli_quant_config {
    const char *from, *to;        /* the model, and what was made of it */
    const char *tokenizer, *text; /* NULL: the model's, and a short text */
    int64_t     threads;
} cli_quant_config;

enum { CLI_QUANT_NAME = 96, CLI_QUANT_PARTS = 8 };

typedef struct cli_quant_part { /* a layer, or a parameter outside of layers */
    char   name[CLI_QUANT_NAME], worst[CLI_QUANT_NAME];
    double error; /* of its worst tensor: root mean square, relative to that of its numbers */
    double loss;  /* nats a token that the loss grows by, when only this part is quantised */
} cli_quant_part;

typedef struct cli_quant_report {
    bool           language; /* else only errors are known */
    int64_t        tokens;
    double         before, after; /* losses, nats a token */
    bool           rounds;        /* there is one with activations in 8 bits, too */
    double         rounded;
    double         bytes_before, bytes_after;
    int            parts; /* those that lose most come first */
    cli_quant_part part[CLI_QUANT_PARTS];
} cli_quant_report;

dra_status cli_quant_measure(const cli_quant_config *c, cli_quant_report *out, dra_error *err);
void       cli_quant_print(const cli_quant_report *r);
void       cli_quant_json(const cli_quant_report *r); /* ", \"perplexity\": ..." */

#endif
