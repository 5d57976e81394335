/* Names of factors, and the rules by which parameters of one tensor share them. */
#ifndef DRA_SRC_FORMATS_ADAPTER_NAMES_H
#define DRA_SRC_FORMATS_ADAPTER_NAMES_H

#include "formats/format.h"

enum { DRA_ADAPTER_NAME = 256 };

/* The tensor that factor `which` ('A', 'B') of a module is stored as; hf: as PEFT names it. */
void dra_adapter_tensor_name(const char *module, bool hf, char which, char *name, size_t size);
/* Backwards: 'A' or 'B' and its module; 0: it is no factor. */
char dra_adapter_module_name(const char *tensor, char module[DRA_ADAPTER_NAME], bool *hf);
/* The module of a weight, "PATH.weight"; false: it is named otherwise. */
bool dra_adapter_module_of(const char *weight, char module[DRA_ADAPTER_NAME]);

/* Whether rows of B lie in those of the tensor as rows of the parameter do. */
bool dra_adapter_rule_fits(const dra_name_rule *r);
/* The rule of B: PEFT's are (out, r), however the matrix is stored. */
dra_name_rule dra_adapter_rule(const dra_name_rule *r);

#endif
