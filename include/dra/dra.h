/* dra/dra.h - everything. */
#ifndef DRA_DRA_H
#define DRA_DRA_H

#include "dra/abi.h"
#include "dra/base.h"
#include "dra/bench.h"
#include "dra/comm.h"
#include "dra/data.h"
#include "dra/device.h"
#include "dra/engine.h"
#include "dra/file.h"
#include "dra/generate.h"
#include "dra/graph.h"
#include "dra/memory.h"
#include "dra/model.h"
#include "dra/ops.h"
#include "dra/probe.h"
#include "dra/sequence.h"
#include "dra/session.h"
#include "dra/template.h"
#include "dra/text.h"
#include "dra/train.h"

#endif
