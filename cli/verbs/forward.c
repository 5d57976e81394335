/* dra forward: what a model makes of tokens, as tensors in a file. */
#include "verbs/forward/forward.h"
#include "options/value.h"

#include <string.h>

static const forward_args defaults = {.from = {.state_limit = DRA_STATE_LIMIT}};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(forward_args),
    {"tokens", CLI_TEXT, offsetof(forward_args, tokens), 0, 0, "ids to read: 1,2,3 or @FILE",
     "LIST|@FILE", .group = "Input"},
    {"text", CLI_LIST, offsetof(forward_args, text), 0, 0,
     "or a text to read, -: stdin; repeated: rows of a batch, shorter ones padded, with their "
     "lengths among the outputs; implies --unpadded",
     "TEXT"},
    CLI_TOKENIZER_OPTION(forward_args),
    {"inputs", CLI_TEXT, offsetof(forward_args, inputs), 0, 0,
     "or safetensors with ids (T) or (B, T), or embeddings x (T, C) or (B, T, C); and mask (0 is "
     "a pad), reset (1 starts a segment), targets; for other models their inputs, by name",
     "FILE"},
    {"resets", CLI_TEXT, offsetof(forward_args, resets), 0, 0,
     "start a new segment before these tokens, counted from 0, in every row: 5,9", "LIST"},
    {"chunks", CLI_TEXT, offsetof(forward_args, chunks), 0, 0,
     "read in chunks of these lengths, then the rest: 3,1,7", "LIST"},
    {"state-in", CLI_TEXT, offsetof(forward_args, state_in), 0, 0, "continue from a state file",
     "FILE"},
    {"rwkv-state", CLI_TEXT, offsetof(forward_args, rwkv_state), 0, 0,
     "or from Hugging Face's state of RWKV: tensors state.0, state.1, ..., (B, channels, L)",
     "FILE"},
    {"cache", CLI_TEXT, offsetof(forward_args, cache), 0, 0,
     "or from a cache of transformers: layers.L.keys, .values, .conv_states, .recurrent_states",
     "FILE"},
    CLI_STATE_LIMIT_OPTION(forward_args),
    {"out", CLI_TEXT, offsetof(forward_args, out), 0, 0, "safetensors to write", "FILE",
     .flags = CLI_WRITES | CLI_TENSORS | CLI_REQUIRED, .group = "Output", .brief = 'o'},
    {"outputs", CLI_TEXT, offsetof(forward_args, outputs), 0, 0,
     "which of logits, hidden, streams, branches, hiddens, adds, attentions, scores, state, "
     "rwkv-state, cache, out, numbers, loss",
     "LIST", .unset = "logits, or the output of the model's head"},
    {"keep", CLI_INT, offsetof(forward_args, keep), 0, INT32_MAX,
     "only the logits of the last N tokens", .unset = "all"},
    {"positions", CLI_TEXT, offsetof(forward_args, positions), 0, 0,
     "or those of these positions, in this order: 0,5,7; negative ones count from the end", "LIST"},
    {"unpadded", CLI_FLAG, offsetof(forward_args, unpadded), 0, 0,
     "leave spare columns out of attentions and scores"},
    {"state-out", CLI_TEXT, offsetof(forward_args, state_out), 0, 0, "save the state afterwards",
     "FILE", .flags = CLI_WRITES},
    CLI_DTYPE_OPTION(forward_args),
    CLI_ACTIVATIONS_OPTION(forward_args),
    CLI_CACHE_OPTION(forward_args, "cache-dtype"),
    CLI_DEVICE_OPTIONS(forward_args),
};

static int read_outputs(forward_work *w)
{
    static const char *const names[] = {"logits", "hidden",     "streams", "branches", "hiddens",
                                        "adds",   "attentions", "scores",  "state",    "rwkv-state",
                                        "cache",  "out",        "numbers", "loss"};
    bool *const              wanted[] = {&w->logits,
                                         &w->hidden,
                                         &w->stack[FORWARD_STREAMS].wanted,
                                         &w->stack[FORWARD_BRANCHES].wanted,
                                         &w->stack[FORWARD_HIDDENS].wanted,
                                         &w->stack[FORWARD_ADDS].wanted,
                                         &w->maps,
                                         &w->scores,
                                         &w->state,
                                         &w->rwkv_state,
                                         &w->cache,
                                         &w->head[FORWARD_OUT].wanted,
                                         &w->head[FORWARD_NUMBERS].wanted,
                                         &w->loss};
    char                     quoted[80], word[32];
    for (const char *at = w->a->outputs ? w->a->outputs : ""; *at;) {
        const size_t n = strcspn(at, ",");
        size_t       i = 0;
        while (i < COUNT(names) && (strlen(names[i]) != n || strncmp(names[i], at, n) != 0)) i++;
        if (i == COUNT(names)) {
            snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), at);
            return cli_misused(
                "forward",
                "--outputs: expected logits, hidden, streams, branches, hiddens, "
                "adds, attentions, scores, state, rwkv-state, cache, out, numbers, loss, found %s",
                cli_quote(word, quoted, sizeof quoted));
        }
        *wanted[i] = true;
        at += n + (at[n] == ',');
    }
    return CLI_OK;
}

/* Refuses what an encoder cannot do: it has no state between parts of a text. */
static int check_encoder(const forward_work *w)
{
    const forward_args *a = w->a;
    const struct {
        bool        given;
        const char *name;
    } refused[] = {{a->chunks, "--chunks"},       {a->state_in, "--state-in"},
                   {a->state_out, "--state-out"}, {a->rwkv_state, "--rwkv-state"},
                   {w->state, "--outputs state"}, {w->rwkv_state, "--outputs rwkv-state"},
                   {a->cache, "--cache"},         {w->cache, "--outputs cache"}};
    for (size_t i = 0; i < COUNT(refused); i++)
        if (refused[i].given && cli_is_encoder(&a->from))
            return cli_misused("forward",
                               "%s: the model is an encoder, which reads a text as a whole and "
                               "has no state",
                               refused[i].name);
    return CLI_OK;
}

static int check_args(forward_work *w)
{
    const forward_args *a = w->a;
    const int           status = cli_source_check("forward", &a->from);
    if (status != CLI_OK) return status;
    if (!!a->tokens + !!a->inputs + !!a->text.count != 1)
        return cli_misused("forward", "expected one of --tokens, --text and --inputs");
    if (a->positions && a->keep)
        return cli_misused("forward", "expected only one of --keep and --positions");
    if (!!a->state_in + !!a->rwkv_state + !!a->cache > 1)
        return cli_misused("forward", "expected only one of --state-in, --rwkv-state and --cache");
    return read_outputs(w) == CLI_OK ? check_encoder(w) : CLI_USAGE;
}

static int run_forward(const void *args)
{
    forward_work w = {.a = args};
    dra_error    err = {0};
    const int    status = check_args(&w);
    if (status != CLI_OK) return status;
    dra_status st = forward_open(&w, &err);
    if (st == DRA_OK) st = forward_read(&w, &err);
    if (st == DRA_OK) st = forward_write(&w, &err);
    if (w.reader) cli_clamp_report("forward", &w.a->from, dra_reader_clamped(w.reader));
    forward_close(&w);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra forward --model model --tokens 1,2,3,4,5 --out whole.safetensors",
     "logits of five tokens"},
    {"dra forward --model model --tokens 1,2,3,4,5 --chunks 3,1 --out parts.safetensors",
     "the same, read in chunks of 3, 1 and 1 tokens"},
    {"dra forward --model model --text \"Once upon\" --outputs attentions --out maps.safetensors",
     "what the tokens of a text attend to"},
    {"dra forward --model model --tokens 1,2 --outputs hidden,state --out two.safetensors",
     "hidden states and the state"},
    {0},
};

const cli_verb cmd_forward = {
    .name = "forward",
    .summary = "run a model on tokens or texts and write its outputs",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_forward,
    .group = "Use",
    .about =
        "Runs a model on tokens or texts and writes its outputs to a safetensors file: logits (T, "
        "V) and, with --outputs, also hidden (T, C), streams (L + 1, T, C), branches (L, T, C), "
        "hiddens (S + 1, T, C) and adds (S, T, C) of all S sublayers as they are executed, the "
        "layers' attentions, their scores and the state (state), for RWKV also in Hugging Face's "
        "form (rwkv-state), for models of attention, delta, moment and shortconv as a cache of "
        "transformers (cache). With ids (B, T) there is an axis B in front; in streams, branches, "
        "hiddens and adds it follows the first.\n"
        "--text reads texts by the model's tokenizer: one as --tokens reads its ids, several as "
        "rows of a batch. Each row gets the numbers it would get alone, 0 after its end, and "
        "`lengths` (B) says where that is.\n"
        "Tokens after a reset are read as a text of their own: the result is that of reading the "
        "segments apart.\n"
        "An encoder reads all tokens at once: neither --chunks nor states.\n"
        "Reading the tokens whole, in --chunks, or in several calls through state files gives the "
        "same numbers. They have the same bits where all layers have an append, ema, ssm, gru, "
        "lstm, wkv or slots memory. Delta and moment memories (retention is a moment memory) "
        "compute in blocks of 64 tokens that are counted from the start of each chunk: the bits "
        "are the same if all chunks but the last are multiples of 64 tokens, else the numbers "
        "agree up to rounding, to about 1e-5 of the largest.",
    .examples = examples,
    .also = "grad generate",
};
