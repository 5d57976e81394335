/* dra/dra.h - everything. */
#ifndef DRA_DRA_H
#define DRA_DRA_H

#include "dra/base.h"
#include "dra/bench.h"
#include "dra/device.h"
#include "dra/file.h"
#include "dra/graph.h"
#include "dra/memory.h"
#include "dra/ops.h"
#include "dra/sequence.h"

#endif
