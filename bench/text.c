/* text TOKENIZER FILE [REPEATS]: how fast text is encoded and decoded on one core. Every repeat
 * opens the tokenizer anew and shuffles the text, so nothing is warm but the processor. Beside each
 * number stands the ratio to a plain loop over the bytes of the text, run in between: that is what
 * can be compared between runs and machines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dra/dra.h"

typedef struct bench {
    char   *text, *shuffled, *back;
    size_t  bytes;
    double  loaded, encoded, decoded, looped; /* seconds, the best of all repeats */
    dra_ids ids;
} bench;

static double now(void) /* of this thread: others may use the machine */
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_best(double *best, double start)
{
    const double seconds = now() - start;
    if (*best == 0 || seconds < *best) *best = seconds;
}

/* Cuts the text at about 63 random lines and writes the parts from the last to the first. */
static void shuffle(bench *b, uint64_t *seed)
{
    size_t cut[64] = {0}, n = 0, at = 0;
    for (size_t i = 0; i < 63; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const size_t place = (i * b->bytes + (*seed >> 33) % b->bytes) / 63;
        const char  *line = place < b->bytes ? memchr(b->text + place, '\n', b->bytes - place)
                                             : NULL;
        const size_t next = line ? (size_t)(line - b->text) + 1 : b->bytes;
        if (n == 0 || next > cut[n - 1]) cut[n++] = next;
    }
    for (size_t part = n + 1; part-- > 0;) {
        const size_t from = part ? cut[part - 1] : 0, to = part < n ? cut[part] : b->bytes;
        memcpy(b->shuffled + at, b->text + from, to - from);
        at += to - from;
    }
}

static unsigned loop_over(const bench *b)
{
    unsigned h = 0; /* one step for each byte, each after the one before */
    for (size_t i = 0; i < b->bytes; i++) h = h * 31 + (unsigned char)b->shuffled[i];
    return h;
}

static dra_status repeat(bench *b, const char *path, unsigned *sum, dra_error *err)
{
    dra_tokenizer *t = NULL;
    double         start = now();
    dra_status     status = dra_tokenizer_open(path, &t, err);
    if (status != DRA_OK) return status;
    keep_best(&b->loaded, start);
    start = now();
    *sum += loop_over(b);
    keep_best(&b->looped, start);
    b->ids.n = 0;
    start = now();
    status = dra_encode(t, b->shuffled, b->bytes, &b->ids, err);
    keep_best(&b->encoded, start);
    start = now();
    size_t at = 0, n;
    for (size_t i = 0; i < b->ids.n; i++, at += n) {
        const char *piece = dra_tokenizer_piece(t, b->ids.data[i], &n);
        if (n > b->bytes - at) break; /* NFC may have made it longer */
        memcpy(b->back + at, piece, n);
    }
    keep_best(&b->decoded, start);
    dra_tokenizer_destroy(t);
    return status;
}

int main(int argc, char **argv)
{
    const int repeats = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 15;
    bench     b = {0};
    dra_error err = {0};
    uint64_t  seed = 1;
    unsigned  sum = 0;
    if (argc < 3) {
        fputs("usage: text TOKENIZER FILE [REPEATS]\n", stderr);
        return 2;
    }
    dra_status status = dra_file_read(argv[2], (size_t)1 << 32, &b.text, &b.bytes, &err);
    if (status == DRA_OK && !b.bytes) fputs("text: the file is empty\n", stderr);
    b.shuffled = malloc(b.bytes + 1);
    b.back = malloc(b.bytes + 1);
    for (int i = 0; i < repeats && b.bytes && b.shuffled && b.back && status == DRA_OK; i++) {
        shuffle(&b, &seed);
        status = repeat(&b, argv[1], &sum, &err);
    }
    const double mega = 1e-6 * (double)b.bytes;
    if (status != DRA_OK)
        fprintf(stderr, "text: %s\n", err.text);
    else if (b.encoded > 0)
        printf("open %.1f ms\nencode %.1f MB/s, %.3f of a plain loop, %zu ids\ndecode %.1f MB/s, "
               "%.3f of a plain loop\n(%u)\n",
               1e3 * b.loaded, mega / b.encoded, b.looped / b.encoded, b.ids.n, mega / b.decoded,
               b.looped / b.decoded, sum & 1);
    free(b.text);
    free(b.shuffled);
    free(b.back);
    dra_ids_free(&b.ids);
    return status == DRA_OK ? 0 : 1;
}
