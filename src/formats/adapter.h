/* Adapters of LoRA: a folder with adapter_config.json, which names the model it belongs to, and
 * adapter_model.safetensors with the factors, as Hugging Face's PEFT has them. A tensor
 * "PATH.weight" of the model has "base_model.model.PATH.lora_A.weight" and lora_B; a parameter
 * whose name in files does not end so has NAME.lora_A. [https://huggingface.co/docs/peft] */
#ifndef DRA_SRC_FORMATS_ADAPTER_H
#define DRA_SRC_FORMATS_ADAPTER_H

#include "formats/format.h"

#define DRA_ADAPTER_CONFIG "adapter_config.json"
#define DRA_ADAPTER_WEIGHTS "adapter_model.safetensors"

typedef struct dra_adapter dra_adapter; /* opaque: one that was opened */

/* Whether this is the folder of an adapter. */
bool dra_adapter_is(const char *folder);
/* The path of the model that it belongs to: as the folder says, or of that name next to it. */
dra_status dra_adapter_base(const char *folder, char *path, size_t size, dra_error *err);

dra_status dra_adapter_open(const char *folder, dra_adapter **out, dra_error *err);
void       dra_adapter_close(dra_adapter *a); /* NULL is allowed */
/* Of what the files are, as dra_tensor_source_key(); 0 likewise. */
uint64_t   dra_adapter_key(const dra_adapter *a);
dra_status dra_adapter_check(const dra_adapter *a, dra_error *err); /* its hash, if it has one */

/* Whether a parameter in tensor `e` has factors. */
bool dra_adapter_has(const dra_adapter *a, const dra_tensor_source_entry *e, const dra_name_rule *r,
                     const dra_spec *p);
/* Adds scale B A to the numbers of the parameter. */
dra_status dra_adapter_add(const dra_adapter *a, const dra_tensor_source_entry *e,
                           const dra_name_rule *r, const dra_spec *p, dra_real *to, dra_error *err);
/* All factors are those of parameters of the model, in the right shapes. */
dra_status dra_adapter_compare(const dra_model *m, const dra_name_rules *n,
                               const dra_tensor_source *s, dra_error *err);

/* ---- of a model that learns by factors ------------------------------------------------------- */

/* Both files of a folder's adapter; the weights alone. */
dra_status dra_adapter_save_config(const char *folder, const dra_model_config *c, dra_error *err);
dra_status dra_adapter_write(const dra_name_rules *rules, const dra_specs *params, const char *path,
                             dra_get_param get, void *user, dra_error *err);
/* The factors of parameter i of such a file; `A` and `B` have room for them. */
dra_status dra_adapter_read(const dra_name_rules *rules, const dra_specs *params,
                            const dra_tensors *file, const char *path, int i, dra_real *A,
                            dra_real *B, dra_error *err);

#endif
