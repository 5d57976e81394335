/* text TOKENIZER FILE [REPEATS]: how fast text is encoded and decoded on one core, and a tokenizer
 * trained on one and on two. Every repeat opens the tokenizer anew and shuffles the text, so only
 * the processor is warm. Beside each number stands the ratio to a plain loop over the bytes of the
 * text, run in between: that is what can be compared between runs and machines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dra/dra.h"

typedef struct bench {
    char    *text, *shuffled, *back;
    size_t   bytes;
    double   loaded, encoded, decoded, looped; /* seconds, the best of all repeats */
    dra_ids  ids;
    unsigned sum; /* of the loops, so that they are not left out */
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

static void time_loop(bench *b)
{
    const double start = now();
    b->sum += loop_over(b);
    keep_best(&b->looped, start);
}

static dra_status repeat(bench *b, const char *path, dra_error *err)
{
    dra_tokenizer *t = NULL;
    double         start = now();
    dra_status     status = dra_tokenizer_open(path, &t, err);
    if (status != DRA_OK) return status;
    keep_best(&b->loaded, start);
    time_loop(b);
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

static void report(const bench *b)
{
    const double mega = 1e-6 * (double)b->bytes;
    printf(
        "open %.1f ms\nencode %.1f MB/s, %.3f of a plain loop, %zu ids\ndecode %.1f MB/s, %.3f of "
        "a plain loop\n(%u)\n",
        1e3 * b->loaded, mega / b->encoded, b->looped / b->encoded, b->ids.n, mega / b->decoded,
        b->looped / b->decoded, b->sum & 1);
}

/* ---- training -------------------------------------------------------------------------------- */

enum { TRAIN_BYTES = 100000000, TRAIN_SIZE = 8192, TRAIN_REPEATS = 3 };

typedef struct line {
    const char *text;
    size_t      bytes;
} line;

/* The lines of the text, again and again, in another order each time: TRAIN_BYTES of them. */
static bool write_lines(const bench *b, uint64_t *seed, FILE *out)
{
    size_t n = 0, total = 0;
    for (size_t i = 0; i < b->bytes; i++) n += b->text[i] == '\n';
    line *all = malloc((n + 1) * sizeof *all);
    if (!all) return false;
    const char *at = b->text, *end = b->text + b->bytes;
    for (size_t i = 0; i < n; i++) {
        const char *next = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
        all[i] = (line){at, (size_t)(next - at)};
        at = next;
    }
    while (n && total < TRAIN_BYTES && !ferror(out))
        for (size_t i = 0; i < n; i++) {
            *seed = *seed * 6364136223846793005u + 1442695040888963407u;
            const size_t other = i + (size_t)(*seed >> 33) % (n - i);
            const line   chosen = all[other];
            all[other] = all[i];
            all[i] = chosen;
            total += fwrite(chosen.text, 1, chosen.bytes, out);
        }
    free(all);
    return total >= TRAIN_BYTES;
}

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dra_status train(bench *b, const char *path, int threads, dra_error *err)
{
    double     best = 0, core = 0; /* seconds, and those of this thread */
    dra_status status = DRA_OK;
    for (int i = 0; i < TRAIN_REPEATS && status == DRA_OK; i++) {
        const dra_tokenizer_config c = {
            .n = 1, .paths = &path, .size = TRAIN_SIZE, .threads = threads};
        dra_tokenizer *t = NULL;
        time_loop(b);
        const double start = wall(), begin = now();
        status = dra_tokenizer_train(&c, NULL, NULL, &t, err);
        keep_best(&core, begin);
        const double seconds = wall() - start;
        if (best == 0 || seconds < best) best = seconds;
        dra_tokenizer_destroy(t);
    }
    if (status == DRA_OK)
        printf("train %d tokens, %d threads: %.2f s, %.0f MB/s; first thread %.2f s, %.3f of a "
               "plain loop\n",
               TRAIN_SIZE, threads, best, 1e-6 * TRAIN_BYTES / best, core,
               TRAIN_BYTES * b->looped / (double)b->bytes / core);
    return status;
}

static dra_status train_all(bench *b, uint64_t *seed, dra_error *err)
{
    char        path[256];
    const char *folder = getenv("TMPDIR");
    dra_status  status = DRA_OK;
    snprintf(path, sizeof path, "%s/dra-bench-%ld", folder ? folder : "/tmp", (long)getpid());
    FILE *out = fopen(path, "wb");
    if (!out || !write_lines(b, seed, out) || fclose(out) != 0) {
        snprintf(err->text, sizeof err->text, "no temporary file, or a text without lines");
        status = DRA_ERR_FILE;
    }
    for (int threads = 1; threads <= 2 && status == DRA_OK; threads++)
        status = train(b, path, threads, err);
    remove(path);
    return status;
}

int main(int argc, char **argv)
{
    const int repeats = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 15;
    bench     b = {0};
    dra_error err = {0};
    uint64_t  seed = 1;
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
        status = repeat(&b, argv[1], &err);
    }
    if (status == DRA_OK && b.encoded > 0) {
        report(&b);
        status = train_all(&b, &seed, &err);
    }
    if (status != DRA_OK) fprintf(stderr, "text: %s\n", err.text);
    free(b.text);
    free(b.shuffled);
    free(b.back);
    dra_ids_free(&b.ids);
    return status == DRA_OK ? 0 : 1;
}
