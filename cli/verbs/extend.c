/* dra extend: trains a model on with states that are carried from row to row, and measures its loss
 * by position before and after. It is dra eval, dra train --carry and dra eval. */
#include "io/model.h"
#include "options/value.h"
#include "verbs/verbs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct args {
    cli_source  from;
    const char *out, *text_key, *separator, *lr, *precision;
    cli_list    data, eval_data;
    int64_t     steps, batch, context, chunk, length, seed;
    bool        cross, json;
};

static const struct args defaults = {.steps = 300, .batch = 8, .length = 8192, .lr = "0.0003"};

#define AT(f) offsetof(struct args, f)

static const cli_option options[] = {
    {"model", CLI_TEXT, AT(from.model), 0, 0, "folder or file of the model", "PATH",
     .flags = CLI_A_MODEL | CLI_REQUIRED, .group = "Model", .brief = 'm'},
    {"tokenizer", CLI_TEXT, AT(from.tokenizer), 0, 0, "file or folder of a tokenizer, or bytes",
     "PATH|bytes", .unset = "the model's"},
    {"data", CLI_LIST, AT(data), 0, 0, "long texts to train on, as of dra train", "FILE",
     .flags = CLI_REQUIRED, .group = "Data", .brief = 'd'},
    {"eval-data", CLI_LIST, AT(eval_data), 0, 0, "long texts to measure the loss on", "FILE",
     .flags = CLI_REQUIRED},
    {"text-key", CLI_TEXT, AT(text_key), 0, 0, "key of the text in a line of .jsonl", "KEY",
     .unset = "text"},
    {"separator", CLI_TEXT, AT(separator), 0, 0, "a line that separates the documents of a text",
     "LINE"},
    {"cross", CLI_FLAG, AT(cross), 0, 0, "train across the ends of documents"},
    {"length", CLI_INT, AT(length), 2, INT32_MAX, "measure positions up to N"},
    {"out", CLI_TEXT, AT(out), 0, 0, "folder of the run", "DIR", .flags = CLI_REQUIRED,
     .group = "Run", .brief = 'o'},
    {"steps", CLI_INT, AT(steps), 1, 1e9, "optimizer steps", .brief = 'n'},
    {"batch", CLI_INT, AT(batch), 1, 1 << 20, "rows per step, each with a state of its own"},
    {"context", CLI_INT, AT(context), 1, 1 << 20, "tokens per row", "T", .unset = "the model's"},
    {"chunk", CLI_INT, AT(chunk), 1, 1 << 20,
     "read rows in chunks of N tokens, with gradients through them", .unset = "whole rows"},
    {"lr", CLI_TEXT, AT(lr), 0, 0, "learning rate; the model has learned already", "X"},
    {"seed", CLI_INT, AT(seed), 0, 1e15, "seed of the data order", .brief = 's'},
    {"precision", CLI_TEXT, AT(precision), 0, 0, "precision of products, as of dra train", "NAME",
     .unset = "full"},
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, AT(json), 0, 0, "print one JSON object", .brief = 'j'},
};

/* ---- commands -------------------------------------------------------------------------------- */

enum { WORDS = 256, NUMBERS = 16 };

typedef struct command { /* of another verb */
    int   n, numbers;
    char *word[WORDS];
    char  number[NUMBERS][24];
} command;

static void add_word(command *c, const char *word)
{
    if (c->n < WORDS) c->word[c->n++] = (char *)(uintptr_t)word;
}

static void add_text(command *c, const char *option, const char *text)
{
    if (!text) return;
    add_word(c, option);
    add_word(c, text);
}

/* 0: it was not given. */
static void add_number(command *c, const char *option, int64_t x)
{
    if (x <= 0 || c->numbers == NUMBERS) return;
    snprintf(c->number[c->numbers], sizeof *c->number, "%lld", (long long)x);
    add_text(c, option, c->number[c->numbers++]);
}

static void add_list(command *c, const char *option, const cli_list *list)
{
    for (size_t i = 0; i < list->count; i++) add_text(c, option, list->text[i]);
}

/* What training and measuring have in common. */
static void add_common(command *c, const struct args *a)
{
    add_text(c, "--tokenizer", a->from.tokenizer);
    add_text(c, "--text-key", a->text_key);
    add_text(c, "--separator", a->separator);
    add_text(c, "--device", a->from.device);
    add_number(c, "--threads", a->from.threads);
}

static int run_command(command *c)
{
    const cli_verb *verb = cli_verb_find(c->word[0]);
    if (c->n == WORDS) return cli_misused("extend", "more than %d words for a command", WORDS);
    return cli_verb_run(verb, c->n - 1, c->word + 1);
}

static int train_model(const struct args *a)
{
    command c = {0};
    add_word(&c, "train");
    add_text(&c, "--model", a->from.model);
    add_list(&c, "--data", &a->data);
    add_common(&c, a);
    add_word(&c, "--carry");
    if (a->cross) add_word(&c, "--cross");
    add_number(&c, "--steps", a->steps);
    add_number(&c, "--batch", a->batch);
    add_number(&c, "--context", a->context);
    add_number(&c, "--chunk", a->chunk);
    add_number(&c, "--seed", a->seed);
    add_text(&c, "--lr", a->lr);
    add_text(&c, "--precision", a->precision);
    add_text(&c, "--sample-every", "0");
    add_text(&c, "--out", a->out);
    add_word(&c, "--yes");
    return run_command(&c);
}

/* ---- losses by position ---------------------------------------------------------------------- */

enum { POSITIONS = 40, TEXT = 1 << 16 };

typedef struct position { /* tokens predicted from 2^i to 2^(i+1) - 1 tokens before them */
    long long at, tokens;
    double    loss;
} position;

typedef struct positions {
    int      n;
    position at[POSITIONS];
} positions;

/* What dra eval prints goes to a file that is gone in the end. */
static int capture_output(command *c, char text[TEXT])
{
    FILE *file = tmpfile();
    fflush(stdout);
    const int out = dup(STDOUT_FILENO);
    int       status = CLI_FAILED;
    if (file && out >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0) {
        status = run_command(c);
        fflush(stdout);
        dup2(out, STDOUT_FILENO);
        rewind(file);
        text[fread(text, 1, TEXT - 1, file)] = '\0';
    } else {
        fputs("dra: extend: no temporary file for what dra eval prints\n", stderr);
    }
    if (out >= 0) close(out);
    if (file) fclose(file);
    return status;
}

/* Losses that are no numbers are NaN. */
static void read_positions(const char *text, positions *p)
{
    static const char key[] = "{\"position\": ";
    for (text = strstr(text, key); text && p->n < POSITIONS; text = strstr(text + 1, key)) {
        position *at = &p->at[p->n];
        at->loss = NAN;
        if (sscanf(text, "{\"position\": %lld, \"tokens\": %lld, \"loss\": %lf", &at->at,
                   &at->tokens, &at->loss) >= 2)
            p->n++;
    }
}

static int measure_positions(const struct args *a, const char *model, positions *p)
{
    char   *text = calloc(1, TEXT);
    command c = {0};
    int     status = CLI_FAILED;
    add_word(&c, "eval");
    add_text(&c, "--model", model);
    add_list(&c, "--data", &a->eval_data);
    add_common(&c, a);
    add_number(&c, "--context", a->length);
    add_word(&c, "--by-position");
    add_word(&c, "--json");
    if (text)
        status = capture_output(&c, text);
    else
        fputs("dra: extend: out of memory\n", stderr);
    if (status == CLI_OK) read_positions(text, p);
    free(text);
    return status;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void write_json(const positions *before, const positions *after, FILE *out)
{
    char room[2][CLI_NUMBER];
    fputs("{\"by_position\": [", out);
    for (int i = 0; i < before->n && i < after->n; i++)
        fprintf(out, "%s{\"position\": %lld, \"tokens\": %lld, \"before\": %s, \"after\": %s}",
                i ? ", " : "", before->at[i].at, before->at[i].tokens,
                cli_json_number(before->at[i].loss, 9, room[0]),
                cli_json_number(after->at[i].loss, 9, room[1]));
    fputs("]}\n", out);
}

static void write_table(const positions *before, const positions *after)
{
    printf("%12s  %10s  %10s  %10s\n", "tokens read", "predicted", "before", "after");
    for (int i = 0; i < before->n && i < after->n; i++)
        printf("%12lld  %10lld  %10.4f  %10.4f\n", before->at[i].at, before->at[i].tokens,
               before->at[i].loss, after->at[i].loss);
}

static dra_status save_json(const struct args *a, const positions *before, const positions *after,
                            dra_error *err)
{
    char       path[4096], *text = NULL;
    size_t     bytes = 0;
    FILE      *memory = dra_stream_memory(&text, &bytes);
    dra_status st = DRA_OK;
    if (memory) write_json(before, after, memory);
    const bool failed = !memory || ferror(memory);
    if ((memory && fclose(memory) != 0) || failed)
        st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK && !cli_path(a->out, "extend.json", path, sizeof path))
        st = cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", a->out);
    if (st == DRA_OK) st = dra_file_write(path, text, bytes, err);
    free(text);
    return st;
}

static int run_extend(const void *args)
{
    const struct args *a = args;
    positions          before = {0}, after = {0};
    dra_error          err = {0};
    int                status = measure_positions(a, a->from.model, &before);
    if (status == CLI_OK) status = train_model(a);
    if (status == CLI_OK) status = measure_positions(a, a->out, &after);
    if (status != CLI_OK) return status;
    if (save_json(a, &before, &after, &err) != DRA_OK) return cli_fail(&err);
    if (a->json)
        write_json(&before, &after, stdout);
    else
        write_table(&before, &after);
    return CLI_OK;
}

static const cli_note files[] = {
    {"DIR", "a run of dra train, which --resume there continues"},
    {"DIR/extend.json", "losses by position, before and after"},
    {0},
};

static const cli_note examples[] = {
    {"dra train --preset dra-delta-tiny --data book.txt --context 64 --out short",
     "a model that has seen short rows alone"},
    {"dra extend --model short --data book.txt --eval-data other.txt --length 512 --steps 20 --out "
     "longer",
     "from the length it was trained on to 512 tokens"},
    {0},
};

const cli_verb cmd_extend = {
    .name = "extend",
    .summary = "train a model for longer texts, with losses by position",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_extend,
    .group = "Train",
    .about =
        "A recurrent model that was trained on short rows may get worse the further it reads "
        "beyond them: it has never met the states it gets into. Some hundred steps on rows that "
        "continue where the ones before stopped, with their state, are enough to mend this.\n"
        "The verb measures the loss on --eval-data by how many tokens were read, trains with "
        "--carry, and measures again: it is dra eval --by-position, dra train --carry and dra eval "
        "--by-position. Documents shorter than --length say nothing of positions beyond their "
        "end. A model whose state would grow without limit is refused by dra train.",
    .files = files,
    .examples = examples,
    .also = "train eval tune-state",
};
