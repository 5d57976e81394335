/* dra eval of questions with several answers: which of them does the model find most likely? */
#ifndef DRA_CLI_VERBS_EVAL_CHOICES_H
#define DRA_CLI_VERBS_EVAL_CHOICES_H

#include "io/model.h"

typedef struct cli_eval_choices_job {
    const cli_source *from;
    const cli_list   *data;
    cli_model        *m;            /* open; its tokenizer is opened here */
    const char       *per_question; /* file to write, or NULL */
    bool              json;
} cli_eval_choices_job;

/* Whether these are files of questions: lines of JSON, the first of which has "choices" and no
 * "text". */
bool cli_are_choices(const cli_list *files);
/* Reads all questions and prints how many are answered rightly. */
dra_status cli_eval_choices(const cli_eval_choices_job *job, dra_error *err);

/* A question as it stands in a line; choices point into `room`. */
enum { CLI_CHOICES = 256 };
typedef struct cli_question {
    char       *room; /* a copy of the line, to be freed */
    const char *context, *choice[CLI_CHOICES];
    int         n, answer;
} cli_question;

/* Takes a line apart in place. Returns what is wrong with it; NULL: nothing. */
const char *cli_question_read(char *line, cli_question *q);

#endif
