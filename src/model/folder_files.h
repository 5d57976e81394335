/* What the folder of a model may hold, by name. */
#ifndef DRA_SRC_MODEL_FOLDER_FILES_H
#define DRA_SRC_MODEL_FOLDER_FILES_H

#include "dra/model.h"

typedef enum dra_folder_kind { /* bits */
                               DRA_FOLDER_CONFIG = 1,
                               DRA_FOLDER_WEIGHTS = 2,
                               DRA_FOLDER_TOKENIZER = 4,
                               DRA_FOLDER_NOTES = 8,  /* that others keep next to a tokenizer */
                               DRA_FOLDER_HABITS = 16 /* settings of generating */
} dra_folder_kind;

/* Removes the files of these kinds that are there. */
dra_status dra_folder_remove(const char *folder, unsigned kinds, dra_error *err);

/* Copies the files of these kinds that are there. */
dra_status dra_folder_copy(const char *from, const char *to, unsigned kinds, dra_error *err);

/* The folder that weights, as dra_weights_load() takes them, belong to: `path` itself, or that of a
 * file whose name is one of weights in folders. false: a file that stands alone, or a path that is
 * too long. */
bool dra_weights_folder(const char *path, char *folder, size_t size);

#endif
