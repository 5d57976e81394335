/* The model of a run's folder: its newest weights, and how its decays moved over checkpoints. */
#include "record.h"
#include "io/memory.h"
#include "options/value.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_TEXT = 4096, CHECKPOINTS = 256 };

/* "step-00000500" is 500; -1: it is no such name. One that ends in ".tmp" is not whole. */
static int64_t step_of(const char *name)
{
    int64_t     step = -1;
    const char *digits = name + 5;
    if (strncmp(name, "step-", 5) != 0) return -1;
    while (*digits == '0' && digits[1]) digits++;
    return cli_read_int(digits, &step) ? step : -1;
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static DIR *open_again(const char *path)
{
    DIR *d;
    do d = opendir(path);
    while (!d && errno == EINTR);
    return d;
}

static struct dirent *read_again(DIR *d)
{
    struct dirent *e;
    do {
        errno = 0;
        e = readdir(d);
    } while (!e && errno == EINTR);
    return e;
}

/* How many there are; -1: they cannot be listed. */
static int list_checkpoints(const char *run, int64_t steps[CHECKPOINTS], dra_error *err)
{
    char           path[PATH_TEXT];
    struct dirent *e;
    int            n = 0;
    if (!cli_path(run, "train", path, sizeof path) || !cli_is_there(path)) return 0;
    DIR *d = open_again(path);
    errno = d ? 0 : errno;
    while (d && n < CHECKPOINTS && (e = read_again(d))) {
        const int64_t step = step_of(e->d_name);
        if (step >= 0) steps[n++] = step;
    }
    const int failed = errno;
    if (d) closedir(d);
    if (failed) {
        cli_error(err, DRA_ERR_FILE, "%.200s: cannot read it: %s", path, cli_reason(failed));
        return -1;
    }
    qsort(steps, (size_t)n, sizeof *steps, by_step);
    return n;
}

static dra_status add_spectrum(cli_record *r, int64_t step, const dra_weights *w, dra_error *err)
{
    cli_spectrum *s = &r->spectra[r->n_spectra];
    *s = (cli_spectrum){.step = step};
    const dra_status st = cli_decays_find(r->model, w, &s->decays, err);
    if (st == DRA_OK)
        r->n_spectra++;
    else
        free(s->decays.rows);
    return st;
}

static dra_status read_checkpoint(cli_record *r, int64_t step, dra_error *err)
{
    char         path[PATH_TEXT], name[64];
    dra_weights *w = NULL;
    snprintf(name, sizeof name, "train/step-%08lld/model.safetensors", (long long)step);
    if (!cli_path(r->path, name, path, sizeof path))
        return cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", r->path);
    dra_status st = dra_weights_load(r->model, path, &w, err);
    if (st != DRA_OK && !cli_is_there(path)) return DRA_OK; /* it went while we read */
    if (st == DRA_OK) st = add_spectrum(r, step, w, err);
    dra_weights_destroy(w);
    return st;
}

/* Without one, texts are shown as numbers. */
static void open_tokenizer(cli_record *r)
{
    const int64_t V = dra_model_config_of(r->model)->vocab;
    if (V > 0) cli_memory_note(dra_tokenizer_open_folder(r->path, V, &r->tokenizer, NULL));
}

dra_status cli_record_model(cli_record *r, dra_error *err)
{
    int64_t           steps[CHECKPOINTS];
    dra_model_config *c = NULL;
    const int         n = list_checkpoints(r->path, steps, err);
    if (n < 0) return DRA_ERR_FILE;
    dra_status st = dra_folder_load(r->path, &r->model, &r->weights, err);
    if (st != DRA_OK) { /* a run that has not saved yet has a model all the same */
        if (dra_folder_config(r->path, &c, NULL) == DRA_OK) dra_model_create(c, &r->model, NULL);
        dra_model_config_destroy(c);
        return st;
    }
    open_tokenizer(r);
    r->spectra = calloc((size_t)n + 1, sizeof *r->spectra);
    if (!r->spectra) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        const dra_status one = read_checkpoint(r, steps[i], err);
        if (one != DRA_OK) st = one;
    }
    return n ? st : add_spectrum(r, 0, r->weights, err);
}
