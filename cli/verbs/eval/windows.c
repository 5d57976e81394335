/* Sliding windows over documents. */
#include "windows.h"

#include "dra/sequence.h"

/* Windows of a document of n tokens: the last is the first that reaches its end. */
static int64_t count_of(const cli_windows *w, int64_t n)
{
    if (w->halves) return n / w->context;
    return n <= w->context ? 1 : 1 + (n - w->context + w->stride - 1) / w->stride;
}

static int64_t length_of(const cli_windows *w, int64_t document)
{
    return dra_corpus_document(w->corpus, document + 1) - dra_corpus_document(w->corpus, document);
}

int64_t cli_windows_count(const cli_windows *w)
{
    int64_t total = 0;
    for (int64_t d = 0; d < dra_corpus_documents(w->corpus); d++)
        total += count_of(w, length_of(w, d));
    return total;
}

/* Window `number` of `document` as a row. Column t predicts token t + 1 of the window; it counts
 * where the window before it, which ended at `known`, did not have that token. */
static void fill_row(const cli_windows *w, int32_t *ids, int32_t *targets, int32_t *mark)
{
    const int64_t T = w->context, n = length_of(w, w->document), begin = w->number * w->stride;
    const int64_t end = begin + T < n ? begin + T : n;
    const int64_t known = w->number ? begin - w->stride + T : 1;
    dra_corpus_read(w->corpus, dra_corpus_document(w->corpus, w->document) + begin, end - begin,
                    ids);
    for (int64_t t = 0; t < T; t++) {
        const int64_t next = begin + t + 1;
        if (begin + t >= end) ids[t] = 0;
        mark[t] = begin + t < end ? 0 : DRA_MARK_PAD;
        const bool new = w->halves ? t >= T / 2 : next >= known;
        targets[t] = new &&next < end ? ids[t + 1] : -1;
    }
    mark[0] |= DRA_MARK_RESET;
}

static void empty_row(const cli_windows *w, int32_t *ids, int32_t *targets, int32_t *mark)
{
    for (int64_t t = 0; t < w->context; t++) {
        ids[t] = 0;
        targets[t] = -1;
        mark[t] = DRA_MARK_PAD;
    }
}

void cli_windows_batch(cli_windows *w, int64_t B, int32_t *ids, int32_t *targets, int32_t *mark,
                       int64_t *starts)
{
    const int64_t T = w->context, D = dra_corpus_documents(w->corpus);
    for (int64_t b = 0; b < B; b++, ids += T, targets += T, mark += T) {
        while (w->document < D && !count_of(w, length_of(w, w->document))) w->document++;
        const bool more = w->document < D;
        starts[b] = -1;
        if (!more) {
            empty_row(w, ids, targets, mark);
            continue;
        }
        starts[b] = dra_corpus_document(w->corpus, w->document) + w->number * w->stride;
        fill_row(w, ids, targets, mark);
        if (++w->number == count_of(w, length_of(w, w->document))) {
            w->number = 0;
            w->document++;
        }
    }
}
