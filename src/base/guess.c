/* The name closest to what was typed. */
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
    {"amp", {"precision"}},
    {"batch-size", {"batch"}},
    {"benchmark", {"bench"}},
    {"bf16", {"precision", "dtype"}},
    {"bind", {"host"}},
    {"block-size", {"context"}},
    {"checkpoint", {"model"}},
    {"checkpoint-every", {"save-every"}},
    {"checkpoint-interval", {"save-every"}},
    {"ckpt", {"model"}},
    {"complete", {"generate"}},
    {"create", {"init"}},
    {"ctx", {"context"}},
    {"ctx-size", {"context"}},
    {"cuda", {"device"}},
    {"d-model", {"dim"}},
    {"dataset", {"data"}},
    {"describe", {"info"}},
    {"do-sample", {"temperature"}},
    {"dst", {"to"}},
    {"dtype", {"precision"}},
    {"epoch", {"epochs", "steps"}},
    {"epochs", {"steps"}},
    {"eval-interval", {"eval-every"}},
    {"eval-steps", {"eval-every"}},
    {"evaluate", {"eval"}},
    {"exit", {"quit"}},
    {"export", {"convert"}},
    {"file", {"prompt-file"}},
    {"finetune", {"train"}},
    {"forget", {"forgetful-mask"}},
    {"format", {"as", "data-format"}},
    {"fp16", {"precision", "dtype"}},
    {"ggml", {"gguf"}},
    {"gpu", {"device"}},
    {"grad-clip", {"clip"}},
    {"gradient-accumulation-steps", {"accumulate"}},
    {"greedy", {"temperature"}},
    {"grid", {"set"}},
    {"guard", {"clamp-states"}},
    {"guard-steps", {"clamp-steps"}},
    {"hidden", {"dim"}},
    {"hidden-size", {"dim"}},
    {"huggingface", {"hf"}},
    {"import", {"convert"}},
    {"infer", {"generate"}},
    {"inference", {"generate"}},
    {"init-from", {"model"}},
    {"input", {"data", "prompt", "from"}},
    {"inspect", {"info"}},
    {"intermediate-size", {"ff.dim"}},
    {"iters", {"steps"}},
    {"layers", {"depth"}},
    {"learning-rate", {"lr"}},
    {"limit", {"tokens", "max-tokens"}},
    {"list", {"presets"}},
    {"llama.cpp", {"gguf"}},
    {"load", {"state-in"}},
    {"log-interval", {"log-every"}},
    {"log-steps", {"log-every"}},
    {"logging-steps", {"log-every"}},
    {"logit-pull", {"l2wrap"}},
    {"lr-schedule", {"schedule"}},
    {"lr-scheduler-type", {"schedule"}},
    {"ls", {"presets"}},
    {"max-grad-norm", {"clip"}},
    {"max-iters", {"steps"}},
    {"max-length", {"tokens", "context"}},
    {"max-new-tokens", {"tokens", "max_tokens"}},
    {"max-position-embeddings", {"context"}},
    {"max-seq-len", {"context"}},
    {"max-seq-length", {"context"}},
    {"max-steps", {"steps"}},
    {"max-tokens", {"tokens", "steps"}},
    {"model-name-or-path", {"model"}},
    {"models", {"presets"}},
    {"n-ctx", {"context"}},
    {"n-embd", {"dim"}},
    {"n-gpu-layers", {"device"}},
    {"n-head", {"heads"}},
    {"n-heads", {"heads"}},
    {"n-layer", {"depth"}},
    {"n-layers", {"depth"}},
    {"n-positions", {"context"}},
    {"n-predict", {"tokens", "max_tokens"}},
    {"new", {"init"}},
    {"num-attention-heads", {"heads"}},
    {"num-beams", {"beam"}},
    {"num-epochs", {"epochs", "steps"}},
    {"num-heads", {"heads"}},
    {"num-hidden-layers", {"depth"}},
    {"num-key-value-heads", {"mixer.kv_heads"}},
    {"num-layers", {"depth"}},
    {"num-return-sequences", {"count"}},
    {"num-samples", {"count"}},
    {"num-tokens", {"tokens"}},
    {"num-train-epochs", {"epochs", "steps"}},
    {"out-dir", {"out"}},
    {"outfile", {"to", "out"}},
    {"output", {"out", "to"}},
    {"output-dir", {"out"}},
    {"output-file", {"out"}},
    {"outtype", {"dtype"}},
    {"parallel", {"slots"}},
    {"param", {"set"}},
    {"per-device-train-batch-size", {"batch"}},
    {"plot", {"report"}},
    {"ppl", {"perplexity"}},
    {"predict", {"tokens"}},
    {"quantise", {"convert"}},
    {"quantize", {"convert"}},
    {"random-seed", {"seed"}},
    {"rep-penalty", {"repetition-penalty"}},
    {"repeat-penalty", {"repetition-penalty", "repetition_penalty"}},
    {"resume-from", {"resume"}},
    {"resume-from-checkpoint", {"resume"}},
    {"run", {"generate"}},
    {"sample", {"generate"}},
    {"save", {"state-out", "save-every"}},
    {"save-interval", {"save-every"}},
    {"save-steps", {"save-every"}},
    {"schema", {"json-schema"}},
    {"score", {"eval"}},
    {"seq-len", {"context"}},
    {"seq-length", {"context"}},
    {"sequence-length", {"context"}},
    {"show", {"info"}},
    {"skip", {"state-dropout"}},
    {"softmax", {"attention", "gpt2-tiny"}},
    {"src", {"from"}},
    {"talk", {"chat"}},
    {"temp", {"temperature"}},
    {"template", {"chat-template"}},
    {"test", {"eval"}},
    {"tokens", {"steps"}},
    {"total-tokens", {"steps"}},
    {"train-file", {"data"}},
    {"train-tokens", {"steps"}},
    {"transformer", {"attention", "gpt2-tiny"}},
    {"transformers", {"hf"}},
    {"trials", {"seeds"}},
    {"val-data", {"eval-data"}},
    {"valid-data", {"eval-data"}},
    {"version", {"--version"}},
    {"vocab-size", {"vocab"}},
    {"wandb", {"tensorboard"}},
    {"warmup-iters", {"warmup"}},
    {"warmup-steps", {"warmup"}},
    {"wd", {"weight-decay"}},
    {"xt", {"x-transformers"}},
};

static size_t pick_less(size_t a, size_t b) { return a < b ? a : b; }

/* Case does not matter, and - and _ are the same. */
static int fold_letter(char letter) { return letter == '_' ? '-' : tolower((unsigned char)letter); }

static bool are_same(const char *a, const char *b)
{
    while (*a && fold_letter(*a) == fold_letter(*b)) a++, b++;
    return fold_letter(*a) == fold_letter(*b);
}

/* Optimal string alignment: how many letters to add, drop, change or swap with a neighbour.
 * d[i][j] compares the first i letters of a with the first j of b; three rows are enough. */
static size_t count_edits(const char *a, const char *b)
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
            row[j] = pick_less(above[j] + 1, row[j - 1] + 1);
            row[j] = pick_less(row[j],
                               above[j - 1] + (fold_letter(a[i - 1]) != fold_letter(b[j - 1])));
            if (i > 1 && j > 1 && fold_letter(a[i - 1]) == fold_letter(b[j - 2]) &&
                fold_letter(a[i - 2]) == fold_letter(b[j - 1]))
                row[j] = pick_less(row[j], before[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

/* The place of our name among the synonyms of what was typed, from 1; 0: not a synonym. */
static size_t find_synonym(const char *typed, const char *name)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        if (!are_same(synonyms[i].theirs, typed)) continue;
        for (size_t k = 0; k < 3 && synonyms[i].ours[k]; k++)
            if (strcmp(synonyms[i].ours[k], name) == 0) return k + 1;
    }
    return 0;
}

/* The distance of a name from what was typed: equal but for - and _, then synonyms, then prefixes,
 * then by letters. */
static size_t rank_name(const char *typed, const char *name)
{
    const size_t n = strlen(typed), meant = find_synonym(typed, name);
    if (are_same(typed, name)) return 0;
    if (meant) return meant;
    if (n > 1 && strncmp(name, typed, n) == 0) return BEGINS;
    const size_t wrong = count_edits(typed, name);
    return wrong > n / 6 + 1 || wrong >= n ? SIZE_MAX : BEGINS + wrong;
}

void dra_guess_try(dra_guess *guess, const char *name)
{
    const size_t wrong = *guess->typed ? rank_name(guess->typed, name) : SIZE_MAX;
    if (wrong == SIZE_MAX || (guess->best && wrong >= guess->wrong)) return;
    guess->best = name;
    guess->wrong = wrong;
}
