/* Windows over the documents of a corpus, as other programs cut them. Sliding, as Hugging Face's
 * page about perplexity has it: windows of `context` tokens start every `stride` tokens of a
 * document, and of each only the tokens that no window before it had are predicted. Or second
 * halves, as llama.cpp does it: windows follow each other, what is left over is dropped, and of
 * each the tokens after its first context / 2 + 1 are predicted. */
#ifndef DRA_CLI_VERBS_EVAL_WINDOWS_H
#define DRA_CLI_VERBS_EVAL_WINDOWS_H

#include "dra/data.h"

typedef struct cli_windows {
    const dra_corpus *corpus;
    int64_t           context, stride;
    int64_t           document, number; /* the window to come: its document, and which one of it */
    bool              halves;           /* second halves alone; stride is context */
} cli_windows;

int64_t cli_windows_count(const cli_windows *w); /* of all documents */
/* The next B windows, in order: ids, targets and marks (B, context) as dra_feed_batch() has them,
 * and the token of the corpus that each row starts with, -1 where there are no more. */
void cli_windows_batch(cli_windows *w, int64_t B, int32_t *ids, int32_t *targets, int32_t *mark,
                       int64_t *starts);

#endif
