#pragma once

/// Everything a C++ user of kernwright includes.

#include <kernwright/baked_launch.h>
#include <kernwright/chain.h>
#include <kernwright/kernel.h>
#include <kernwright/model.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/service.h>
#include <kernwright/tensor_binding.h>
#include <kernwright/version.h>
#include <kernwright/visible.h>
