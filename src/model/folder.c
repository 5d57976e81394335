/* Model folders: config.json and model.safetensors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "dra/file.h"
#include "model/model.h"

enum { PATH_TEXT = 4096, CONFIG_MOST = 1 << 20 };

static dra_status path_of(const char *folder, const char *name, char *path, dra_error *err)
{
    const int n = snprintf(path, PATH_TEXT, "%s/%s", folder, name);
    if (n > 0 && n < PATH_TEXT) return DRA_OK;
    return dra_fail(err, DRA_ERR_FILE, "%.80s...: the path is too long", folder);
}

dra_status dra_folder_config(const char *folder, dra_model_config *out, dra_error *err)
{
    char      *text = NULL, path[PATH_TEXT];
    size_t     bytes = 0;
    dra_status st = path_of(folder, "config.json", path, err);
    if (st == DRA_OK) st = dra_file_read(path, CONFIG_MOST, &text, &bytes, err);
    if (st == DRA_OK) st = dra_model_config_parse(path, text, bytes, out, err);
    free(text);
    return st;
}

dra_status dra_folder_save_config(const char *folder, const dra_model_config *config,
                                  dra_error *err)
{
    char         path[PATH_TEXT];
    const size_t n = dra_model_config_text(config, NULL, 0);
    char        *text = n ? malloc(n + 2) : NULL;
    dra_status   st = text ? path_of(folder, "config.json", path, err)
                           : dra_fail(err, DRA_ERR_MEMORY, "%.200s: out of memory", folder);
    if (st == DRA_OK && mkdir(folder, 0777) != 0 && errno != EEXIST)
        st = dra_fail(err, DRA_ERR_FILE, "%.200s: cannot make the folder: %s", folder,
                      strerror(errno));
    if (st == DRA_OK) {
        dra_model_config_text(config, text, n + 1);
        text[n] = '\n';
        st = dra_file_write(path, text, n + 1, err);
    }
    free(text);
    return st;
}

dra_status dra_folder_load(const char *folder, dra_model **model, dra_weights **weights,
                           dra_error *err)
{
    dra_model_config config;
    char             path[PATH_TEXT];
    *model = NULL;
    *weights = NULL;
    dra_status st = dra_folder_config(folder, &config, err);
    if (st == DRA_OK) st = dra_model_create(&config, model, err);
    if (st == DRA_OK) st = path_of(folder, "model.safetensors", path, err);
    if (st == DRA_OK) st = dra_weights_load(*model, path, weights, err);
    if (st != DRA_OK) {
        dra_model_destroy(*model);
        *model = NULL;
    }
    return st;
}
