/* What a run takes of the disk, and what is free there. */
#include "disk.h"
#include "io/model.h"
#include "options/term.h"
#include "options/units.h"

#include <string.h>
#include <sys/statvfs.h>

enum { PATH_TEXT = 4096, STEPS = 1000, SAVE_EVERY = 500, KEEP = 2 };

/* Of the run's folder or, before there is one, of the first above it; 0: nobody knows. */
static uint64_t find_free(const char *run)
{
    char           path[PATH_TEXT];
    struct statvfs s;
    snprintf(path, sizeof path, "%s", run);
    while (statvfs(path, &s) != 0) {
        char *slash = strrchr(path, '/');
        if (strcmp(path, ".") == 0 || slash == path) return 0;
        if (slash)
            *slash = '\0';
        else
            snprintf(path, sizeof path, ".");
    }
    return (uint64_t)s.f_bavail * s.f_frsize;
}

/* Checkpoints that are there at once: those that are kept and the one being written; of a run that
 * goes on, what comes on top of those that are there. */
static int64_t count_saves(const dra_train_config *c, bool more)
{
    const int64_t steps = c->steps ? c->steps : STEPS, keep = c->keep ? c->keep : KEEP;
    const int64_t every = c->save_every == 0 ? SAVE_EVERY : c->save_every;
    const int64_t saves = every < 0 ? 1 : (steps + every - 1) / every;
    return more ? 1 : saves < keep + 1 ? saves : keep + 1;
}

static const char *bytes_text(uint64_t bytes, char text[24])
{
    return cli_bytes_text((size_t)bytes, text);
}

/* Numbers of a model that a checkpoint has. */
static int64_t count_saved(const dra_model *model)
{
    int64_t group[DRA_PARAM_GROUPS], n = 0;
    if (!dra_model_config_of(model)->lora) return dra_model_param_count(model);
    dra_model_groups(model, group);
    for (int k = 0; k < DRA_PARAM_GROUPS; k++) n += group[k];
    return n;
}

/* The least it can be: what optimizers keep at least, and no model of its own for the best. */
dra_status cli_disk_check(const char *run, const dra_model *model, const dra_train_config *c,
                          bool sure, dra_error *err)
{
    const uint64_t weights = (uint64_t)count_saved(model) * sizeof(dra_real);
    const uint64_t states = c->optimizer == DRA_OPTIMIZER_ADAMW ? 2 : c->momentum < 0 ? 0 : 1;
    const uint64_t all = weights * (1 + states) *
                         (uint64_t)count_saves(c, dra_trainer_saved(run) >= 0);
    const uint64_t free_bytes = find_free(run);
    char           a[24], b[24];
    if (free_bytes == 0 || all <= free_bytes) return DRA_OK;
    if (!sure)
        return cli_error(err, DRA_ERR_FILE,
                         "%.200s: checkpoints need %s, the disk has %s free (--keep 1 or a larger "
                         "--save-every need less; --yes tries anyway)",
                         run, bytes_text(all, a), bytes_text(free_bytes, b));
    cli_line(stderr, "warning  %.200s: checkpoints need %s, the disk has %s free", run,
             bytes_text(all, a), bytes_text(free_bytes, b));
    return DRA_OK;
}

void cli_disk_plan(const char *run, const dra_trainer_plan *p, FILE *out)
{
    const int64_t n = count_saves(&p->train, p->first > 0);
    int64_t       trained = 0;
    for (int k = 0; k < DRA_PARAM_GROUPS; k++) trained += p->group[k];
    const bool     adapts = p->train.lora.rank > 0;
    const uint64_t weights = adapts ? (uint64_t)trained * sizeof(dra_real) : p->weights;
    const uint64_t each = weights + p->moments, free_bytes = find_free(run);
    const uint64_t best = p->eval_tokens || p->eval_examples ? weights : 0;
    char           a[24], b[24];
    if (free_bytes == 0) return;
    cli_fold(9, out, "disk     %s of %s free: %lld checkpoint%s%s",
             bytes_text(each * (uint64_t)n + best, a), bytes_text(free_bytes, b), (long long)n,
             n == 1 ? "" : "s", best ? ", the best model" : "");
}
