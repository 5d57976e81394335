/* A study: what its file says, the models it compares, its runs and what came of them. */
#ifndef DRA_CLI_VERBS_STUDY_STUDY_H
#define DRA_CLI_VERBS_STUDY_STUDY_H

#include "io/model.h"
#include "verbs/probe/sweep.h"

#include <jansson.h>

enum { CLI_STUDY_PATH = 4096, CLI_STUDY_NAME = 256 };

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct cli_study_block {
    const char   *name, *score, *tokens; /* tokens: a product, or NULL */
    const char   *needs;                 /* a block that has to be done before; NULL: none */
    int64_t       priority;
    double        minutes, window; /* NaN: not given */
    bool          lowest;          /* is best */
    cli_sweep     over;
    int           model, seed, tune; /* axes of it; -1: none */
    const json_t *commands;          /* texts */
} cli_study_block;

typedef struct cli_study_model {
    const char *name;
    json_t     *set;  /* texts KEY=VALUE, borrowed */
    char       *text; /* the config as JSON, to be freed */
    int64_t     parameters;
} cli_study_model;

typedef struct cli_study {
    const char      *path;
    char             name[64];
    const char      *scale_name, *like; /* like: NULL where models stay as they are */
    json_t          *root, *scale;      /* scale: borrowed from root */
    size_t           n_blocks, n_models;
    cli_study_block *blocks; /* by priority */
    cli_study_model *models;
    json_t          *claims; /* borrowed; NULL: none */
} cli_study;                 /* starts as {0} */

/* Reads and checks a file; an error names the part that is wrong. */
dra_status cli_study_read(const char *path, const char *scale, cli_study *out, dra_error *err);
void       cli_study_free(cli_study *s);

/* The configs of all models, with as many parameters as that of `like`. */
dra_status cli_study_match(cli_study *s, dra_error *err);

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct cli_study_run {
    const cli_study       *study;
    const cli_study_block *block;
    const cli_study_model *model; /* NULL: the block has none */
    int64_t                number;
    char                   name[CLI_STUDY_NAME]; /* BLOCK/AXIS=VALUE_..., also of its folder */
} cli_study_run;

/* false: the name is too long. */
bool cli_study_run_at(const cli_study *s, size_t block, int64_t number, cli_study_run *out);

typedef struct cli_study_places { /* what $out and others stand for; NULL: they stay as they are */
    const char *config, *out, *corpus, *study;
} cli_study_places;

/* Command i with every $NAME replaced, to be freed; NULL: beyond the last, or an error. */
char *cli_study_command(const cli_study_run *r, const cli_study_places *p, size_t i,
                        dra_error *err);
/* A number as an option takes it. */
const char *cli_study_number(const json_t *x, char room[CLI_NUMBER]);
/* A product of numbers and $NAMEs; NaN: something else. */
double cli_study_product(const cli_study_run *r, const char *text);

/* ---- results --------------------------------------------------------------------------------- */

typedef struct cli_study_line { /* a run that is done */
    json_t *json;
    double  score, seconds; /* NaN: none */
} cli_study_line;

typedef struct cli_study_lines {
    char    path[CLI_STUDY_PATH];
    json_t *by_name; /* the last line of each run */
} cli_study_lines;   /* starts as {0} */

dra_status cli_study_lines_read(const char *folder, cli_study_lines *out, dra_error *err);
void       cli_study_lines_free(cli_study_lines *l);
void       cli_study_lines_forget(cli_study_lines *l); /* those of runs that failed */
/* The line of a run by the same commands and config. false: there is none. */
bool cli_study_line_of(const cli_study_lines *l, const cli_study_run *r, cli_study_line *out);

typedef struct cli_study_outcome { /* of a process that has ended */
    double      seconds;
    int64_t     peak_bytes;
    json_t     *results; /* objects that its commands printed */
    const char *failed;  /* why; NULL: it did not */
    const char *device;
} cli_study_outcome;

dra_status cli_study_lines_add(cli_study_lines *l, const cli_study_run *r,
                               const cli_study_outcome *o, dra_error *err);

/* ---- groups: runs that differ in their seed and in what is tuned ----------------------------- */

typedef struct cli_study_group {
    int64_t first;        /* a run of it */
    int64_t best;         /* the place of the best value of the tuned axis; -1: not known yet */
    int64_t n, wanted;    /* seeds there, with a score; seeds of the block */
    double  mean, spread; /* over them; spread: the sample standard deviation, NaN for one */
    double  half;         /* of a 95 % interval of the mean, by Student's t; NaN for one */
    double  low, high;    /* values of the tuned axis that are in the window */
} cli_study_group;

int64_t cli_study_groups(const cli_study_block *b);
void    cli_study_group_at(const cli_study *s, size_t block, const cli_study_lines *l, int64_t i,
                           cli_study_group *out);
/* Whether a run is part of the study, as far as is known: of tuned ones all values with the first
 * seed, of the best value all seeds. */
bool    cli_study_is_wanted(const cli_study *s, size_t block, const cli_study_lines *l,
                            int64_t number);
int64_t cli_study_count(const cli_study_block *b); /* of runs that will be made */

typedef struct cli_study_verdict {
    const char *word; /* holds, refuted, open */
    double      of, against, spread;
    char        of_name[120], against_name[120]; /* the best group of each side */
} cli_study_verdict;

/* By the rule of docs/study.md. */
void cli_study_judge(const cli_study *s, const cli_study_lines *l, const json_t *claim,
                     cli_study_verdict *out);
/* The values of a group's axes, without seed and what is tuned: "slots-16, T=64". */
void cli_study_group_name(const cli_study_block *b, const cli_study_group *g, char *text,
                          size_t size);

/* ---- output ---------------------------------------------------------------------------------- */

void       cli_study_table(const cli_study *s, const cli_study_lines *l, FILE *out);
void       cli_study_print_json(const cli_study *s, const cli_study_lines *l, FILE *out);
dra_status cli_study_page(const cli_study *s, const cli_study_lines *l, const char *path,
                          dra_error *err);

#endif
