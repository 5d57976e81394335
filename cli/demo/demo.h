/* What the parts of the demo share: two models that differ in their memory alone, the stories they
 * learn, where things go and how they are shown. */
#ifndef DRA_CLI_DEMO_DEMO_H
#define DRA_CLI_DEMO_DEMO_H

#include "io/model.h"
#include "report/plot.h"
#include "story.h"

enum { DEMO_PATH = 4096, DEMO_MODELS = 2, DEMO_CONTEXT = 256, DEMO_BATCH = 4 };

typedef struct demo_cost { /* at the beginning of the long text, and at its end */
    size_t bytes[2];       /* of state */
    double micros[2];      /* a token */
} demo_cost;

typedef struct demo_model {
    const char  *name, *title; /* name: also of its folder */
    const char  *called;       /* in a sentence */
    demo_cost    cost;
    char         folder[DEMO_PATH];
    dra_model   *model;
    dra_weights *weights; /* once it is trained */
    /* Lines of JSON for the report, that become `probes.jsonl` in the folder. */
    FILE  *lines;
    char  *line_text;
    size_t line_bytes;
} demo_model;

typedef struct demo_recall { /* of what was told longest ago */
    const char *ago;         /* "more than 800" */
    int64_t     asked, right[DEMO_MODELS], guess;
    bool        knows[DEMO_MODELS]; /* more than a guess does */
    int         better;             /* -1: the difference may be chance */
} demo_recall;

typedef struct demo {
    const char    *out;
    uint64_t       seed;
    int64_t        steps, stream;
    int            stories; /* held out, for each length of the gap */
    dra_device    *device;
    dra_tokenizer *tokenizer;
    dra_corpus    *corpus;
    demo_model     model[DEMO_MODELS];
    demo_recall    recall;
    cli_status     status; /* on stdout, as everything */
    int            part;   /* the heading that was written last */
} demo;

/* The parts, in their order. They stop early, without an error, when a signal came. */
dra_status demo_text(demo *d, dra_error *err);    /* stories, tokenizer, corpus */
dra_status demo_train(demo *d, dra_error *err);   /* both models */
dra_status demo_samples(demo *d, dra_error *err); /* the same prompt for both */
dra_status demo_facts(demo *d, dra_error *err);   /* what returns, by the distance to its telling */
dra_status demo_stream(demo *d, dra_error *err);  /* a long text, chunk by chunk */
dra_status demo_exact(demo *d, dra_error *err);   /* read whole and in chunks */

/* What they have shown, in words, and commands to go on with. */
enum { DEMO_CLAIMS = 2, DEMO_CLAIM = 640 };
void demo_claims(const demo *d, char claims[DEMO_CLAIMS][DEMO_CLAIM]);
void demo_next(const demo *d);

/* ---- showing --------------------------------------------------------------------------------- */

FILE *demo_out(const demo *d);
void  demo_heading(demo *d, const char *title);
void  demo_took(const demo *d, double began); /* how long a part took */

typedef struct demo_wrap { /* text in lines of less than 80 columns, word by word */
    FILE       *out;
    const char *margin; /* of each line */
    size_t      column, n;
    char        word[64];
} demo_wrap;

void demo_wrap_text(demo_wrap *w, const char *text, size_t bytes);
void demo_wrap_end(demo_wrap *w);

/* ---- files ----------------------------------------------------------------------------------- */

/* OUT/NAME; an error where that is too long. */
dra_status demo_path(const demo *d, const char *name, char path[DEMO_PATH], dra_error *err);

/* ---- stories --------------------------------------------------------------------------------- */

/* Seeds of stories to learn from, and of stories that nobody has seen. */
typedef enum demo_shelf { DEMO_LEARNED, DEMO_HELD_OUT, DEMO_STREAMED } demo_shelf;
uint64_t demo_seed(const demo *d, demo_shelf shelf, uint64_t number);
/* Story `number` as it is learned: 4 or 5 people, a gap of up to 29 sentences. */
story_config demo_story(const demo *d, demo_shelf shelf, uint64_t number);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct demo_reader { /* one sequence of one model, a chunk at a time */
    dra_view    view;
    dra_reader *reader;
    dra_states *states;
} demo_reader; /* starts as {0} */

/* keep: how many of the last tokens of a chunk get logits; 0: all. */
dra_status demo_reader_open(const demo *d, const demo_model *m, int64_t keep, demo_reader *r,
                            dra_error *err);
void       demo_reader_close(demo_reader *r);
dra_status demo_read(demo_reader *r, int64_t n, const int32_t *ids, dra_error *err);

#endif
