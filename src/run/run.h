/* What the files of this layer share. */
#ifndef DRA_SRC_RUN_H
#define DRA_SRC_RUN_H

#include "dra/train.h"

/* The memory behind dra_learner_gradient(); NULL: the parameter is not trained. */
dra_real *dra_learner_gradient_memory(dra_learner *l, int i);

#endif
