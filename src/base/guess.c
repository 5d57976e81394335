/* The nearest of some names to what was typed. */
#include <ctype.h>
#include <string.h>

#include "dra/base.h"

enum { LONGEST = 63 }; /* longer names are not compared; none of ours is */
enum { BEGINS = DRA_GUESS_MEANT + 1 };

/* What other programs (nanoGPT, Hugging Face, llama.cpp) call a thing, or dra once did, and what
 * dra calls it, the first of several that is there. A dotted name is a key of a config. */
static const struct {
    const char *theirs, *ours[3];
} synonyms[] = {
    {"add", {"aux-loss"}},
    {"batch-size", {"batch"}},
    {"block-size", {"context"}},
    {"checkpoint", {"model"}},
    {"ckpt", {"model"}},
    {"ctx-size", {"context"}},
    {"cuda", {"device"}},
    {"d-model", {"dim"}},
    {"dataset", {"data"}},
    {"epoch", {"epochs", "steps"}},
    {"epochs", {"steps"}},
    {"eval-interval", {"eval-every"}},
    {"eval-steps", {"eval-every"}},
    {"file", {"prompt-file"}},
    {"finetune", {"train"}},
    {"forget", {"forgetful-mask"}},
    {"gpu", {"device"}},
    {"grad-clip", {"clip"}},
    {"gradient-accumulation-steps", {"accumulate"}},
    {"guard", {"clamp-states"}},
    {"guard-steps", {"clamp-steps"}},
    {"hidden-size", {"dim"}},
    {"init-from", {"model"}},
    {"input", {"data", "prompt"}},
    {"intermediate-size", {"ff.dim"}},
    {"iters", {"steps"}},
    {"layers", {"depth"}},
    {"learning-rate", {"lr"}},
    {"logit-pull", {"l2wrap"}},
    {"max-grad-norm", {"clip"}},
    {"max-iters", {"steps"}},
    {"max-length", {"tokens", "context"}},
    {"max-new-tokens", {"tokens"}},
    {"max-position-embeddings", {"context"}},
    {"max-seq-len", {"context"}},
    {"max-steps", {"steps"}},
    {"max-tokens", {"tokens"}},
    {"model-name-or-path", {"model"}},
    {"n-ctx", {"context"}},
    {"n-embd", {"dim"}},
    {"n-gpu-layers", {"device"}},
    {"n-head", {"heads"}},
    {"n-heads", {"heads"}},
    {"n-layer", {"depth"}},
    {"n-layers", {"depth"}},
    {"n-positions", {"context"}},
    {"n-predict", {"tokens"}},
    {"num-attention-heads", {"heads"}},
    {"num-epochs", {"epochs", "steps"}},
    {"num-heads", {"heads"}},
    {"num-hidden-layers", {"depth"}},
    {"num-key-value-heads", {"mixer.kv_heads"}},
    {"num-layers", {"depth"}},
    {"num-samples", {"count"}},
    {"num-train-epochs", {"epochs", "steps"}},
    {"out-dir", {"out"}},
    {"output", {"out"}},
    {"output-dir", {"out"}},
    {"per-device-train-batch-size", {"batch"}},
    {"predict", {"tokens"}},
    {"quantize", {"convert"}},
    {"repeat-penalty", {"repetition-penalty"}},
    {"sample", {"generate"}},
    {"save-steps", {"save-every"}},
    {"skip", {"state-dropout"}},
    {"temp", {"temperature"}},
    {"train-file", {"data"}},
    {"vocab-size", {"vocab"}},
    {"warmup-iters", {"warmup"}},
    {"warmup-steps", {"warmup"}},
    {"wd", {"weight-decay"}},
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Letters are the same in both cases, and words may be parted by - or _. */
static int plain(char letter) { return letter == '_' ? '-' : tolower((unsigned char)letter); }

static bool are_same(const char *a, const char *b)
{
    while (*a && plain(*a) == plain(*b)) a++, b++;
    return plain(*a) == plain(*b);
}

/* Optimal string alignment: how many letters to add, drop, change or swap with a neighbour.
 * d[i][j] compares the first i letters of a with the first j of b; three rows are enough. */
static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    size_t       d[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        const size_t *before = d[(i + 1) % 3], *above = d[(i - 1) % 3];
        size_t       *row = d[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1);
            row[j] = least(row[j], above[j - 1] + (plain(a[i - 1]) != plain(b[j - 1])));
            if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) &&
                plain(a[i - 2]) == plain(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

/* The place of our name among the synonyms of what was typed, from 1; 0: it is none. */
static size_t synonym(const char *typed, const char *name)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        if (!are_same(synonyms[i].theirs, typed)) continue;
        for (size_t k = 0; k < 3 && synonyms[i].ours[k]; k++)
            if (strcmp(synonyms[i].ours[k], name) == 0) return k + 1;
    }
    return 0;
}

/* How far a name is from what was typed: the same but for - and _, what others call it, a
 * beginning, then by letters. */
static size_t rank(const char *typed, const char *name)
{
    const size_t n = strlen(typed), meant = synonym(typed, name);
    if (are_same(typed, name)) return 0;
    if (meant) return meant;
    if (strncmp(name, typed, n) == 0) return BEGINS;
    const size_t wrong = distance(typed, name);
    return wrong > n / 6 + 1 || wrong >= n ? SIZE_MAX : BEGINS + wrong;
}

void dra_guess_try(dra_guess *guess, const char *name)
{
    const size_t wrong = *guess->typed ? rank(guess->typed, name) : SIZE_MAX;
    if (wrong == SIZE_MAX || (guess->best && wrong >= guess->wrong)) return;
    guess->best = name;
    guess->wrong = wrong;
}
