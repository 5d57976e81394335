/* A conversation as a text that grows: each turn is read after what is there, and answers continue
 * it.
 *
 *   SYSTEM <blank line> User: question <blank line> Bot: answer <blank line> User: ...
 *
 * An answer ends where the model begins to write the user's part. The generator takes that back, so
 * the next turn directly follows the answer.
 *
 * With a chat template the text is what that makes of all messages, see talk.h. */
#include "chat.h"
#include "options/units.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* An answer that is being written to a slow terminal must not lose what is in the buffer. */
void cli_chat_signals(bool waiting)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = waiting ? 0 : SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool cli_chat_stopped(const cli_chat *c) { return interrupted && !c->terminal; }

/* An answer begins: what was pressed before is forgotten, where somebody sits. */
static void forget_interrupt(const cli_chat *c)
{
    if (c->terminal) interrupted = 0;
}

void cli_chat_note(const cli_chat *c, const char *format, ...)
{
    va_list args;
    if (!c->terminal) return;
    va_start(args, format);
    cli_line_v(stderr, format, args);
    va_end(args);
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_blank(char x) { return x == ' ' || x == '\t' || x == '\n'; }

/* "\n\nUser:" without the spaces after it, which a token may hold together with what follows. */
static dra_status form_ending(cli_chat *c, dra_error *err)
{
    size_t n = strlen(c->form.user);
    while (n > 0 && is_blank(c->form.user[n - 1])) n--;
    c->ending = calloc(n + 3, 1);
    if (!c->ending) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    snprintf(c->ending, n + 3, "\n\n%s", c->form.user);
    return DRA_OK;
}

static void add_end(dra_generation_config *habits, int32_t id)
{
    for (int i = 0; i < habits->ends; i++)
        if (habits->end[i] == id) return;
    if (id >= 0 && habits->ends < (int)COUNT(habits->end)) habits->end[habits->ends++] = id;
}

/* What the template writes after an answer, and the end of text of the model's folder. A template
 * that does not render a usual conversation has no such ending. */
static dra_status template_ending(cli_chat *c, dra_error *err)
{
    const char *eos = dra_template_token(c->template, "eos_token");
    int32_t     id;
    dra_status  st = dra_template_ending(c->template, c->m.tokenizer, &id, &c->ending, err);
    if (st == DRA_ERR_VALUE) st = DRA_OK;
    add_end(&c->how.habits, id);
    if (eos) add_end(&c->how.habits, dra_tokenizer_id(c->m.tokenizer, eos));
    return st;
}

static dra_status prepare_stops(cli_chat *c, dra_error *err)
{
    const size_t own = c->how.stop.count;
    dra_status   st = DRA_OK;
    if (c->template)
        st = template_ending(c, err);
    else if (!c->form.plain)
        st = form_ending(c, err);
    if (st != DRA_OK) return st;
    c->stop = calloc(own + 1, sizeof *c->stop);
    if (!c->stop) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (own) memcpy(c->stop, c->how.stop.text, own * sizeof *c->stop);
    c->stop[own] = c->ending;
    return DRA_OK;
}

/* The object of all KEY=JSON. */
static dra_status join_variables(cli_chat *c, dra_error *err)
{
    size_t n = 0;
    FILE  *out = dra_stream_memory(&c->variables, &n);
    if (!out) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < c->form.set.count; i++) {
        char        key[128];
        const char *set = c->form.set.text[i], *equals = strchr(set, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - set), set);
        fputs(i ? ", " : "{", out);
        cli_json_text(key, out);
        fprintf(out, ": %s", equals + 1);
    }
    fputc('}', out);
    const bool whole = !ferror(out);
    if (fclose(out) == 0 && whole) return DRA_OK;
    return cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

/* Variables are for a template, and JSON. */
static dra_status open_variables(cli_chat *c, dra_error *err)
{
    const dra_message none = {"user", "", 0};
    dra_template     *empty = NULL;
    char             *text = NULL;
    size_t            bytes;
    dra_error         why = {0};
    if (!c->form.set.count) return DRA_OK;
    if (!c->template)
        return cli_error(err, DRA_ERR_VALUE,
                         "--template-set: the model has no chat template, "
                         "see --chat-template");
    dra_status st = join_variables(c, err);
    if (st == DRA_OK) st = dra_template_create("", 0, "empty", &empty, err);
    if (st != DRA_OK) return st;
    st = dra_template_chat_with(empty, &none, 1, false, c->variables, &text, &bytes, &why);
    if (st != DRA_OK) st = cli_error(err, st, "--template-set: %.400s", why.text);
    free(text);
    dra_template_destroy(empty);
    return st;
}

/* Continues from a state file. */
static dra_status begin_loaded(cli_chat *c, const char *path, dra_error *err)
{
    const dra_status st = dra_generator_load(c->generator, path, err);
    return st == DRA_OK && c->template
               ? cli_talk_begin_loaded(&c->talk, c->template, c->variables, err)
               : st;
}

dra_status cli_chat_open(cli_chat *c, const cli_source *from, const cli_draft_args *draft,
                         const char *state, dra_error *err)
{
    dra_status st = cli_model_open(from, &c->m, err);
    if (st == DRA_OK) st = cli_model_tokenizer(from, &c->m, err);
    if (st == DRA_OK && !c->form.own)
        st = dra_template_open(from->model, c->form.from, &c->template, err);
    if (st == DRA_OK) st = open_variables(c, err);
    if (st == DRA_OK) st = prepare_stops(c, err);
    if (st == DRA_OK)
        st = cli_biases_open(&c->how.bias, c->m.tokenizer, dra_model_config_of(c->m.model)->vocab,
                             &c->biases, err);
    if (st == DRA_OK) st = cli_stops_open(&c->how, &c->stops, err);
    if (st == DRA_OK) st = cli_draft_open(draft, from, c->m.tokenizer, &c->drafting, err);
    if (st != DRA_OK) return st;
    const dra_generator_config config = {.model = c->m.model,
                                         .weights = c->m.weights,
                                         .device = c->m.device,
                                         .tokenizer = c->m.tokenizer,
                                         .sampler = cli_sampler_config(&c->how, &c->biases),
                                         .state_limit = cli_clamp_limit(from),
                                         .draft = c->drafting.draft};
    st = dra_generator_create(&config, &c->generator, err);
    return st == DRA_OK && state ? begin_loaded(c, state, err) : st;
}

static void drop_kept(cli_chat_kept *k)
{
    dra_context_free(&k->context);
    cli_talk_free(&k->talk);
}

void cli_chat_close(cli_chat *c)
{
    while (c->kept > 0) drop_kept(&c->before[--c->kept]);
    cli_talk_free(&c->talk);
    dra_template_destroy(c->template);
    free(c->variables);
    dra_generator_destroy(c->generator);
    cli_draft_close(&c->drafting);
    cli_model_close(&c->m);
    cli_biases_close(&c->biases);
    cli_stops_close(&c->stops);
    free(c->ending);
    free(c->stop);
}

/* ---- taking back ----------------------------------------------------------------------------- */

static dra_status keep_state(cli_chat *c, cli_chat_kept *k, dra_error *err)
{
    k->bytes = dra_generator_state_bytes(c->generator);
    dra_status st = cli_talk_copy(&c->talk, &k->talk, err);
    if (st == DRA_OK) st = dra_generator_keep(c->generator, 0, &k->context, err);
    if (st != DRA_OK) cli_talk_free(&k->talk);
    return st;
}

/* The oldest go where there are many, or states are large. */
static void push_kept(cli_chat *c, const cli_chat_kept *k)
{
    enum { BYTES_MOST = 1 << 28 };
    size_t bytes = k->bytes;
    int    from = c->kept; /* the oldest that stays */
    while (from > 0 && c->kept - from + 1 < CLI_CHAT_KEPT && bytes < BYTES_MOST)
        bytes += c->before[--from].bytes;
    for (int i = 0; i < from; i++) drop_kept(&c->before[i]);
    c->kept -= from;
    memmove(c->before, c->before + from, (size_t)c->kept * sizeof *c->before);
    c->before[c->kept++] = *k;
}

/* A change can be taken back; one that failed has not been. Takes what was kept before it, returns
 * its status. */
static dra_status conclude_change(cli_chat *c, cli_chat_kept *k, dra_status st)
{
    if (st == DRA_OK) {
        push_kept(c, k);
        return st;
    }
    dra_generator_back(c->generator, 0, &k->context, NULL);
    dra_context_free(&k->context);
    cli_talk_free(&c->talk);
    c->talk = k->talk;
    return st;
}

dra_status cli_chat_undo(cli_chat *c, dra_error *err)
{
    if (!c->kept) return cli_error(err, DRA_ERR_VALUE, "/undo: nothing to take back");
    cli_chat_kept   *k = &c->before[c->kept - 1];
    const dra_status st = dra_generator_back(c->generator, 0, &k->context, err);
    if (st != DRA_OK) return st;
    dra_context_free(&k->context);
    cli_talk_free(&c->talk);
    c->talk = k->talk;
    c->kept--;
    return st;
}

dra_status cli_chat_reset(cli_chat *c, dra_error *err)
{
    cli_chat_kept k;
    dra_status    st = keep_state(c, &k, err);
    if (st != DRA_OK) return st;
    st = dra_generator_reset(c->generator, 0, err);
    if (st == DRA_OK) cli_talk_free(&c->talk);
    return conclude_change(c, &k, st);
}

/* ---- state files ----------------------------------------------------------------------------- */

static dra_status check_begun(const cli_chat *c, const char *what, dra_error *err)
{
    if (dra_generator_tokens(c->generator, 0) > 0) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "%s: nothing was said yet", what);
}

dra_status cli_chat_save(cli_chat *c, const char *path, dra_error *err)
{
    const dra_status st = check_begun(c, "nothing to save", err);
    return st == DRA_OK ? dra_generator_save(c->generator, path, err) : st;
}

dra_status cli_chat_load(cli_chat *c, const char *path, dra_error *err)
{
    cli_chat_kept    k;
    const dra_status st = keep_state(c, &k, err);
    return st == DRA_OK ? conclude_change(c, &k, begin_loaded(c, path, err)) : st;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The space after the bot's name is no part of what it says. */
static bool put_text(void *user, int64_t row, const char *text, size_t bytes)
{
    cli_chat *c = user;
    (void)row;
    if (c->answer) fwrite(text, 1, bytes, c->answer);
    while (!c->shown && !c->form.plain && bytes > 0 && is_blank(*text)) text++, bytes--;
    if (bytes) {
        cli_text_out_put(&c->text, text, bytes);
        fflush(stdout);
        c->shown = true;
        c->last = text[bytes - 1];
    }
    return !interrupted && !ferror(stdout);
}

static void show_name(const cli_chat *c)
{
    char room[CLI_CLEAN];
    if (c->terminal && c->screen && !c->template && !c->form.plain && *c->form.bot)
        fprintf(stderr, "%s%s%s ", cli_blue(stderr), cli_clean(c->form.bot, room),
                cli_plain(stderr));
}

static void show_end(const cli_chat *c, const dra_generated *out)
{
    if (!c->shown || c->last != '\n') putchar('\n');
    fflush(stdout);
    if (out->finish == DRA_FINISH_CONTEXT)
        cli_positions_ended("chat", c->m.model, "; /reset starts over");
    if (out->finish == DRA_FINISH_LENGTH)
        cli_chat_note(c, "(%lld tokens; /more continues)", (long long)out->n);
}

static dra_status write_answer(cli_chat *c, dra_error *err)
{
    dra_generate_config config = cli_generate_config(&c->how, &c->stops);
    dra_generated       out = {0};
    const double        start = cli_now();
    config.stop = c->stop;
    config.n_stop += c->ending != NULL; /* it is the last */
    config.write = put_text;
    config.user = c;
    c->shown = false;
    show_name(c);
    cli_text_out_begin(&c->text, stdout, c->how.raw);
    const dra_status st = dra_generate(c->generator, &config, &out, err);
    cli_text_out_end(&c->text);
    c->writing += cli_now() - start;
    c->written += (int64_t)out.n;
    if (st == DRA_OK)
        show_end(c, &out);
    else if (c->shown || c->screen)
        putchar('\n');
    return st;
}

/* With a template, an answer becomes a message. */
static dra_status read_answer(cli_chat *c, dra_error *err)
{
    char  *text = NULL;
    size_t bytes = 0;
    if (!c->template) return write_answer(c, err);
    c->answer = dra_stream_memory(&text, &bytes);
    if (!c->answer) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_status st = write_answer(c, err);
    const bool whole = !ferror(c->answer);
    if ((fclose(c->answer) != 0 || !whole) && st == DRA_OK)
        st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    c->answer = NULL;
    if (st == DRA_OK) st = cli_talk_write(&c->talk, text, bytes, err);
    free(text);
    return st;
}

dra_status cli_chat_more(cli_chat *c, dra_error *err)
{
    cli_chat_kept k;
    dra_status    st = check_begun(c, "nothing to continue", err);
    forget_interrupt(c);
    if (st == DRA_OK) st = keep_state(c, &k, err);
    return st == DRA_OK ? conclude_change(c, &k, read_answer(c, err)) : st;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* What the model reads for a turn, in memory of its own; NULL: there is none. */
static char *turn_text(const cli_chat *c, const char *text, size_t bytes, size_t *n)
{
    const cli_chat_form *f = &c->form;
    const bool           first = dra_generator_tokens(c->generator, 0) == 0;
    char                *turn = NULL;
    FILE                *out = dra_stream_memory(&turn, n);
    if (!out) return NULL;
    if (first && f->system) fputs(f->system, out);
    if (!f->plain) fprintf(out, "%s%s", !first || f->system ? "\n\n" : "", f->user);
    fwrite(text, 1, bytes, out);
    if (!f->plain) fprintf(out, "\n\n%s", f->bot);
    const bool whole = !ferror(out);
    if (fclose(out) == 0 && whole) return turn;
    free(turn);
    return NULL;
}

static dra_status check_room(const cli_chat *c, size_t n, dra_error *err)
{
    const int64_t    before = dra_generator_tokens(c->generator, 0);
    const dra_status st = dra_model_check_positions(c->m.model, before, (int64_t)n, err);
    const size_t     used = strlen(err->text);
    if (st != DRA_OK && before)
        snprintf(err->text + used, sizeof err->text - used, "; /reset starts over");
    return st;
}

/* Reads in pieces, so that Ctrl-C does not wait for a long text. */
static dra_status read_turn(cli_chat *c, const dra_ids *ids, dra_error *err)
{
    const double start = cli_now();
    dra_status   st = DRA_OK;
    for (size_t at = 0, n; at < ids->n && st == DRA_OK; at += n) {
        n = ids->n - at < DRA_GENERATOR_PIECE ? ids->n - at : DRA_GENERATOR_PIECE;
        if (interrupted)
            st = cli_error(err, DRA_ERR_VALUE, "stopped at token %zu of %zu; nothing was said", at,
                           ids->n);
        else
            st = dra_generator_read(c->generator, 0, n, ids->data + at, err);
        if (st == DRA_OK) c->read += (int64_t)n;
    }
    c->reading += cli_now() - start;
    return st;
}

/* By the form. */
static dra_status read_form(cli_chat *c, const char *text, size_t bytes, dra_error *err)
{
    dra_ids    ids = {0};
    size_t     n = 0;
    const bool first = dra_generator_tokens(c->generator, 0) == 0;
    char      *turn = turn_text(c, text, bytes, &n);
    dra_status st = turn ? dra_encode_as(c->m.tokenizer, turn, n,
                                         first ? DRA_ENCODE_BEGIN : DRA_ENCODE_REST, &ids, err)
                         : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = check_room(c, ids.n, err);
    if (st == DRA_OK) st = read_turn(c, &ids, err);
    dra_ids_free(&ids);
    free(turn);
    return st;
}

/* Earlier turns have changed: the model starts over with all of them. */
static dra_status start_over(cli_chat *c, dra_error *err)
{
    if (!c->told)
        cli_line(stderr, "dra chat: the chat template writes earlier turns in another way now, so "
                         "the model reads all of them again");
    c->told = true;
    return dra_generator_reset(c->generator, 0, err);
}

/* By the template: what it adds to what was read, or all. */
static dra_status read_template(cli_chat *c, const char *text, size_t bytes, dra_error *err)
{
    const char *system = c->form.system;
    cli_talk   *t = &c->talk;
    dra_ids     ids = {0};
    size_t      from = 0;
    const bool  begun = t->n > 0;
    dra_status  st = DRA_OK;
    if (!begun && system) st = cli_talk_say(t, "system", system, strlen(system), err);
    if (st == DRA_OK) st = cli_talk_say(t, "user", text, bytes, err);
    if (st == DRA_OK) st = cli_talk_next(t, c->template, c->variables, &from, err);
    if (st == DRA_OK && begun && from == 0) st = start_over(c, err);
    if (st == DRA_OK) /* the template writes what stands in front of a text */
        st = dra_encode_as(c->m.tokenizer, t->seen + from, t->n_seen - from,
                           from ? DRA_ENCODE_REST : 0, &ids, err);
    if (st == DRA_OK) st = check_room(c, ids.n, err);
    if (st == DRA_OK) st = read_turn(c, &ids, err);
    dra_ids_free(&ids);
    return st;
}

dra_status cli_chat_say(cli_chat *c, const char *text, size_t bytes, dra_error *err)
{
    cli_chat_kept k;
    dra_status    st = keep_state(c, &k, err);
    forget_interrupt(c);
    if (st != DRA_OK) return st;
    st = (c->template ? read_template : read_form)(c, text, bytes, err);
    return conclude_change(c, &k, st == DRA_OK ? read_answer(c, err) : st);
}
