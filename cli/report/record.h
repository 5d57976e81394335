/* What is known about a run: what its log says, and what its folder holds. */
#ifndef DRA_CLI_REPORT_RECORD_H
#define DRA_CLI_REPORT_RECORD_H

#include "decays.h"
#include "jsonl.h"
#include "facts.h"

/* A number over steps, or over tokens that were read, by the name the log gives it. */
typedef struct cli_series {
    const char *name;
    bool        tokens;
    size_t      n;
    double     *x, *y; /* y: NaN where the log says null */
} cli_series;

typedef struct cli_sample {
    double      step;
    const char *text;
} cli_sample;

enum { CLI_TRIED = 24 };

/* A row of a probe: {"probe": NAME, what was tried, "accuracy": X, ...}. */
typedef struct cli_probe {
    const char *name;
    cli_member  value;
    int         n_tried;
    cli_member  tried[CLI_TRIED]; /* numbers and texts that stand before the value */
    double      count, chance;    /* answers that were counted, the share a guess gets; NaN */
} cli_probe;

typedef struct cli_spectrum { /* decays of a checkpoint */
    int64_t    step;
    cli_decays decays;
} cli_spectrum;

/* Names and texts point into `text`, the log itself and the files next to it. */
typedef struct cli_record {
    const char *path; /* as given, borrowed; a folder or a file */
    char        name[64];
    bool        folder;
    char       *text[2];
    size_t      lines, broken; /* of the log */
    size_t      n_series, n_samples, n_probes, n_spectra;
    cli_series *series;
    cli_sample *samples;
    cli_probe  *probes;

    dra_model     *model;                /* NULL: there is none */
    dra_weights   *weights;              /* the newest */
    dra_tokenizer *tokenizer;            /* NULL: not known */
    cli_spectrum  *spectra;              /* oldest first */
    cli_facts      settings;             /* of a folder */
    char           note[DRA_ERROR_TEXT]; /* why something is missing; "" */
} cli_record;                            /* starts as {0} */

/* Reads a run's folder, its log.jsonl and what was measured later, its probes.jsonl; or a file of
 * JSON lines. Lines with a "step" are numbers of training, those with a "position" numbers of
 * reading a text, those with a "probe" rows of probes. What is broken is counted or noted; an error
 * is only that there is nothing to read. */
dra_status cli_record_read(const char *path, cli_record *r, dra_error *err);
void       cli_record_free(cli_record *r);

/* Over steps, or over tokens. NULL: there are no such numbers. */
const cli_series *cli_record_series(const cli_record *r, const char *name, bool tokens);

/* For cli_record_read: the model of the folder and the decays of its checkpoints. */
dra_status cli_record_model(cli_record *r, dra_error *err);

#endif
