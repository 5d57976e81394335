/* dra/dra.h - everything. */
#ifndef DRA_DRA_H
#define DRA_DRA_H

#include "dra/base.h"
#include "dra/bench.h"
#include "dra/device.h"
#include "dra/graph.h"
#include "dra/ops.h"

#endif
