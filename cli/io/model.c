/* What verbs that work with models share. */
#include "model.h"
#include "options/units.h"
#include "options/value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const cli_dtypes[] = {"f32", "bf16", NULL};
const char *const cli_activations[] = {"f32", "q8", NULL};

enum { PATH = 4096, CONFIG_MOST = 1 << 20, LIST_MOST = 1 << 30 };

int cli_misused(const char *verb, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "dra %s: ", verb);
    va_start(args, format);
    cli_line_v(stderr, format, args);
    va_end(args);
    return CLI_USAGE;
}

dra_status cli_error(dra_error *err, dra_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    dra_make_shown(err->text);
    err->code = code;
    return code;
}

bool cli_output_arrived(void) { return fflush(stdout) == 0 && !ferror(stdout); }

bool cli_is_there(const char *path)
{
    int failed;
    do failed = access(path, F_OK);
    while (failed && errno == EINTR);
    return !failed || (errno != ENOENT && errno != ENOTDIR);
}

int cli_stat(const char *path, struct stat *out)
{
    while (stat(path, out) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int cli_mkdir(const char *path, unsigned mode)
{
    while (mkdir(path, (mode_t)mode) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int cli_rename(const char *from, const char *to)
{
    while (rename(from, to) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

bool cli_path(const char *dir, const char *name, char *path, size_t size)
{
    const int n = snprintf(path, size, "%s/%s", dir, name);
    return n > 0 && (size_t)n < size;
}

void cli_folder_sync(const char *folder)
{
    int fd;
    do fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return;
    while (fsync(fd) != 0 && errno == EINTR) {}
    close(fd);
}

void cli_folder_keep(const char *folder)
{
    char path[PATH + 3];
    snprintf(path, sizeof path, "%s/..", folder);
    cli_folder_sync(path);
}

dra_status cli_make_folders(const char *path, unsigned mode, dra_error *err)
{
    char part[PATH];
    for (const char *p = path; (p = strchr(p + 1, '/')) != NULL;) {
        const size_t n = (size_t)(p - path);
        if (n >= sizeof part) return cli_error(err, DRA_ERR_FILE, "%.200s: too long", path);
        memcpy(part, path, n);
        part[n] = '\0';
        if (cli_mkdir(part, mode) == 0)
            cli_folder_keep(part);
        else if (errno != EEXIST)
            return cli_error(err, DRA_ERR_FILE, "%.200s: cannot make the folder: %s", part,
                             cli_reason(errno));
    }
    return DRA_OK;
}

/* ---- where a model comes from ---------------------------------------------------------------- */

static int check_one(const char *verb, const cli_source *s, const char *names)
{
    const int n = !!s->model + !!s->preset + !!s->config;
    if (n == 1) return CLI_OK;
    return cli_misused(verb, "expected one of %s, found %s", names, n ? "several" : "none");
}

int cli_source_check(const char *verb, const cli_source *s)
{
    return check_one(verb, s, "--model, --preset and --config");
}

int cli_config_check(const char *verb, const cli_source *s)
{
    return check_one(verb, s, "--preset and --config");
}

static dra_status read_config(const char *path, const dra_memory *const *own,
                              dra_model_config **out, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    dra_status st = dra_file_read(path, CONFIG_MOST, &text, &bytes, err);
    if (st == DRA_OK) st = dra_model_config_parse_own(path, text, bytes, own, out, err);
    free(text);
    return st;
}

static dra_status set_key(dra_model_config *c, const dra_memory *const *own, const char *setting,
                          dra_error *err)
{
    char        name[128], quoted[80];
    const char *equals = strchr(setting, '=');
    const int   length = equals ? (int)(equals - setting) : 0;
    if (length < 1 || (size_t)length >= sizeof name)
        return cli_error(err, DRA_ERR_VALUE, "--set: expected KEY=VALUE, found %s",
                         cli_quote(setting, quoted, sizeof quoted));
    snprintf(name, sizeof name, "%.*s", length, setting);
    const dra_status st = dra_model_config_set_own(c, own, name, equals + 1, err);
    const char      *none = " is not a key"; /* and no key is similar */
    const size_t     n = strlen(err->text), m = strlen(none);
    if (st != DRA_OK && n >= m && strcmp(err->text + n - m, none) == 0)
        snprintf(err->text + n, sizeof err->text - n, "; 'dra help keys' lists them");
    return st;
}

dra_status cli_settings(const cli_list *settings, const dra_memory *const *own,
                        dra_model_config *config, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < settings->count && st == DRA_OK; i++)
        st = set_key(config, own, settings->text[i], err);
    return st;
}

dra_status cli_model_is_there(const char *path, dra_error *err)
{
    dra_model_config *preset = NULL;
    char              instead[120] = "";
    if (cli_is_there(path)) return DRA_OK;
    if (dra_preset_config(path, &preset, NULL) == DRA_OK)
        snprintf(instead, sizeof instead, "; --preset %.40s is that architecture, untrained", path);
    dra_model_config_destroy(preset);
    return cli_error(err, DRA_ERR_FILE,
                     "%.200s: no such folder or file; models are not downloaded from the Hub%s",
                     path, instead);
}

enum { SETTINGS_MOST = 64 };

/* If a preset's memory was replaced, drops the settings that the new one does not have, and says so
 * once. */
static dra_status fit_preset(const cli_source *s, dra_model_config *c, dra_error *err)
{
    static char said[400];
    char        name[SETTINGS_MOST][64], dropped[200], text[sizeof said];
    const char *set[SETTINGS_MOST];
    size_t      n = 0;
    for (; n < s->set.count && n < SETTINGS_MOST; n++) {
        const char *setting = s->set.text[n];
        snprintf(name[n], sizeof name[n], "%.*s", (int)strcspn(setting, "="), setting);
        set[n] = name[n];
    }
    const dra_status st = dra_model_config_fit(c, n, set, dropped, sizeof dropped, err);
    if (st != DRA_OK || !dropped[0] || s->quiet) return st;
    snprintf(text, sizeof text, "notice   dropped %s of the preset %s: not for this mixer", dropped,
             s->preset);
    if (strcmp(text, said) != 0) cli_line(stderr, "%s", text);
    snprintf(said, sizeof said, "%s", text);
    return DRA_OK;
}

/* A file that is not a model by itself may belong to a model's folder. */
static dra_status read_folder(const char *path, const dra_memory *const *own,
                              dra_model_config **out, dra_error *err)
{
    char        folder[PATH], config[PATH];
    struct stat s;
    const char *slash = strrchr(path, '/');
    dra_status  st = cli_model_is_there(path, err);
    if (st == DRA_OK) st = dra_folder_config_own(path, own, out, err);
    if (st == DRA_OK || cli_stat(path, &s) != 0 || !S_ISREG(s.st_mode)) return st;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (cli_path(folder, "config.json", config, sizeof config) && cli_is_there(config))
        return cli_error(err, st, "%.200s: is a file of a model; expected its folder, %.200s", path,
                         folder);
    return st;
}

/* Where a memory's name is that of a program's own, which dra gets from plugins. */
static void say_plugin(dra_error *err)
{
    const char  *missing = "which only the program that made it has";
    const size_t n = strlen(err->text), m = strlen(missing);
    if (n >= m && strcmp(err->text + n - m, missing) == 0)
        snprintf(err->text + n, sizeof err->text - n, "; --memory-plugin FILE brings it");
}

dra_status cli_source_config(const cli_source *s, dra_model_config **out, dra_error *err)
{
    const dra_memory *own[DRA_MEMORIES_MOST + 1];
    dra_status        st = dra_memories_load(s->plugins.count, s->plugins.text, own, err);
    *out = NULL;
    if (st != DRA_OK) return st;
    st = s->model    ? read_folder(s->model, own, out, err)
         : s->preset ? dra_preset_config(s->preset, out, err)
                     : read_config(s->config, own, out, err);
    if (st == DRA_OK) st = cli_settings(&s->set, own, *out, err);
    if (st != DRA_OK) say_plugin(err);
    if (st == DRA_OK && s->preset) st = fit_preset(s, *out, err);
    if (st == DRA_OK) (*out)->bf16_cache = s->cache == 1;
    if (st == DRA_OK) return st;
    dra_model_config_destroy(*out);
    *out = NULL;
    return st;
}

static bool has_visibility(const cli_source *s, bool both_sides)
{
    dra_model_config *c = NULL;
    dra_error         err = {0};
    const bool        is = cli_source_config(s, &c, &err) == DRA_OK &&
                    (c->visible == DRA_VISIBLE_BIDIRECTIONAL) == both_sides;
    dra_model_config_destroy(c);
    return is;
}

bool cli_is_encoder(const cli_source *s) { return has_visibility(s, true); }
bool cli_is_causal(const cli_source *s) { return has_visibility(s, false); }

int cli_causal_check(const char *verb, const cli_source *s, const char *what)
{
    if (!cli_is_encoder(s)) return CLI_OK;
    return cli_misused(verb, "the model is an encoder, which %s", what);
}

/* What a model reads instead of a text. */
static const char *what_it_reads(const dra_model_config *c)
{
    if (c->context_stack || c->prepend_stack) return "reads other inputs besides its text";
    if (c->source.kind == DRA_SOURCE_IMAGE) return "reads images";
    if (c->source.kind == DRA_SOURCE_VECTORS) return "reads vectors";
    if (c->source.numbers) return "reads numbers besides its text";
    if (c->norm_gain == DRA_GAIN_CONDITION || c->block.branch_gate)
        return "reads a condition besides its text";
    return "has no logits of tokens";
}

int cli_language_check(const char *verb, const cli_source *s, const char *advice)
{
    dra_model_config *c = NULL;
    dra_error         err = {0};
    const bool other = cli_source_config(s, &c, &err) == DRA_OK && !dra_model_config_is_language(c);
    const char *reads = other ? what_it_reads(c) : "";
    dra_model_config_destroy(c);
    return other ? cli_misused(verb, "the model is not a language model: it %s%s", reads, advice)
                 : CLI_OK;
}

/* ---- opening it ------------------------------------------------------------------------------ */

static const char *name_of(const cli_source *s)
{
    return s->model ? s->model : s->preset ? s->preset : s->config ? s->config : "the model";
}

/* Initialising takes time and memory: a large model is announced, and one that does not fit is
 * refused before the system gets into trouble. */
dra_status cli_draw_check(const cli_source *s, const dra_model *m, dra_error *err)
{
    const int64_t n = dra_model_param_count(m), long_wait = 50 * 1000 * 1000;
    const size_t  bytes = (size_t)n * sizeof(dra_real);
    const size_t  memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    char          count[24], size[2][24];
    if (bytes > memory)
        return cli_error(err, DRA_ERR_MEMORY,
                         "%.200s: %s parameters need %s, this machine has %s; see dra info",
                         name_of(s), cli_count_text((double)n, count),
                         cli_bytes_text(bytes, size[0]), cli_bytes_text(memory, size[1]));
    if (n >= long_wait)
        cli_line(stderr, "init     %s parameters, %s", cli_count_text((double)n, count),
                 cli_bytes_text(bytes, size[0]));
    return DRA_OK;
}

static dra_status round_activations(dra_weights *w, dra_error *err)
{
    dra_error        why = {0};
    const dra_status st = dra_weights_round_activations(w, &why);
    return st == DRA_OK ? st : cli_error(err, st, "--activations q8: %.400s", why.text);
}

void cli_weights_look(const char *path, const dra_weights *w)
{
    const char   *first;
    const int64_t n = dra_weights_not_finite(w, &first);
    if (n > 0)
        cli_line(stderr, "warning  %.200s: weights that are NaN or infinite: %lld, first in %s",
                 path, (long long)n, first);
}

/* Of several models one may have no cache: it is named. */
static dra_status create_model(const cli_source *s, const dra_model_config *config, cli_model *m,
                               dra_error *err)
{
    const dra_status st = dra_model_create(config, &m->model, err);
    const dra_error  why = *err;
    return st == DRA_OK || !s->cache ? st
                                     : cli_error(err, st, "%.200s: %.300s", name_of(s), why.text);
}

dra_status cli_model_weights(const cli_source *s, cli_model *m, dra_error *err)
{
    dra_model_config *config = NULL;
    dra_status        st = cli_source_config(s, &config, err);
    if (st == DRA_OK) config->maps = s->maps;
    if (st == DRA_OK) st = create_model(s, config, m, err);
    dra_model_config_destroy(config);
    if (st == DRA_OK && !s->model) st = cli_draw_check(s, m->model, err);
    if (st != DRA_OK) return st;
    const dra_weights_config weights = {s->model, s->skip_hash};
    st = s->model ? dra_weights_load_with(m->model, &weights, &m->weights, err)
                  : dra_weights_draw(m->model, 0, &m->weights, err);
    if (st == DRA_OK && s->model && !s->skip_hash) cli_weights_look(s->model, m->weights);
    if (st == DRA_OK && s->dtype == 1) st = dra_weights_to_bf16(m->weights, err);
    return st == DRA_OK && s->activations ? round_activations(m->weights, err) : st;
}

dra_status cli_device_open(const cli_source *s, const char *level, dra_device **out, dra_error *err)
{
    const dra_cpu_config cpu = {.threads = (int)s->threads, .level = level};
    return dra_device_create(s->device, &cpu, out, err);
}

dra_status cli_model_open(const cli_source *s, cli_model *m, dra_error *err)
{
    const dra_status st = cli_model_weights(s, m, err);
    return st == DRA_OK ? cli_device_open(s, NULL, &m->device, err) : st;
}

static dra_status open_own_tokenizer(const cli_source *s, int64_t V, dra_tokenizer **out,
                                     dra_error *err)
{
    char       base[PATH];
    const bool bare = s->model && !dra_tokenizer_is_in(s->model) &&
                      dra_folder_adapts(s->model, base, sizeof base);
    const dra_status st = dra_tokenizer_open_folder(bare ? base : s->model, V, out, err);
    if (st != DRA_ERR_VALUE) return st;
    char why[DRA_ERROR_TEXT];
    snprintf(why, sizeof why, "%s", err->text);
    return cli_error(err, st, "%.200s%s%.280s; give one by --tokenizer PATH",
                     s->model ? "" : name_of(s), s->model ? "" : ": ", why);
}

dra_status cli_tokenizer_open(const cli_source *s, int64_t V, dra_tokenizer **out, dra_error *err)
{
    if (!s->tokenizer) return open_own_tokenizer(s, V, out, err);
    const dra_status st = strcmp(s->tokenizer, "bytes") == 0
                              ? dra_tokenizer_bytes(out, err)
                              : dra_tokenizer_open(s->tokenizer, out, err);
    if (st == DRA_OK && V > 0 && dra_tokenizer_size(*out) > V)
        return cli_error(err, DRA_ERR_VALUE,
                         "the tokenizer %.150s has %d tokens, the model %.150s only %lld",
                         s->tokenizer, dra_tokenizer_size(*out), name_of(s), (long long)V);
    return st;
}

dra_status cli_model_tokenizer(const cli_source *s, cli_model *m, dra_error *err)
{
    return cli_tokenizer_open(s, dra_model_config_of(m->model)->vocab, &m->tokenizer, err);
}

dra_status cli_model_tokenizer_if(const cli_source *s, cli_model *m, dra_error *err)
{
    const dra_status st = cli_model_tokenizer(s, m, err);
    const bool       lost = st == DRA_ERR_MEMORY || st == DRA_ERR_FILE;
    return s->tokenizer || m->tokenizer || lost ? st : DRA_OK;
}

double cli_clamp_limit(const cli_source *s) { return s->state_limit > 0 ? s->state_limit : -1; }

void cli_clamp_set(const cli_source *s, dra_reader *r)
{
    dra_reader_clamp(r, s->state_limit > 0);
    dra_reader_clamp_limit(r, s->state_limit > 0 ? s->state_limit : 0);
}

dra_status cli_reader_open(const cli_source *s, const cli_model *m, const dra_view *view, int64_t B,
                           dra_reader **reader, dra_states **states, dra_error *err)
{
    const dra_module module = dra_view_module(view);
    dra_status       st = dra_reader_create(m->device, &module, reader, err);
    if (st == DRA_OK) cli_clamp_set(s, *reader);
    if (st == DRA_OK) st = dra_weights_bind(m->weights, *reader, err);
    return st == DRA_OK ? dra_states_create(m->device, module.state, B, states, err) : st;
}

void cli_clamp_report(const char *verb, const cli_source *s, int64_t changed)
{
    if (changed > 0)
        cli_line(stderr, "dra %s: clamped %lld numbers of states that were not finite or beyond %g",
                 verb, (long long)changed, s->state_limit);
}

void cli_model_close(cli_model *m)
{
    dra_tokenizer_destroy(m->tokenizer);
    dra_weights_destroy(m->weights);
    dra_model_destroy(m->model);
    dra_device_destroy(m->device);
    *m = (cli_model){0};
}

/* ---- tokens ---------------------------------------------------------------------------------- */

const char *const cli_data_formats[] = {"auto", "text",       "bytes",      "jsonl", "safetensors",
                                        "npy",  "tokens-u16", "tokens-u32", "llmc",  NULL};

const char *cli_data_format(int format) { return format ? cli_data_formats[format] : NULL; }

int cli_data_format_number(const char *name)
{
    for (int i = 0; name && cli_data_formats[i]; i++)
        if (strcmp(cli_data_formats[i], name) == 0) return i;
    return 0;
}

bool cli_all_tokens(const cli_list *files, int format)
{
    return dra_corpus_is_tokens((int)files->count, files->text, cli_data_format(format));
}

dra_status cli_documents_check(const cli_list *files, const cli_list *more, int format,
                               const char *text_key, const char *separator, dra_error *err)
{
    const cli_list *lists[] = {files, more};
    bool            lines = false, texts = false;
    for (size_t i = 0; i < COUNT(lists) && (text_key || separator); i++)
        if (lists[i] && lists[i]->count)
            dra_corpus_find_texts((int)lists[i]->count, lists[i]->text, cli_data_format(format),
                                  &lines, &texts);
    if (text_key && !lines)
        return cli_error(err, DRA_ERR_VALUE, "--text-key: no file of the data is lines of JSON");
    if (separator && !texts)
        return cli_error(err, DRA_ERR_VALUE,
                         "--separator: no file of the data is a text, in which a line could "
                         "separate documents");
    return DRA_OK;
}

static dra_status add_id(dra_ids *ids, int32_t id, dra_error *err)
{
    if (ids->n == ids->room) {
        const size_t room = ids->room ? 2 * ids->room : 256;
        int32_t     *data = realloc(ids->data, room * sizeof *data);
        if (!data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
        ids->data = data;
        ids->room = room;
    }
    ids->data[ids->n++] = id;
    return DRA_OK;
}

static dra_status parse_ids(const char *what, const char *text, const char *between, dra_ids *out,
                            dra_error *err)
{
    char    word[24], quoted[80];
    int64_t id = 0;
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        const size_t n = strcspn(text, between);
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
        if (!cli_read_int(word, &id) || id < INT32_MIN || id > INT32_MAX)
            return cli_error(err, DRA_ERR_VALUE, "%.200s: expected a whole number, found %s", what,
                             cli_quote(word, quoted, sizeof quoted));
        if (add_id(out, (int32_t)id, err) != DRA_OK) return err->code;
        text += n;
    }
    return DRA_OK;
}

dra_status cli_ids_read(const char *what, const char *text, dra_ids *out, dra_error *err)
{
    char  *data = NULL;
    size_t bytes = 0;
    if (text[0] != '@') return parse_ids(what, text, ",", out, err);
    dra_status st = dra_file_read(text + 1, LIST_MOST, &data, &bytes, err);
    if (st == DRA_OK && strlen(data) != bytes)
        st = cli_error(err, DRA_ERR_FORMAT, "%.200s: expected numbers, found a zero byte",
                       text + 1);
    if (st == DRA_OK) st = parse_ids(text + 1, data, " \t\r\n,[]", out, err);
    free(data);
    return st;
}
