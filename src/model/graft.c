/* A second memory next to attention, at first with weight 0. */
#include <string.h>

#include "base/error.h"
#include "model/model.h"
#include "model/owned.h"

dra_status dra_model_config_graft(dra_model_config *config, const char *memory, dra_error *err)
{
    const bool        usual = strcmp(memory, "attention") == 0; /* as configs say it, too */
    const dra_memory *found = dra_memory_find(usual ? "append" : memory);
    dra_guess         guess = {.typed = memory};
    for (size_t i = 0; dra_memory_at(i); i++) dra_guess_try(&guess, dra_memory_at(i)->name);
    if (!found)
        return dra_fail(err, DRA_ERR_NAME, "no memory is called %.40s%s%s%s", memory,
                        guess.best ? "; did you mean " : "", guess.best ? guess.best : "",
                        guess.best ? "?" : "");
    const dra_status st = dra_config_check_own(config, err);
    if (st != DRA_OK) return st;
    dra_model_config_complete(config);
    for (int i = 0; i < config->mixers; i++)
        if (config->mixer[i].blend != DRA_BLEND_NONE)
            return dra_fail(err, DRA_ERR_VALUE, "mixer %d blends two memories already", i);
    dra_mixer_config *m = dra_config_mixers(config, config->mixers);
    if (!m) return dra_fail(err, DRA_ERR_MEMORY, "config: out of memory");
    for (int i = 0; i < config->mixers; i++) {
        m[i].blend = DRA_BLEND_INPUT;
        m[i].blend_value = 1;
        m[i].b = (dra_memory_config){.memory = found->name};
    }
    config->format = DRA_FORMAT_DRA;
    return DRA_OK;
}
