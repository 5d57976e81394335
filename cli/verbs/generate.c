/* dra generate: continue a text. */
#include "verbs/generate/continuing.h"
#include "verbs/generate/drafting.h"
#include "io/memory.h"
#include "verbs/generate/prompt_read.h"
#include "verbs/generate/prompts.h"
#include "verbs/generate/search.h"
#include "options/units.h"
#include "verbs/generate/unmasking.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct args {
    cli_source     from;
    cli_sampling   how;
    cli_search     search;
    cli_draft_args draft;
    cli_continuing other;
    cli_unmasking  unmask;
    cli_list       prompt;
    const char    *prompt_file, *prompt_tokens, *prompts, *state_in, *state_out;
    const char    *grammar, *schema;
    int64_t        count, batch, logprobs;
    bool           prefix, echo, json;
};

static const struct args defaults = {.from = {.state_limit = DRA_STATE_LIMIT},
                                     .how = {CLI_SAMPLING, .tokens = 128},
                                     .search = {CLI_SEARCH},
                                     .other = {CLI_CONTINUING},
                                     .count = 1};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(struct args),
    {"prompt", CLI_LIST, offsetof(struct args, prompt), 0, 0, "text to continue; -: stdin", "TEXT",
     .flags = CLI_ALSO_PLACED | CLI_ONE_PLACE, .group = "Prompt", .brief = 'p'},
    {"prompt-file", CLI_TEXT, offsetof(struct args, prompt_file), 0, 0, "the same from a file",
     "FILE|-"},
    {"prompts", CLI_TEXT, offsetof(struct args, prompts), 0, 0,
     "prompts from JSON lines: prompt or ids, perhaps seed and tokens; prints a line for each",
     "FILE|-"},
    {"batch", CLI_INT, offsetof(struct args, batch), 0, 4096, "prompts of --prompts at a time",
     .unset = "8"},
    {"prompt-tokens", CLI_TEXT, offsetof(struct args, prompt_tokens), 0, 0,
     "the same as ids; a model without a tokenizer then prints ids", "LIST|@FILE"},
    {"prefix", CLI_FLAG, offsetof(struct args, prefix), 0, 0,
     "the prompt is a prefix, whose tokens see each other; of a model with visible prefix"},
    CLI_TOKENIZER_OPTION(struct args),
    {"count", CLI_INT, offsetof(struct args, count), 1, 4096,
     "samples of each prompt, with seeds one apart"},
    {"echo", CLI_FLAG, offsetof(struct args, echo), 0, 0, "print the prompts, too"},
    CLI_SAMPLING_OPTIONS(struct args),
    CLI_STOP_OPTIONS(struct args),
    {"logprobs", CLI_INT, offsetof(struct args, logprobs), 0, INT32_MAX,
     "in JSON: log-probabilities of the tokens and of the N most likely ones, by the model's own "
     "distribution, before temperature and filters",
     .unset = "none", .group = "Tokens"},
    CLI_BIAS_OPTION(struct args),
    CLI_GRAMMAR_OPTIONS(struct args),
    CLI_SEARCH_OPTIONS(struct args),
    CLI_DRAFT_OPTIONS(struct args),
    CLI_UNMASKING_OPTIONS(struct args),
    CLI_CONTINUING_OPTIONS(struct args),
    CLI_STATE_OPTIONS(struct args),
    CLI_RAW_OPTION(struct args),
    CLI_DTYPE_OPTION(struct args),
    CLI_ACTIVATIONS_OPTION(struct args),
    CLI_CACHE_OPTION(struct args, "cache"),
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

typedef struct page { /* the text of a row, if it is not printed as it comes */
    char  *text;
    size_t n, room;
} page;

typedef struct work {
    const struct args *a;
    cli_model          m;
    dra_ids           *prompt; /* one for each */
    size_t             prompts;
    int64_t            rows, beams; /* beams: of each row; 0: no search */
    cli_amateurs       amateurs;
    cli_drafting       drafting;
    cli_biases         biases;
    cli_stops          stops;
    dra_grammar       *grammar;
    dra_generator     *generator;
    page              *pages; /* (rows), of a search (rows, beams), as are beam */
    dra_generated     *out;   /* (rows) */
    dra_beam          *beam;
    cli_text_out       text;
    double             reading, writing; /* seconds */
} work;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* The first Ctrl-C ends the text, a second one the program. What is being written arrives. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

static bool is_streamed(const work *w) { return w->rows == 1 && !w->a->json && !w->beams; }

/* The text of a row, the best of a search. */
static const page *page_of(const work *w, int64_t row)
{
    return &w->pages[w->beams ? row * w->beams : row];
}

/* ---- how the model likes to write ------------------------------------------------------------ */

/* Whether tokens follow each other, from left to right. */
static bool is_text(const struct args *a) { return !a->other.inputs && !a->unmask.steps; }

/* --tokens below 0 counts the prompt. */
static int prepare_sampling(const void *args, void *own)
{
    const struct args *a = args;
    cli_sampling      *to = &((struct args *)own)->how;
    const int          status = cli_sampling_habits(a->from.model, to);
    cli_sampling_draw(to);
    cli_search_habits(&a->search, to);
    if (!is_text(a)) cli_sampling_forget(to, DRA_SAMPLER_TEXT);
    if (!to->habits.tokens && to->habits.length) to->tokens = -to->habits.length;
    if (a->unmask.steps && !to->habits.tokens) to->tokens = -1; /* as the prompt has it */
    return status;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Options that are about texts alone. */
static int check_other(const struct args *a, const char *with)
{
    const bool unmask = a->unmask.steps;
    const struct {
        bool        given;
        const char *name;
    } refused[] = {{a->prompt.count && !unmask, "--prompt"},
                   {a->prompt_file && !unmask, "--prompt-file"},
                   {a->prompt_tokens && !unmask, "--prompt-tokens"},
                   {a->prompts, "--prompts"},
                   {a->batch, "--batch"},
                   {a->logprobs, "--logprobs"},
                   {a->how.bias.count, "--logit-bias"},
                   {a->grammar, "--grammar"},
                   {a->schema, "--json-schema"},
                   {a->state_in, "--state-in"},
                   {a->state_out, "--state-out"},
                   {a->count > 1 && !unmask, "--count"},
                   {a->prefix, "--prefix"},
                   {a->echo, "--echo"},
                   {a->how.stop.count, "--stop"},
                   {a->how.stop_tokens.count, "--stop-tokens"},
                   {a->search.beam && !is_text(a), "--beam"},
                   {a->search.amateur.count, "--amateur"},
                   {a->draft.from, "--draft"}};
    const dra_sampler_option *text = dra_sampler_find(&a->how.sampler, DRA_SAMPLER_TEXT);
    int                       status = cli_continue_check(&a->other);
    if (status == CLI_OK && text && !is_text(a))
        return cli_misused("generate", "--%s: expected none of it with %s", text->option, with);
    for (size_t i = 0; i < COUNT(refused) && status == CLI_OK; i++)
        if (refused[i].given)
            return cli_misused("generate", "%s: expected none of it with %s", refused[i].name,
                               with);
    if (status == CLI_OK) status = cli_sampling_check("generate", &a->how);
    return status == CLI_OK ? cli_search_check("generate", &a->search, &a->how, 1) : status;
}

/* Options that go with --prompts, and others that do not. */
static int check_prompts(const struct args *a)
{
    const struct {
        bool        given;
        const char *name;
    } refused[] = {{a->state_in, "--state-in"},
                   {a->state_out, "--state-out"},
                   {a->echo, "--echo"},
                   {a->search.beam, "--beam"}};
    size_t inputs = 0;
    for (size_t i = 0; i < a->prompt.count; i++) inputs += strcmp(a->prompt.text[i], "-") == 0;
    if (inputs > 1) return cli_misused("generate", "--prompt: stdin can be read once");
    if (a->grammar && a->schema)
        return cli_misused("generate", "expected one of --grammar and --json-schema");
    if (a->logprobs && a->search.beam)
        return cli_misused("generate", "--logprobs: not with --beam");
    if (a->logprobs && !a->json && !a->prompts)
        return cli_misused("generate", "--logprobs: expected --json or --prompts");
    if (a->batch && !a->prompts) return cli_misused("generate", "--batch: expected --prompts");
    for (size_t i = 0; i < COUNT(refused) && a->prompts; i++)
        if (refused[i].given)
            return cli_misused("generate", "%s: not with --prompts", refused[i].name);
    return CLI_OK;
}

static int check_args(const struct args *a)
{
    const int n = (a->prompt.count > 0) + !!a->prompt_file + !!a->prompt_tokens + !!a->prompts;
    int       status = cli_source_check("generate", &a->from);
    if (status != CLI_OK) return status;
    if (cli_continues(&a->other) && a->unmask.steps)
        return cli_misused("generate", "--unmask: expected none of it with --inputs and --source");
    if (cli_continues(&a->other)) return check_other(a, a->other.inputs ? "--inputs" : "--source");
    status = cli_language_check("generate", &a->from, "; see --inputs and --source");
    if (status == CLI_OK) status = cli_unmask_check(&a->unmask, &a->from);
    if (status == CLI_OK && !a->unmask.steps)
        status = cli_causal_check("generate", &a->from,
                                  "writes no text: its tokens see later ones; see --unmask");
    if (status != CLI_OK) return status;
    if (n > 1)
        return cli_misused(
            "generate", "expected one of --prompt, --prompt-file, --prompt-tokens and --prompts");
    if (a->unmask.steps) return check_other(a, "--unmask");
    if (n == 0 && !a->state_in)
        return cli_misused("generate", "nothing to continue: expected --prompt or --state-in");
    status = check_prompts(a);
    if (status == CLI_OK) status = cli_sampling_check("generate", &a->how);
    if (status != CLI_OK) return status;
    status = cli_draft_check("generate", &a->draft);
    return status == CLI_OK ? cli_search_check("generate", &a->search, &a->how, a->count) : status;
}

static dra_status encode_text(const work *w, const char *text, size_t bytes, dra_ids *out,
                              dra_error *err)
{
    if (w->a->state_in)
        return dra_encode_as(w->m.tokenizer, text, bytes, DRA_ENCODE_REST, out, err);
    if (w->a->unmask.steps && bytes == 0) return dra_encode(w->m.tokenizer, text, bytes, out, err);
    return cli_prompt_encode(w->m.tokenizer, text, bytes, out, err);
}

/* A prompt of the command line, or a file; "-" is stdin in both. */
static dra_status encode_input(const work *w, const char *text, bool file, dra_ids *out,
                               dra_error *err)
{
    char  *read = NULL;
    size_t bytes = 0;
    if (!file && strcmp(text, "-") != 0) return encode_text(w, text, strlen(text), out, err);
    dra_status st = cli_input_read(text, &read, &bytes, err);
    if (st == DRA_OK) st = encode_text(w, read, bytes, out, err);
    free(read);
    return st;
}

static dra_status read_prompts(work *w, dra_error *err)
{
    const struct args *a = w->a;
    dra_status         st = DRA_OK;
    w->prompts = a->prompt.count ? a->prompt.count : 1;
    w->prompt = calloc(w->prompts, sizeof *w->prompt);
    if (!w->prompt) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < a->prompt.count && st == DRA_OK; i++)
        st = encode_input(w, a->prompt.text[i], false, &w->prompt[i], err);
    if (st == DRA_OK && a->prompt_tokens)
        st = cli_ids_read("--prompt-tokens", a->prompt_tokens, &w->prompt[0], err);
    if (st == DRA_OK && a->prompt_file)
        st = encode_input(w, a->prompt_file, true, &w->prompt[0], err);
    return st;
}

/* ---- reading and writing --------------------------------------------------------------------- */

static dra_status open_generator(work *w, dra_error *err)
{
    const struct args *a = w->a;
    const size_t       rows = (size_t)w->rows, texts = rows * (size_t)(w->beams ? w->beams : 1);
    w->pages = calloc(texts, sizeof *w->pages);
    w->beam = calloc(texts, sizeof *w->beam);
    w->out = calloc(rows, sizeof *w->out);
    if (!w->pages || !w->beam || !w->out) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    const dra_generator_config c = {.model = w->m.model,
                                    .weights = w->m.weights,
                                    .device = w->m.device,
                                    .tokenizer = w->m.tokenizer,
                                    .sampler = cli_sampler_config(&a->how, &w->biases),
                                    .rows = w->rows,
                                    .samples = a->prompts ? 1 : a->count,
                                    .state_limit = cli_clamp_limit(&a->from),
                                    .n_amateurs = (int)w->amateurs.count,
                                    .amateurs = w->amateurs.list,
                                    .alpha = a->search.alpha,
                                    .beta = a->search.beta,
                                    .draft = w->drafting.draft,
                                    .prefix = a->prefix,
                                    .grammar = w->grammar};
    return dra_generator_create(&c, &w->generator, err);
}

static dra_status open_model(work *w, dra_error *err)
{
    const struct args *a = w->a;
    const bool         none = !a->prompt.count && !a->prompt_file; /* texts */
    const bool         ids = a->prompt_tokens || a->prompts || (a->unmask.steps && none);
    dra_status         st = cli_model_open(&a->from, &w->m, err);
    if (st == DRA_OK)
        st = (ids ? cli_model_tokenizer_if : cli_model_tokenizer)(&a->from, &w->m, err);
    return st == DRA_OK ? read_prompts(w, err) : st;
}

static dra_status open_all(work *w, dra_error *err)
{
    const struct args *a = w->a;
    dra_status         st = open_model(w, err);
    if (st == DRA_OK)
        st = cli_biases_open(&a->how.bias, w->m.tokenizer, dra_model_config_of(w->m.model)->vocab,
                             &w->biases, err);
    if (st == DRA_OK) st = cli_stops_open(&a->how, &w->stops, err);
    if (st == DRA_OK) st = cli_grammar_open(a->grammar, a->schema, &w->grammar, err);
    if (st != DRA_OK) return st;
    w->rows = a->prompts ? (a->batch ? a->batch : 8) : (int64_t)w->prompts * a->count;
    w->beams = a->search.beam;
    st = cli_amateurs_open(&a->search, &a->from, w->m.tokenizer, &w->amateurs, err);
    if (st == DRA_OK) st = cli_draft_open(&a->draft, &a->from, w->m.tokenizer, &w->drafting, err);
    return st == DRA_OK ? open_generator(w, err) : st;
}

/* A prompt is read once, for the first of its samples. */
static dra_status feed_prompts(work *w, dra_error *err)
{
    const int64_t count = w->a->count;
    const double  start = cli_now();
    cli_status    status;
    cli_status_open(&status, stderr);
    dra_status st = w->a->state_in ? dra_generator_load(w->generator, w->a->state_in, err) : DRA_OK;
    for (int64_t row = 0; row < w->rows && st == DRA_OK; row++) {
        const dra_ids *p = &w->prompt[row / count];
        const int64_t  first = row - row % count;
        if (row > first && p->n)
            st = dra_generator_copy(w->generator, row, first, err);
        else
            st = cli_prompt_read(w->generator, w->m.model, row, p, &status, err);
    }
    w->reading = cli_now() - start;
    return st;
}

static bool put_text(void *user, int64_t row, const char *text, size_t bytes)
{
    work *w = user;
    page *p = &w->pages[row];
    if (is_streamed(w)) {
        cli_text_out_put(&w->text, text, bytes);
        if (bytes) fflush(stdout);
        return !interrupted && !ferror(stdout);
    }
    if (p->n + bytes > p->room) {
        const size_t room = 2 * (p->n + bytes);
        char        *more = realloc(p->text, room);
        if (!more) {
            cli_memory_note(DRA_ERR_MEMORY);
            return false;
        }
        p->text = more;
        p->room = room;
    }
    if (bytes) memcpy(p->text + p->n, text, bytes);
    p->n += bytes;
    return !interrupted;
}

static bool has_echo(const work *w) { return w->a->echo && w->m.tokenizer; }

static dra_status check_echo(const work *w, int64_t row, dra_error *err)
{
    const dra_ids *p = &w->prompt[row / w->a->count];
    size_t         bytes;
    for (size_t i = 0; i < p->n && has_echo(w); i++)
        if (!dra_tokenizer_piece(w->m.tokenizer, p->data[i], &bytes))
            return cli_error(err, DRA_ERR_INDEX,
                             "--echo: the tokenizer has no token %d, number %zu of the prompt",
                             p->data[i], i);
    return DRA_OK;
}

static void echo_prompt(work *w, int64_t row)
{
    const dra_ids *p = &w->prompt[row / w->a->count];
    size_t         bytes;
    for (size_t i = 0; i < p->n && has_echo(w); i++) {
        const char *piece = dra_tokenizer_piece(w->m.tokenizer, p->data[i], &bytes);
        cli_text_out_put(&w->text, piece, bytes);
    }
}

/* New tokens where prompt and text have a limit together; at least one. */
static int64_t tokens_left(const work *w)
{
    size_t longest = 0;
    for (size_t i = 0; i < w->prompts; i++)
        if (w->prompt[i].n > longest) longest = w->prompt[i].n;
    const int64_t left = -w->a->how.tokens - (int64_t)longest;
    return left > 0 ? left : 1;
}

static dra_status run_search(work *w, const dra_generate_config *c, dra_error *err)
{
    const cli_search     *s = &w->a->search;
    const dra_beam_config how = {s->beam, s->length_penalty, s->noise};
    const dra_status      st = dra_generate_beam(w->generator, c, &how, w->beam, err);
    for (int64_t b = 0; b < w->rows && st == DRA_OK; b++) w->out[b] = w->beam[b * w->beams].text;
    return st;
}

static dra_status write_text(work *w, dra_error *err)
{
    const struct args  *a = w->a;
    dra_generate_config c = cli_generate_config(&a->how, &w->stops);
    if (c.tokens < 0) c.tokens = tokens_left(w);
    c.logprobs = a->logprobs;
    c.write = put_text;
    c.user = w;
    catch_interrupts();
    cli_text_out_begin(&w->text, stdout, a->how.raw);
    for (int64_t row = 0; row < w->rows; row++)
        if (check_echo(w, row, err) != DRA_OK) return err->code;
    if (is_streamed(w)) echo_prompt(w, 0);
    const double start = cli_now();
    dra_status st = w->beams ? run_search(w, &c, err) : dra_generate(w->generator, &c, w->out, err);
    w->writing = cli_now() - start;
    if (st == DRA_OK && cli_memory_lacked()) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void print_ids(const dra_generated *g, const char *between)
{
    for (size_t i = 0; i < g->n; i++) printf("%s%d", i ? between : "", g->ids[i]);
}

static void print_text(const work *w, const page *p, const dra_generated *g)
{
    if (w->m.tokenizer) {
        fputs("\"text\": \"", stdout);
        cli_json_part(p->text ? p->text : "", p->n, stdout);
        fputs("\", ", stdout);
    }
    fputs("\"tokens\": [", stdout);
    print_ids(g, ", ");
    printf("], \"finish\": \"%s\"", dra_finish_name(g->finish));
}

static void print_beams(const work *w, int64_t row)
{
    char room[CLI_NUMBER];
    for (int64_t k = 0; k < w->beams; k++) {
        const int64_t   at = row * w->beams + k;
        const dra_beam *b = &w->beam[at];
        if (b->score == -INFINITY) break; /* there are no more */
        fputs(k ? ",\n    {" : ", \"beams\": [\n    {", stdout);
        print_text(w, &w->pages[at], &b->text);
        printf(", \"score\": %s}", cli_json_number(b->score, 9, room));
    }
    if (w->beams) putchar(']');
}

static void print_sample(const work *w, int64_t row)
{
    const uint64_t seed = (uint64_t)(w->a->how.seed + row % w->a->count);
    print_text(w, page_of(w, row), &w->out[row]);
    cli_record_members(w->m.tokenizer, &w->prompt[row / w->a->count], seed, &w->out[row], stdout);
    if (w->rows == 1) print_beams(w, row);
}

static void print_json(const work *w)
{
    int64_t read = 0, written = 0, drafted = 0, accepted = 0;
    char    room[2][CLI_NUMBER];
    for (size_t i = 0; i < w->prompts; i++) read += (int64_t)w->prompt[i].n;
    for (int64_t b = 0; b < w->rows; b++) written += (int64_t)w->out[b].n;
    putchar('{');
    print_sample(w, 0);
    for (int64_t b = 0; b < w->rows && w->rows > 1; b++) {
        fputs(b ? ",\n  {" : ", \"samples\": [\n  {", stdout);
        print_sample(w, b);
        print_beams(w, b);
        putchar('}');
    }
    if (w->a->draft.from) dra_generator_drafted(w->generator, &drafted, &accepted);
    printf("%s, \"prompt_tokens\": %lld, \"prompt_tokens_per_second\": %s, "
           "\"tokens_per_second\": %s, \"clamped\": %lld",
           w->rows > 1 ? "]" : "", (long long)read,
           cli_json_number((double)read / w->reading, 6, room[0]),
           cli_json_number((double)written / w->writing, 6, room[1]),
           (long long)dra_generator_clamped(w->generator));
    if (w->a->draft.from)
        printf(", \"drafted_tokens\": %lld, \"accepted_tokens\": %lld", (long long)drafted,
               (long long)accepted);
    puts("}");
}

static void print_texts(work *w)
{
    if (w->a->json) {
        print_json(w);
        return;
    }
    for (int64_t b = 0; b < w->rows; b++) {
        if (b) puts("---");
        if (!is_streamed(w)) echo_prompt(w, b);
        if (!w->m.tokenizer) print_ids(&w->out[b], " ");
        if (page_of(w, b)->n) cli_text_out_put(&w->text, page_of(w, b)->text, page_of(w, b)->n);
        cli_text_out_end(&w->text);
        putchar('\n');
    }
    for (int64_t b = 0; b < w->rows; b++)
        if (w->out[b].finish == DRA_FINISH_CONTEXT) {
            cli_positions_ended("generate", w->m.model, "");
            break;
        }
}

static bool is_wanted(void *unused)
{
    (void)unused;
    return !interrupted;
}

static dra_status write_prompts(const work *w, dra_error *err)
{
    const struct args *a = w->a;
    cli_prompts        p = {.path = a->prompts,
                            .tokenizer = w->m.tokenizer,
                            .generator = w->generator,
                            .rows = w->rows,
                            .count = a->count,
                            .how = &a->how,
                            .config = cli_generate_config(&a->how, &w->stops),
                            .wanted = is_wanted};
    p.config.logprobs = a->logprobs;
    catch_interrupts();
    return cli_prompts_write(&p, err);
}

/* Whose text did not arrive can have it written again from the state before it. */
static dra_status save_state(const work *w, dra_error *err)
{
    if (!cli_output_arrived()) return DRA_OK; /* main() says so */
    return dra_generator_save(w->generator, w->a->state_out, err);
}

static dra_status write_one(work *w, dra_error *err)
{
    dra_status st = feed_prompts(w, err);
    if (st == DRA_OK) st = write_text(w, err);
    if (st == DRA_OK) print_texts(w);
    if (st == DRA_OK && w->a->state_out) st = save_state(w, err);
    return st;
}

static int run_other(const struct args *a)
{
    const cli_continue_task task = {&a->from, &a->how, &a->search, &a->other, a->json, is_wanted};
    if (!a->search.beam) cli_sampling_tell(&a->how);
    catch_interrupts();
    return cli_continue(&task);
}

static dra_status run_unmask(work *w, dra_error *err)
{
    const struct args *a = w->a;
    const dra_status   st = open_model(w, err);
    if (st != DRA_OK) return st;
    cli_sampling_tell(&a->how);
    catch_interrupts();
    const cli_unmask_task task = {.m = &w->m,
                                  .from = &a->from,
                                  .how = &a->how,
                                  .unmask = &a->unmask,
                                  .prompts = w->prompts,
                                  .prompt = w->prompt,
                                  .count = a->count,
                                  .json = a->json,
                                  .step = is_wanted};
    return cli_unmask(&task, err);
}

static dra_status run_text(work *w, dra_error *err)
{
    const dra_status st = open_all(w, err);
    if (st != DRA_OK) return st;
    if (!w->beams) cli_sampling_tell(&w->a->how);
    return w->a->prompts ? write_prompts(w, err) : write_one(w, err);
}

static int run_generate(const void *args)
{
    work      w = {.a = args};
    dra_error err = {0};
    const int status = check_args(w.a);
    if (status != CLI_OK) return status;
    if (cli_continues(&w.a->other)) return run_other(w.a);
    const dra_status st = w.a->unmask.steps ? run_unmask(&w, &err) : run_text(&w, &err);
    if (w.generator) cli_clamp_report("generate", &w.a->from, dra_generator_clamped(w.generator));
    for (size_t i = 0; w.prompt && i < w.prompts; i++) dra_ids_free(&w.prompt[i]);
    for (int64_t b = 0; w.pages && b < w.rows * (w.beams ? w.beams : 1); b++) free(w.pages[b].text);
    free(w.prompt);
    free(w.pages);
    free(w.out);
    free(w.beam);
    dra_generator_destroy(w.generator);
    dra_grammar_destroy(w.grammar);
    cli_biases_close(&w.biases);
    cli_stops_close(&w.stops);
    cli_amateurs_close(&w.amateurs);
    cli_draft_close(&w.drafting);
    cli_model_close(&w.m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note files[] = {
    {"generation_config.json",
     "in the model's folder: other defaults for the sampler, in Hugging Face's format"},
    {"FILE.amateur1", "next to a state file: the state of the first --amateur"},
    {0},
};

static const cli_note examples[] = {
    {"dra generate --model model --prompt \"Once upon a time\" --tokens 60", "continue a text"},
    {"dra generate --model model --prompt \"Once\" --temperature 0.8 --top-p 0.95 --count 3",
     "three samples, drawn from the more likely tokens"},
    {"dra generate --model model --prompt \"Once\" --tokens 20 --state-out once.state",
     "save the state afterwards"},
    {"dra generate --model model --state-in once.state --tokens 20", "and continue from it"},
    {"dra generate --model model --prompt \"Once\" --tokens 20 --beam 4",
     "the most likely text, as far as a search with four beams finds it"},
    {"dra generate --model model --prompt \"Once\" --tokens 20 --amateur weaker",
     "what the model knows better than a smaller one"},
    {"dra generate --preset xt-encoder-tiny --tokenizer bytes --prompt \"Once\" --tokens 20 "
     "--unmask 5",
     "an encoder finds 20 tokens in five rounds"},
    {"dra generate --model model --prompts prompts.jsonl --tokens 20 --logprobs 3",
     "a JSON object for each prompt of a file, with log-probabilities"},
    {"dra generate --preset xt-seq2seq-tiny --tokenizer bytes --source \"Once\" --tokens 20",
     "a translation"},
    {"dra generate --preset xt-seq2seq-tiny --tokenizer bytes --source \"Once\" --beam 4",
     "the most likely one, as far as a search finds it"},
    {0},
};

static const cli_note status[] = {
    {"0", "done, or ended by Ctrl-C"},
    {"1", "failed: one line on stderr says why"},
    {"2", "wrong usage"},
    {0},
};

const cli_verb cmd_generate = {
    .name = "generate",
    .prepare = prepare_sampling,
    .summary = "continue a text or a saved state",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_generate,
    .group = "Use",
    .about =
        "Continues a prompt or a state file and prints text as it is generated. The same "
        "seed gives the same text, with any number of threads, in one call or in several.\n"
        "A state file holds all a model knows of a text: continuing from it reads nothing "
        "twice and is the same as never having stopped. It belongs to one model and its "
        "weights; other models refuse it.\n"
        "--amateur contrasts the model with a weaker one of the same tokens, before the "
        "temperature and in place of filters. --beam searches for the most likely text and "
        "prints it when it is found; --json has all beams and their scores.\n"
        "--prompts reads a prompt from every line of a file and prints a JSON object for each; "
        "--grammar and --json-schema write only texts of a grammar or of a schema.\n"
        "An encoder fills in hidden tokens by --unmask: in rounds, most confident first. All of "
        "the text is printed, with what was given.\n"
        "Models that read other inputs than a text continue those of a file: --inputs and "
        "--out have tokens, vectors or numbers, row by row; --source translates a text.\n"
        "A text ends after --tokens, at the end-of-text token, at a --stop, where learned "
        "positions end, or on Ctrl-C, which also saves the state.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "train eval forward",
};
